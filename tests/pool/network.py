"""Another process's network: a pool has one of its own, with loopback alone.

python3 network.py PID HOST:PORT carries what comes to that address in the network of that process to the same
address in ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_PIECE = 1 << 16


@contextlib.contextmanager
def in_network_of(process: int) -> Iterator[None]:
    """This thread, and what it starts, are in the network of that process."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(network: int) -> None:
        if libc.setns(network, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    ours = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    theirs = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
    try:
        enter(theirs)
        yield
        enter(ours)
    finally:
        os.close(ours)
        os.close(theirs)


async def _carry(listening: socket.socket, host: str, port: int) -> None:
    """Until we are ended."""

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(_PIECE):
                target.write(piece)
                await target.drain()
        target.close()

    async def connected(source: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection(host, port)
        except OSError:
            answers.close()
            return
        await asyncio.gather(pump(source, forth), pump(back, answers))

    server = await asyncio.start_server(connected, sock=listening)
    await server.serve_forever()


def main(process: int, address: str) -> None:
    """For ever."""
    host, _, port = address.rpartition(":")
    with in_network_of(process):
        listening = socket.create_server((host, int(port)))
    asyncio.run(_carry(listening, host, int(port)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
