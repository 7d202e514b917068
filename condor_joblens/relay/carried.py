"""How a relay hands on what has come, and takes the answer: bytes, of which it understands nothing.

On a node that goes to joblensd: a warrant, or a list of entries. On an access point it goes to joblens-door: a request
of somebody who is elsewhere.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping

from condor_joblens.common.errors import JobLensError
from condor_joblens.control import frames
from condor_joblens.control.frames import FrameError
from condor_joblens.control.verbs import REFUSED


async def answers(path: str, verb: str, fields: Mapping[str, bytes]) -> AsyncIterator[bytes]:
    """The DATA messages of joblensd's answer. Raises JobLensError with why there are none, or no more."""
    async for kind, message in _said(path, frames.encode_words(verb, fields), "joblensd", "on the node"):
        if kind == frames.DATA:
            yield message
        else:
            _check(message)
            return
    raise JobLensError("joblensd has ended the answer")


async def door_answer(path: str, request: bytes) -> AsyncIterator[bytes]:
    """The door's whole answer, in one message; `path` is its socket for requests from afar. Raises JobLensError."""
    if not path:
        raise JobLensError("this access point takes no requests from elsewhere: JOBLENS_DOOR_AFAR_SOCKET is not set")
    if not 0 < len(request) <= frames.MAX_REQUEST:
        raise JobLensError("this is no request")
    async for kind, message in _said(path, request, "joblens-door", "on the access point"):
        if kind == frames.END:
            yield message
            return
    raise JobLensError("joblens-door of the access point has ended the connection: it has too much to do, try again")


async def _said(path: str, request: bytes, who: str, where: str) -> AsyncIterator[tuple[bytes, bytes]]:
    """Kinds and messages of what is answered to this request. Raises JobLensError."""
    loop = asyncio.get_running_loop()
    assembler = frames.Assembler(frames.DATA + frames.END, frames.MAX_ANSWER)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as connection:
            await loop.sock_connect(connection, path)
            for frame in frames.frames(frames.REQUEST, request):
                await loop.sock_sendall(connection, frame)
            while data := await loop.sock_recv(connection, frames.MAX_PACKET + 1):
                found = assembler.add(data)
                if found is not None:
                    yield found
    except OSError as error:
        raise JobLensError(f"{who} does not answer {where}: {error.strerror}") from None
    except FrameError:
        raise JobLensError(f"{who} speaks another protocol than the relay") from None


def _check(end: bytes) -> None:
    """Raises JobLensError if this end refuses, or is none."""
    try:
        words = frames.decode_words(end)
    except FrameError:
        raise JobLensError("joblensd speaks another protocol than the relay") from None
    if words.word == REFUSED:
        raise JobLensError(words.fields.get("reason", b"").decode("utf-8", "replace"))
