"""Addresses to listen at: bound and listening in one step, so that nobody else can bind them too."""

from __future__ import annotations

import socket

BACKLOG = 128
"""Connections that the kernel keeps for us while nobody accepts them."""


def split(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, where an IPv6 host may be in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(address: str) -> socket.socket:
    """A socket that listens at HOST:PORT and does not block. Raises OSError, or UnicodeError for a name of no host."""
    host, port = split(address)
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
