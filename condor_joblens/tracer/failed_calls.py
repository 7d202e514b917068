"""What the kernel keeps of a process's failing calls (struct io_failures), as model/failures.py has it."""

from __future__ import annotations

import mmap
import socket
from typing import Any

import numpy as np

from condor_joblens.model.failures import Failure, Failures, Subject
from condor_joblens.tracer._bpf import lib

NANO = 1e-9
NO_LIMIT = (1 << 64) - 1
V4_MAPPED = bytes(10) + b"\xff\xff"

SUBJECTS = {
    int(lib.FAILED_PATH): Subject.PATH,
    int(lib.FAILED_FILE): Subject.FILE,
    int(lib.FAILED_DEVICE): Subject.DEVICE,
    int(lib.FAILED_MEMORY): Subject.MEMORY,
    int(lib.FAILED_DESCRIPTORS): Subject.DESCRIPTORS,
    int(lib.FAILED_PROCESSES): Subject.PROCESSES,
    int(lib.FAILED_ADDRESS): Subject.SERVER,
    int(lib.FAILED_PROGRAM): Subject.PROGRAM,
}


def read(record: np.ndarray) -> Failures:
    """The failures in `record` (map_layout.IO_FAILURES, shape (1,)). What the kernel may have left half is left out."""
    said = record[0]["said"].tobytes()[: int(record[0]["said_bytes"])]
    return Failures(_in_order(record[0], lib.COMMON_FAILURES), said)


def read_told(record: np.ndarray) -> Failures:
    """The same of `record` (map_layout.FAILED_CALLS, shape (1,)): what is kept at level basic."""
    told = record[0]["told"].tobytes()[: int(record[0]["told_bytes"])]
    return Failures(_in_order(record[0], lib.COMMON_FAILED_CALLS), arguments=tuple(told.split(b"\0")))


def _in_order(of: Any, most_common: int) -> tuple[Failure, ...]:
    """What is in the two rings, of which the first has room for so many."""
    most_rare = len(of["last"]) - most_common
    used = [*range(min(int(of["common_count"]), most_common))]
    used += [most_common + place for place in range(min(int(of["rare_count"]), most_rare))]
    found = [failure for failure in (_failure(of["last"][place]) for place in used) if failure is not None]
    return tuple(sorted(found, key=lambda failure: failure.time))


def _failure(record: Any) -> Failure | None:
    subject = SUBJECTS.get(int(record["subject"]))
    path = record["path"].tobytes()[: int(record["bytes"])]
    error, time, limit = int(record["error"]), int(record["time_ns"]) * NANO, int(record["limit"])
    if subject is None or not time:
        return None
    if subject in (Subject.PATH, Subject.PROGRAM):
        return Failure(error, subject, time, path=path.partition(b"\0")[0])
    if subject in (Subject.FILE, Subject.DEVICE):
        whole, mount = _joined(path)
        return Failure(error, subject, time, path=whole, mount=mount)
    if subject is Subject.SERVER:
        address, port = _address(path)
        return Failure(error, subject, time, address=address, port=port) if address else None
    held = int(record["held"]) * mmap.PAGESIZE if subject is Subject.MEMORY else 0
    return Failure(
        error, subject, time,
        asked_bytes=int(record["asked"]), held_bytes=held, limit=-1 if limit == NO_LIMIT else limit,
    )  # fmt: skip


def _joined(names: bytes) -> tuple[bytes, bytes]:
    """Path and mount point from the names on the way up: `b"x\\0/\\0scratch\\0"` is /scratch/x, and /scratch."""
    on_the_way = names.rstrip(b"\0").split(b"\0")
    first = on_the_way.index(b"/") if b"/" in on_the_way else len(on_the_way)
    above = [name for name in on_the_way[first:] if name not in (b"", b"/")]
    below = [name for name in on_the_way[:first] if name]
    mount = b"/" + b"/".join(reversed(above))
    return b"/" + b"/".join(reversed(below + above)), mount


def _address(sockaddr: bytes) -> tuple[bytes, int]:
    """Of struct sockaddr_in or sockaddr_in6, the address as 16 bytes and the port; no address where it is neither."""
    family, port = int.from_bytes(sockaddr[:2], "little"), int.from_bytes(sockaddr[2:4], "big")
    if family == socket.AF_INET and len(sockaddr) >= 8:
        return V4_MAPPED + sockaddr[4:8], port
    if family == socket.AF_INET6 and len(sockaddr) >= 24:
        return sockaddr[8:24], port
    return b"", 0
