"""What requests of io_uring wait for, as far as the kernel tells: which operations, and not of which descriptor.

The kernel lists those that wait until their file is ready (fdinfo of the ring, io_uring/fdinfo.c: PollList). Those
that a thread of its own waits for, as reads of a file, are not among them.
"""

from __future__ import annotations

import re

from condor_joblens.profiling.process import Process

_ACCEPT = 13
_OF_SOCKETS = {9, 10, 16, 26, 27, 47, 48}  # sendmsg, recvmsg, connect, send, recv, send_zc, sendmsg_zc
"""IORING_OP_* of linux/io_uring.h; numbers there never change."""

RING = "anon_inode:[io_uring]"
_LISTED = re.compile(r"^PollList:[^\n]*\n((?:\s+op=\d+[^\n]*\n?)*)", re.MULTILINE)
_OPERATION = re.compile(r"\bop=(\d+)")


def operations(process: Process) -> set[int]:
    """The operations that wait in the process's rings until a file is ready."""
    rings = [number for number, target in process.targets() if target == RING]
    return {each for ring in rings for each in listed(process.text(f"fdinfo/{ring}"))}


def listed(fdinfo: str) -> set[int]:
    """The same of one ring, by its fdinfo."""
    return {int(each) for part in _LISTED.findall(fdinfo) for each in _OPERATION.findall(part)}


def is_for_clients(waiting: set[int]) -> bool:
    """Whether all of them wait for somebody who connects."""
    return waiting == {_ACCEPT}


def is_for_connections(waiting: set[int]) -> bool:
    """Whether all of them send, receive or connect."""
    return bool(waiting) and waiting <= _OF_SOCKETS
