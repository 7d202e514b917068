"""Who is at the other end of a Unix socket: uvicorn's protocol, which says it where an address would stand.

A client at a TCP port has an address there, which never begins with these words. No header can change it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from condor_joblens.hub.patience import PatientProtocol

PEER, PROXY = "peer", "proxy"
"""What a socket is for: people's own programs; or the site's proxy."""

_CREDENTIALS = struct.Struct("3i")


class PeerProtocol(PatientProtocol):
    """The client of a Unix socket is called peer:UID or proxy:UID, by the end of the socket's path."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Once a connection."""
        super().connection_made(transport)
        found: Any = transport.get_extra_info("socket")
        if found is not None and found.family == socket.AF_UNIX:
            _, uid, _ = _CREDENTIALS.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            kind = PROXY if str(found.getsockname()).endswith("proxy.sock") else PEER
            self.client = (f"{kind}:{uid}", 0)
