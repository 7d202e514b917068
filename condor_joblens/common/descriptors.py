"""Packets with descriptors, over a unix socket that keeps the bounds of packets."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
from collections.abc import Sequence

MOST_FILES = 8192
"""Descriptors of a process that has connections."""

_SO_PASSRIGHTS = 83  # include/uapi/asm-generic/socket.h


def refuse(listener: socket.socket) -> None:
    """From here on nobody can send a descriptor to what `listener` accepts. Before Linux 6.16 that can't be refused.

    Whoever sends one decides how long its close takes us: signals.interrupting.
    """
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def send(channel: socket.socket, packet: bytes, descriptors: Sequence[int] = ()) -> None:
    """Sends one packet. Raises OSError; BlockingIOError if the socket is not to wait."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(descriptors)}i", *descriptors))]
    channel.sendmsg([packet], rights if descriptors else [])


def receive(channel: socket.socket, greatest: int, most: int) -> tuple[bytes, list[int]]:
    """The next packet, empty at the end, and its descriptors, which are the caller's to close.

    Raises OSError, and ValueError for more than `greatest` bytes or `most` descriptors.
    """
    packet, ancillary, flags, _ = channel.recvmsg(greatest, socket.CMSG_LEN(4 * most), socket.MSG_CMSG_CLOEXEC)
    descriptors = [
        number
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for (number,) in struct.iter_unpack("i", data[: len(data) & ~3])
    ]
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(descriptors) > most:
        for descriptor in descriptors:
            os.close(descriptor)
        raise ValueError("a packet that is too long, or has too many descriptors")
    return packet, descriptors


def have_room(wanted: int = MOST_FILES) -> None:
    """For as many connections as may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
