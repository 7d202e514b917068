"""A warrant's body, which a hostile access point has signed: it is refused in words, or has one encoding."""

from __future__ import annotations

import contextlib

from condor_joblens.control.frames import encode_words
from condor_joblens.control.warrants import BadWarrant, _check_shape, _decoded, _encoded

_TIMES = {"From": (1000).to_bytes(8, "little"), "Until": (61_000).to_bytes(8, "little")}
_FIELDS = {"User": b"alice@pool", "Run": b"ap#1.0#1#1", "Node": b"slot1@n", "SealingKey": b"k" * 32, "Nonce": b"n" * 16}
SEEDS = [
    encode_words("ps", {**_FIELDS, **_TIMES}),
    encode_words("tail", {**_FIELDS, **_TIMES, "file": b"log", "follow": b"1", "lines": b"10"}),
    encode_words("kill", {**_TIMES, **_FIELDS, "pid": b"1"}),
]
WORDS = [name.encode() for name in (*_FIELDS, *_TIMES, "ps", "tail", "kill", "file", "pid", "signal")]


def check(data: bytes) -> None:
    """What is taken is encoded as it was, and holds for a minute at most."""
    with contextlib.suppress(BadWarrant):
        warrant = _decoded(data)
        _check_shape(warrant)
        assert _encoded(warrant) == data
        assert 0 < warrant.ends - warrant.begins <= 60_000
        assert "\x1b" not in warrant.user + warrant.run + warrant.node + warrant.verb
