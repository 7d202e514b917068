"""Packets on the control socket: an input is packets with their lengths before them, as the kernel would hand them."""

from __future__ import annotations

import contextlib

from condor_joblens.control.frames import (
    MAX_REQUEST,
    REQUEST,
    Assembler,
    FrameError,
    Words,
    decode_packet,
    decode_words,
    encode_words,
    frames,
    version_of,
)
from condor_joblens.control.verbs import VERBS, Refused, understand


def _packed(*packets: bytes) -> bytes:
    return b"".join(len(packet).to_bytes(2, "little") + packet for packet in packets)


_LEVEL = encode_words("level", {"job": b"12.0", "level": b"io", "for": b"600"})
SEEDS = [
    _packed(b"joblens/1\0activate\0slot=slot1_1\0scratch=/execute/dir_1\0"),
    _packed(*frames(REQUEST, _LEVEL)),
    _packed(*frames(REQUEST, encode_words("watch", {"job": b"12", "schema": b"0123456789abcdef"}))),
    _packed(*frames(REQUEST, encode_words("artifacts", {"job": b"slot1_1", "name": b"hang"}))),
]
WORDS = [b"joblens/1\0", b"joblens/2\0Q", *(verb.encode() for verb in VERBS), b"=", b"clear", b"trace"]


def check(data: bytes) -> None:
    """Each packet is a request, refused, or no frame; what is understood has the arguments that its verb needs."""
    assembler, at = Assembler(REQUEST, MAX_REQUEST), 0
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "little")
        with contextlib.suppress(FrameError, Refused):
            _one(assembler, data[at + 2 : end])
        at = end


def _one(assembler: Assembler, packet: bytes) -> None:
    version = version_of(packet)
    if version == 1:
        words = decode_packet(packet)
    else:
        message = assembler.add(packet)
        if message is None:
            return
        words = decode_words(message[1])
        _check_round_trip(words, message[1])
    request = understand(words, 1, 2, version)
    verb = VERBS[request.verb]
    assert set(verb.required) <= set(request.arguments) <= set(verb.arguments)
    assert (request.pid, request.uid) == (1, 2)


def _check_round_trip(words: Words, message: bytes) -> None:
    if "\ufffd" not in words.word + "".join(words.fields):
        assert encode_words(words.word, words.fields) == message
