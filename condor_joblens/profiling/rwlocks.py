"""What the memory of a read-write lock says, by glibc's pthread_rwlock_t. Its layout is part of the ABI, as a mutex's.

Who has it to write has left a number there. Of those who read only how often they have locked it is known.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from condor_joblens.profiling import mutexes
from condor_joblens.profiling.process import Process
from condor_joblens.profiling.threads import Thread

# __readers, __writers, __wrphase_futex, __writers_futex, two of padding, __cur_writer, __shared, padding, __flags
_LOCK = struct.Struct("<6IiiQQI")
_PHASE, _WRITERS = 8, 12  # where the two lie for which threads wait
_WAIT = 0x189  # FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME, and no time
_ANY = 0xFFFFFFFF  # FUTEX_BITSET_MATCH_ANY
_FOR_WRITERS, _FOR_READERS = 2, 3  # what who waits for the end of the others has in either
_STATE, _WRITTEN, _TO_BE_WRITTEN = 3, 3, 2  # bits of __readers: a writer has it, or is the next one
_READER_SHIFT = 3
_KINDS = {0, 1, 2}


@dataclass(frozen=True)
class Awaited:
    """The lock, and who has it: the number of a thread that writes, or how often it is locked to be read."""

    address: int
    writes: bool  # who waits
    writer: int
    readers: int


def awaited(thread: Thread, process: Process) -> Awaited | None:
    """The lock that a thread waits for; None unless all fits to what pthread_rwlock_rdlock(3) or wrlock(3) do.

    Other things are awaited by the same call: conditions and barriers never lie so that this fits.
    """
    if thread.call != "futex":
        return None
    futex, operation, value, time, _, bits = thread.arguments
    if (operation, time, bits & _ANY) != (_WAIT, 0, _ANY) or not mutexes.is_in_libc(thread, process):
        return None
    offset = _PHASE if futex % 8 == 0 else _WRITERS
    memory = process.read(futex - offset, _LOCK.size)
    if (futex - offset) % 8 or len(memory) < _LOCK.size:
        return None
    state, _, phase, next_writer, *padding, writer, shared, more, last, kind = _LOCK.unpack(memory)
    if any((*padding, shared, more, last)) or kind not in _KINDS:
        return None
    writes = offset == _WRITERS or value == _FOR_WRITERS
    if (next_writer if offset == _WRITERS else phase) != value or value not in (_FOR_WRITERS, _FOR_READERS):
        return None
    readers = state >> _READER_SHIFT
    if state & _STATE == _WRITTEN and writer > 0 and value == _FOR_READERS:
        return Awaited(futex - offset, writes, writer, 0)
    if state & _STATE == _TO_BE_WRITTEN and writer == 0 and readers and writes and next_writer in (1, 3):
        return Awaited(futex - offset, writes, 0, readers)
    return None
