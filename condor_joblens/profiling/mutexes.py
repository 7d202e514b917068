"""What the memory of a mutex says, by glibc's pthread_mutex_t. Its layout on x86-64 and aarch64 is part of the ABI."""

from __future__ import annotations

import struct

from condor_joblens.profiling.process import Process
from condor_joblens.profiling.threads import Thread

CONTENDED = 2
"""What glibc leaves in a mutex that is held and waited for."""

_WHOLE = struct.Struct("<iIiIi")  # __lock, __count, __owner, __nusers, __kind
_FIRST = struct.Struct("<iIi")
SIZE, LEAST = _WHOLE.size, _FIRST.size
"""Bytes to read, and with how many its owner is known."""

_MOST_TID = 1 << 22  # PID_MAX_LIMIT of Linux
_RECURSIVE, _KINDS = 1, {0, 1, 2, 3}  # robust ones, and those that lend priority, wait otherwise
_SHARED = 0x80  # of a kind: processes share it
_WAIT, _WAIT_PRIVATE = 0, 0x80
_LIBRARIES = ("libc.so.", "libc-2.", "libpthread")


def state_and_owner(memory: bytes) -> tuple[int, int]:
    """Of at least LEAST bytes; the owner is 0 if nobody has it."""
    state, _, owner = _FIRST.unpack_from(memory)
    return state, owner


def is_held(thread: Thread, memory: bytes, process: Process) -> bool:
    """Whether what a thread waits for is such a mutex for sure, and a thread is its owner, wherever that is.

    Rust and Go have 2 in their own locks as well, and a program's own data behind it. So all that glibc writes must
    fit, and the call be that of pthread_mutex_lock(3): Rust has another operation, and Go makes its calls itself. Of a
    mutex that processes share, the number is that which the owner has in its own pid namespace.
    """
    if len(memory) < SIZE or thread.call != "futex" or thread.registers is None:
        return False
    if thread.arguments[1:4] not in ((_WAIT_PRIVATE, CONTENDED, 0), (_WAIT, CONTENDED, 0)):
        return False
    state, count, owner, users, kind = _WHOLE.unpack_from(memory)
    is_shared, kind = bool(kind & _SHARED), kind & 0xFF & ~_SHARED
    if state != CONTENDED or not 0 < owner <= _MOST_TID or users < 1 or kind not in _KINDS:
        return False
    fits = is_shared == (thread.arguments[1] == _WAIT) and (count > 0) == (kind == _RECURSIVE)
    return fits and is_in_libc(thread, process)


def is_in_libc(thread: Thread, process: Process) -> bool:
    """Whether the call is made in the C library; not so in programs that are linked statically."""
    mapping = process.mapping_at(thread.registers[0]) if thread.registers is not None else None
    return mapping is not None and mapping.path.rpartition("/")[2].startswith(_LIBRARIES)
