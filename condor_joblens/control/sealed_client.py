"""The answer to a warrant, as its messages: what is not the node's own is not believed."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from condor_joblens.common.errors import JobLensError
from condor_joblens.control import client, frames
from condor_joblens.control.frames import FrameError
from condor_joblens.control.sealed_answers import BadAnswer, Opener


def opened(packets: Iterable[bytes], opener: Opener, verb: str) -> Generator[bytes, None, dict[str, str]]:
    """The DATA messages of an answer to `verb` in what was carried; returns the fields of its end, fit to print.

    Raises JobLensError if the node refuses, if a packet is not the node's, or if its last one has not come.
    """
    for packet in packets:
        try:
            message = opener.open(packet)
        except BadAnswer as bad:
            raise JobLensError(f"what has come is not believed: {bad}") from None
        if message[:1] == frames.DATA:
            yield message[1:]
        elif message[:1] == frames.END:
            try:
                return client.granted(verb, frames.decode_words(message[1:]))
            except FrameError:
                raise JobLensError("the node answers in another protocol: install the same version of both") from None
    raise JobLensError("the answer was cut off on its way: nobody but its carriers can have done that")
