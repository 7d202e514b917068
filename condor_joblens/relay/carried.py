"""How a relay on a node hands to joblensd what has come, and takes the answer: bytes, of which it understands nothing.

That is a warrant, or a list of entries.
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
    loop = asyncio.get_running_loop()
    assembler = frames.Assembler(frames.DATA + frames.END, frames.MAX_ANSWER)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as connection:
            await loop.sock_connect(connection, path)
            for frame in frames.frames(frames.REQUEST, frames.encode_words(verb, fields)):
                await loop.sock_sendall(connection, frame)
            while data := await loop.sock_recv(connection, frames.MAX_PACKET + 1):
                found = assembler.add(data)
                if found is not None and found[0] == frames.DATA:
                    yield found[1]
                elif found is not None:
                    _check(frames.decode_words(found[1]))
                    return
    except OSError as error:
        raise JobLensError(f"joblensd does not answer on the node: {error.strerror}") from None
    except FrameError:
        raise JobLensError("joblensd speaks another protocol than the relay") from None
    raise JobLensError("joblensd has ended the answer")


def _check(words: frames.Words) -> None:
    if words.word == REFUSED:
        raise JobLensError(words.fields.get("reason", b"").decode("utf-8", "replace"))
