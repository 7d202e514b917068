"""What level io has counted for a job is the sum over all CPUs, with the waits that still go on."""

from __future__ import annotations

import time

import numpy as np
import pytest
from condor_joblens.tracer._bpf import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.tracer import map_layout

JOBS, CPUS, THREADS = 4, 3, 8
A, B = 5 << 32 | 2, 6 << 32 | 4  # keys of the rows 1 and 3
BEHIND = 10**15
"""Nanoseconds that the scheduler's clock is behind CLOCK_MONOTONIC."""

CLASS = 8


class Tables:
    """The maps of level io."""

    def __init__(self) -> None:
        self.counts: np.ndarray = np.zeros(JOBS * CPUS, map_layout.IO_COUNTERS)
        self.uring: np.ndarray = np.zeros(JOBS, map_layout.IO_URING)
        self.running: np.ndarray = np.zeros(CPUS, map_layout.IO_RUNNING)
        self.waiting: np.ndarray = np.zeros(THREADS, map_layout.IO_WAITING)
        self.running["clock_offset"] = 2**64 - BEHIND  # as the kernel's unsigned difference
        self.has_uring = True

    def sums(self, *keys: int) -> np.ndarray:
        tables = ffi.new("struct io_tables *")
        tables.counts = ffi.from_buffer("struct io_counters[]", self.counts)
        tables.uring = ffi.from_buffer("struct io_uring_counters[]", self.uring) if self.has_uring else ffi.NULL
        tables.running = ffi.from_buffer("struct io_running[]", self.running)
        tables.waiting = ffi.from_buffer("struct io_waiting[]", self.waiting)
        tables.max_jobs, tables.cpus, tables.threads = JOBS, CPUS, THREADS
        found: np.ndarray = np.ones(len(keys), map_layout.IO_COUNTERS)
        which = np.array(keys, "u8")
        to = ffi.from_buffer("struct io_counters[]", found, require_writable=True)
        if lib.sum_io(tables, ffi.from_buffer("uint64_t[]", which), len(keys), to) != 0:
            raise ValueError("no such key")
        return found

    def wait(self, place: int, key: int, since: int, kind: int) -> None:
        """A thread that waits."""
        for name, value in (("key", key), ("since_ns", since), ("kind", kind)):
            self.waiting[name][place] = value

    @staticmethod
    def now() -> int:
        """By the scheduler's clock."""
        return time.monotonic_ns() + BEHIND


@given(st.integers(0, 2**32))
def test_words_of_all_cpus_are_added(seed: int) -> None:
    tables = Tables()
    words = np.random.default_rng(seed).integers(0, 2**50, (JOBS, CPUS, map_layout.IO_COUNTERS.itemsize // 8), "u8")
    tables.counts = words.reshape(JOBS * CPUS, -1).copy().view(map_layout.IO_COUNTERS)[:, 0]
    found = tables.sums(B, A).view("u8").reshape(2, -1)
    assert found.tolist() == words[[3, 1]].sum(axis=1).tolist()


@pytest.mark.parametrize("has_uring", [True, False])
def test_io_uring_adds_to_files_and_to_what_is_uncounted(has_uring: bool) -> None:
    tables = Tables()
    tables.has_uring = has_uring
    tables.counts["files"][1 * CPUS, 5] = 100
    tables.uring["files"][1, 5] = 10
    tables.uring["others"][1], tables.uring["untold"][1] = 3, 4
    (found,) = tables.sums(A)
    assert found["files"][5] == (110 if has_uring else 100)
    of_uring = found["uncounted"][[lib.UNCOUNTED_URING, lib.UNCOUNTED_UNTOLD]].tolist()
    assert of_uring == ([3, 4] if has_uring else [0, 0])


def test_waits_that_go_on_are_those_of_the_key_alone() -> None:
    tables, hour = Tables(), 3600 * 10**9
    since = tables.now() - hour
    read = lib.WAIT_UNINTERRUPTIBLE | 2 << CLASS  # of the second class of files
    for place, (key, kind) in enumerate([(A, lib.WAIT_SLEEP), (A, read), (A + (1 << 32), read), (0, read), (B, read)]):
        tables.wait(place, key, since, kind)
    tables.wait(5, A, 0, read)  # it runs again
    tables.running["key"][0], tables.running["since_ns"][0] = A, since
    tables.running["waited_ns"][0], tables.running["kind"][0] = 7, lib.WAIT_RUN_QUEUE
    before = tables.now()
    (found,) = tables.sums(A)
    most = hour + tables.now() - before + 1000 * 10**9
    waits = found["waits"].tolist()
    assert waits[lib.WAIT_RUN_QUEUE] == 7
    for kind in (lib.WAIT_SLEEP, lib.WAIT_UNINTERRUPTIBLE, lib.WAIT_RUNNING):
        assert hour <= waits[kind] <= most
    files = np.flatnonzero(found["files"]).tolist()
    assert files == [lib.FILE_FIELDS + lib.FILE_BLOCKED_NS]
    assert found["files"][files[0]] == waits[lib.WAIT_UNINTERRUPTIBLE]


def test_a_wait_that_has_just_begun_is_no_negative_one() -> None:
    tables = Tables()
    tables.wait(0, A, tables.now() + 10**12, lib.WAIT_SLEEP)
    assert tables.sums(A)["waits"].tolist() == [[0] * lib.WAITS]


def test_a_wait_for_a_lock_on_a_file_is_no_file_systems() -> None:
    tables, hour = Tables(), 3600 * 10**9
    tables.wait(0, A, tables.now() - hour, lib.WAIT_SLEEP | (lib.FILE_LOCK + 1) << CLASS)
    (found,) = tables.sums(A)
    assert found["file_lock_ns"] == found["waits"][lib.WAIT_SLEEP] >= hour
    assert not found["files"].any()


def test_a_class_that_is_none_is_in_no_file_systems_number() -> None:
    tables = Tables()
    tables.wait(0, A, 1, lib.WAIT_SLEEP | 0xFFFFFF << CLASS)
    (found,) = tables.sums(A)
    assert found["waits"][lib.WAIT_SLEEP] > 0 and not found["files"].any()


def test_the_clocks_are_apart_by_what_most_cpus_say() -> None:
    tables, hour = Tables(), 3600 * 10**9
    tables.running["clock_offset"] = [2**64 - BEHIND, 2**64 - BEHIND + 10, 2**64 - 9 * BEHIND]
    tables.wait(0, A, tables.now() - hour, lib.WAIT_SLEEP)
    assert hour - 10 <= int(tables.sums(A)["waits"][0, lib.WAIT_SLEEP]) < 2 * BEHIND


def test_a_key_of_no_row_is_refused() -> None:
    for key in (0, 7 << 32, JOBS + 1):
        with pytest.raises(ValueError, match="no such key"):
            Tables().sums(A, key)
