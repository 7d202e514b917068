"""What has failed for a process lately: calls and connections, and what the process has said of it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Subject(enum.Enum):
    """What a call was about."""

    PATH = "a path as the process gave it"
    FILE = "an open file"
    DEVICE = "an open character device"
    MEMORY = "more memory"
    DESCRIPTORS = "one more open file"
    PROCESSES = "one more process"
    PROGRAM = "a path as the process gave it, of a program to be executed"
    SERVER = "the other end of a connection"


@dataclass(frozen=True)
class Failure:
    """A call or a connection that failed. Numbers are 0 where they have no meaning."""

    error: int  # errno
    subject: Subject
    time: float  # seconds, CLOCK_MONOTONIC
    path: bytes = b""  # of a file; of anybody's choice
    mount: bytes = b""  # where the file system of an open file begins, as the process sees it
    asked_bytes: int = 0  # of memory
    held_bytes: int = 0  # of address space, then
    limit: int = -1  # in bytes, files or processes; -1: none
    address: bytes = b""  # 16 bytes in network order, IPv4 mapped
    port: int = 0


@dataclass(frozen=True)
class Failures:
    """What is known of a process."""

    failed: tuple[Failure, ...] = ()  # in their order
    said: bytes = b""  # the last of what it wrote to descriptor 2 since the first of them
    arguments: tuple[bytes, ...] = ()  # its own, as far as they are known; of anybody's choice


def all_failures(parts: Iterable[Failures]) -> Failures:
    """What several sources know of one process."""
    known = list(parts)
    failed = sorted((each for part in known for each in part.failed), key=lambda failure: failure.time)
    arguments = next((part.arguments for part in known if part.arguments), ())
    return Failures(tuple(failed), b"".join(part.said for part in known), arguments)
