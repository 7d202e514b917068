"""A socket to which everybody on this machine can connect."""

from __future__ import annotations

import contextlib
import os
import socket

from condor_joblens.common import descriptors

_BACKLOG = 64


def listening_at(path: str) -> socket.socket:
    """It is this process's from now on, whoever had a socket there before. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener.bind(path)
    os.chmod(path, 0o666)
    descriptors.refuse(listener)
    listener.listen(_BACKLOG)
    return listener
