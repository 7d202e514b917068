"""Sockets to which everybody on this machine can connect."""

from __future__ import annotations

import contextlib
import os
import socket

from condor_joblens.common import descriptors

_BACKLOG = 64


def listening_at(path: str) -> socket.socket:
    """One of packets. It is this process's from now on, whoever had a socket there before. Raises OSError."""
    return _at(path, socket.SOCK_SEQPACKET)


def streams_at(path: str) -> socket.socket:
    """The same of streams. Raises OSError."""
    return _at(path, socket.SOCK_STREAM)


def _at(path: str, kind: socket.SocketKind) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener.bind(path)
    os.chmod(path, 0o666)
    descriptors.refuse(listener)
    listener.listen(_BACKLOG)
    return listener
