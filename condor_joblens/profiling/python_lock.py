"""Which thread has the lock of a Python's interpreter, as the lock says itself: struct _gil_runtime_state of CPython.

It has begun with these four members since 3.7, and behind them is what threads wait on. So where they wait tells where
it is. The last one who took it is told as a PyThreadState. In there, at another place in each version, is its
thread's pointer. No program's file is needed for any of this.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from condor_joblens.profiling.process import Process
from condor_joblens.profiling.threads import Thread

_LOCK = struct.Struct("<QQiIQ")  # interval, last_holder, locked, padding, switch_number
_MOST_INTERVAL = 1_000_000_000  # microseconds; 5,000 unless the program has set it
_TO_FUTEX = (64, 68, 72, 76)
"""Bytes from the lock to what is awaited: glibc's pthread_cond_t has two such words, and since 2.41 elsewhere."""

_STATE_BYTES = 1024
"""Of a PyThreadState; its thread's pointer is within 256 bytes in all versions so far."""

_ASLEEP = ("S", "D")
_HAS_NOT_RUN = ("State:", "voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:")


def place(process: Process, futex: int) -> int:
    """Where the lock is that who waits at this address waits for; 0 if nobody has it, or it is not sure."""
    found = [at for each in _TO_FUTEX if (at := futex - each) % 8 == 0 and _holder(process, at)]
    return found[0] if len(found) == 1 else 0


def holder(process: Process, lock: int, threads: Sequence[Thread]) -> Thread | None:
    """Who has it, of the process's threads, if that one has waited ever since they were told.

    It sleeps before the lock is read and afterwards, and has not run meanwhile. So it has the lock while it waits.
    """
    found = _thread_of(process, _holder(process, lock), threads)
    if found is None:
        return None
    before = _asleep(process, found)
    again = _thread_of(process, _holder(process, lock), threads)
    return found if before and again is found and before == _asleep(process, found) else None


def _holder(process: Process, lock: int) -> int:
    """The state of the thread that has it; 0 if nobody has, or this is no such lock."""
    memory = process.read(lock, _LOCK.size)
    if len(memory) < _LOCK.size:
        return 0
    interval, state, is_locked, padding, _ = _LOCK.unpack(memory)
    is_lock = 0 < interval <= _MOST_INTERVAL and is_locked == 1 and padding == 0
    return int(state) if is_lock and state % 8 == 0 else 0


def _thread_of(process: Process, state: int, threads: Sequence[Thread]) -> Thread | None:
    """The one whose pointer is in a PyThreadState; None if none is, or several are."""
    memory = process.read(state, _STATE_BYTES) if state else b""
    words = {word for (word,) in struct.iter_unpack("<Q", memory[: len(memory) // 8 * 8])}
    found = [thread for thread in threads if thread.thread_pointer and thread.thread_pointer in words]
    return found[0] if len(found) == 1 else None


def _asleep(process: Process, thread: Thread) -> tuple[str, ...]:
    """What says how often it has run, if it still sleeps in the call that it was told in; else nothing."""
    call = process.text(f"task/{thread.tid}/syscall").split()
    if thread.registers is None or len(call) < 3:
        return ()
    instruction, stack, _ = thread.registers
    said = tuple(line for line in process.lines(f"task/{thread.tid}/status") if line.startswith(_HAS_NOT_RUN))
    is_same = call[-2:] == [f"{stack:#x}", f"{instruction:#x}"]
    is_asleep = any(line.split()[1] in _ASLEEP for line in said if line.startswith("State:"))
    return said if is_same and is_asleep else ()
