"""What System V semaphore a thread waits for: by its call's arguments, and the kernel's table of all sets.

The table does not say who has changed a set last. The call that does might be refused, and no other is allowed here.
"""

from __future__ import annotations

import os
import struct
import time

from condor_joblens.profiling.process import Process, text_of

_OPERATION = struct.Struct("<Hhh")  # struct sembuf: the semaphore's place in its set, what is added, flags
_SET, _KEY, _CHANGED = 1, 0, 8  # columns of /proc/sysvipc/sem


def awaited(process: Process, number: int, operations: int, count: int, proc: str = "/proc") -> str:
    """`semaphore 0 of the System V set 5 (no semop has ended there yet), to take 1`, of the arguments of semop(2)."""
    memory = process.read(operations, _OPERATION.size) if count == 1 else b""
    what, wanted = "some semaphore of", ""
    if len(memory) == _OPERATION.size:
        place, change, _ = _OPERATION.unpack(memory)
        what, wanted = f"semaphore {place} of", f", to take {-change}" if change < 0 else ", to become 0"
    told = _of_set(process, number, proc)
    return f"{what} the System V set {number}{f' ({told})' if told else ''}{wanted}"


def _of_set(process: Process, number: int, proc: str) -> str:
    """Its key and its last change; empty if the table is another one's: each IPC namespace has its own."""
    try:
        if os.readlink(f"{proc}/self/ns/ipc") != os.readlink(f"{proc}/{process.pid}/ns/ipc"):
            return ""
    except OSError:
        return ""
    for line in text_of(f"{proc}/sysvipc/sem").splitlines()[1:]:
        words = line.split()
        if len(words) > _CHANGED and words[_SET] == str(number):
            key = f"key {int(words[_KEY]) & 0xFFFFFFFF:#x}, " if words[_KEY] != "0" else ""
            changed = int(words[_CHANGED])
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(changed))
            return key + (f"the last semop ended there on {when}" if changed else "no semop has ended there yet")
    return ""
