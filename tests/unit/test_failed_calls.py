"""What the kernel keeps of failing calls, read: also if it is half written, or of anybody's choice."""

from __future__ import annotations

import errno
import socket
import struct

import numpy as np
from condor_joblens.tracer._bpf import lib
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.model.failures import Failure, Subject
from condor_joblens.tracer import failed_calls, map_layout


def record(*kept: tuple[int, int, bytes], said: bytes = b"", **numbers: int) -> np.ndarray:
    """Of these common failures: error, subject and path."""
    made: np.ndarray = np.zeros(1, map_layout.IO_FAILURES)
    made["common_count"] = len(kept)
    for place, (error, subject, path) in enumerate(kept):
        entry = made["last"][0, place : place + 1]
        entry["error"], entry["subject"], entry["path"], entry["bytes"] = error, subject, path, len(path)
        entry["time_ns"] = 1_000_000_000 * (place + 1)
        for name, value in numbers.items():
            entry[name] = value
    made["said"], made["said_bytes"] = said, len(said)
    return made


def only(made: np.ndarray) -> Failure:
    (failure,) = failed_calls.read(made).failed
    return failure


def test_a_path_is_as_the_process_gave_it() -> None:
    failure = only(record((errno.ENOENT, lib.FAILED_PATH, b"/a/b")))
    assert failure == Failure(errno.ENOENT, Subject.PATH, 1.0, path=b"/a/b")


def test_an_open_file_s_path_begins_at_the_root_and_knows_where_it_is_mounted() -> None:
    for names, path, mount in (
        (b"data\0out\0/\0scratch\0", b"/scratch/out/data", b"/scratch"),
        (b"data\0/\0b\0/\0a\0", b"/a/b/data", b"/a/b"),
        (b"data\0home\0", b"/home/data", b"/"),
        (b"/\0scratch\0", b"/scratch", b"/scratch"),
    ):
        failure = only(record((errno.ENOSPC, lib.FAILED_FILE, names)))
        assert (failure.path, failure.mount) == (path, mount)


def test_addresses_of_both_families() -> None:
    four = struct.pack("<H", socket.AF_INET) + struct.pack(">H", 1094) + bytes([192, 0, 2, 7]) + bytes(20)
    failure = only(record((errno.ENETUNREACH, lib.FAILED_ADDRESS, four)))
    assert (failure.address[-4:], failure.port) == (bytes([192, 0, 2, 7]), 1094)
    six = struct.pack("<H", socket.AF_INET6) + struct.pack(">H", 443) + bytes(4) + bytes(range(1, 17)) + bytes(4)
    failure = only(record((errno.ENETUNREACH, lib.FAILED_ADDRESS, six)))
    assert (failure.address, failure.port) == (bytes(range(1, 17)), 443)
    unix = struct.pack("<H", socket.AF_UNIX) + b"/run/socket"
    assert failed_calls.read(record((errno.ENETUNREACH, lib.FAILED_ADDRESS, unix))).failed == ()


def test_a_limit_that_is_none_is_none() -> None:
    assert only(record((errno.ENOMEM, lib.FAILED_MEMORY, b""), limit=(1 << 64) - 1)).limit == -1
    assert only(record((errno.ENOMEM, lib.FAILED_MEMORY, b""), limit=1 << 31)).limit == 1 << 31


def test_what_is_kept_is_in_its_order_and_what_was_said_is_whole() -> None:
    found = failed_calls.read(record((2, 1, b"/a"), (2, 1, b"/b"), said=b"a\0b"))
    assert [failure.path for failure in found.failed] == [b"/a", b"/b"]
    assert found.said == b"a\0b"


@given(st.integers(0, 2**32), st.integers(0, 9), st.binary(max_size=384))
def test_no_bytes_raise(seed: int, subject: int, path: bytes) -> None:
    made = np.frombuffer(np.random.default_rng(seed).bytes(map_layout.IO_FAILURES.itemsize), map_layout.IO_FAILURES)
    assert len(failed_calls.read(made).failed) <= lib.FAILURES
    assert len(failed_calls.read(record((2, subject, path))).failed) <= 1


def test_what_is_kept_at_level_basic_has_the_arguments() -> None:
    made: np.ndarray = np.zeros(1, map_layout.FAILED_CALLS)
    made["common_count"], made["rare_count"] = 1, 1
    for place, subject, path in ((0, lib.FAILED_PROGRAM, b"/x"), (lib.COMMON_FAILED_CALLS, lib.FAILED_PATH, b"/y")):
        entry = made["last"][0, place : place + 1]
        entry["error"], entry["subject"], entry["path"], entry["bytes"] = 2, subject, path, len(path)
        entry["time_ns"] = 1_000_000_000 * (place + 1)
    made["told"], made["told_bytes"] = b"cat\0/y\0", 7
    found = failed_calls.read_told(made)
    assert [(failure.subject, failure.path) for failure in found.failed] == [
        (Subject.PROGRAM, b"/x"), (Subject.PATH, b"/y")
    ]  # fmt: skip
    assert found.arguments[:2] == (b"cat", b"/y")


@given(st.integers(0, 2**32))
def test_no_bytes_of_level_basic_raise(seed: int) -> None:
    made = np.frombuffer(np.random.default_rng(seed).bytes(map_layout.FAILED_CALLS.itemsize), map_layout.FAILED_CALLS)
    assert len(failed_calls.read_told(made).failed) <= lib.FAILED_CALLS
