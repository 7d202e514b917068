"""A process's memory, as its owner's child reads it."""

from __future__ import annotations

import mmap
import os

from condor_joblens.profiling._eh_frame import ffi

from condor_joblens.profiling.process import Process


def test_memory_that_came_later_is_read_when_mappings_are_asked_for_anew() -> None:
    """An interpreter makes functions for as long as it runs, in memory that it takes when it needs it."""
    process = Process(os.getpid())
    assert process.mappings
    with mmap.mmap(-1, 64 << 20) as memory:  # more than the allocator has at hand
        memory[:4] = b"here"
        with ffi.from_buffer(memory) as content:
            address = int(ffi.cast("uintptr_t", content))
            assert process.read(address, 4) == b""
            process.forget_mappings()
            assert process.read(address, 4) == b"here"
    process.close()
