"""What relays say to their server, in any order: nobody reaches another's command, and nothing grows without bound."""

from __future__ import annotations

import contextlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.common.tokens import ACCESS_POINT, BOTH, NODE, REMOTE, Who, read_tokens
from condor_joblens.control.frames import FrameError, encode_words
from condor_joblens.relay import messages
from condor_joblens.relay.messages import ASK, CANCEL, CARRY, DATA, END, MORE, WINDOW, Message
from condor_joblens.relay.server import (
    OF_A_NODE,
    OF_A_REMOTE,
    OF_AN_ACCESS_POINT,
    OF_BOTH,
    OF_REMOTES,
    RelayServer,
    _Peer,
)

_SAID = (CARRY, DATA, END, MORE, CANCEL, ASK)
_WHO = (
    Who(ACCESS_POINT, "a"),
    Who(ACCESS_POINT, "b"),
    Who(NODE, "n"),
    Who(NODE, "m"),
    Who(BOTH, "o"),
    Who(REMOTE, "r"),
    Who(REMOTE, "s"),
)
_STEP = 4  # bytes: who says it, its word, its number, and for which node

SEEDS = [
    encode_words("carry", {"Number": b"\1\0\0\0", "Node": b"n", "Job": b"1.0", "Packet": b"p"}),
    bytes((0, 0, 1, 0, 2, 1, 1, 0, 0, 3, 1, 0, 2, 2, 1, 0)),
    bytes((0, 0, 1, 0, 1, 0, 1, 0, *(2, 1, 1, 0) * 12, *(2, 1, 2, 0) * 9, 0, 4, 1, 0, 2, 2, 2, 0)),
    bytes((5, 5, 1, 2, 0, 1, 1, 0, 5, 3, 1, 0, 0, 2, 1, 0, 5, 0, 2, 0, *(6, 5, 1, 3) * 9, 6, 4, 1, 0, 5, 5, 3, 1)),
    b"node ep1 " + b"0" * 64 + b"\naccess-point ap1 " + b"1" * 64 + b" # ours\n",
]
WORDS = [
    word.encode()
    for word in (
        *_SAID,
        "Number",
        "Node",
        "Job",
        "Packet",
        "Data",
        "reason",
        "AccessPoint",
        NODE,
        ACCESS_POINT,
        BOTH,
        REMOTE,
    )
]


def check(data: bytes) -> None:
    """Whatever comes is a message or refused in words, and the server's books agree after each of them."""
    with contextlib.suppress(FrameError):
        message = messages.decoded(data)
        assert message.word in _SAID and 0 <= message.number < 1 << 32
    with contextlib.suppress(JobLensError):
        read_tokens(data.decode("utf-8", "replace"))
    lines: list[str] = []
    server = RelayServer({}, lines.append)
    peers = [_peer(server, who) for who in _WHO]
    for at in range(0, min(len(data), 4096) - _STEP + 1, _STEP):
        _step(server, peers, data[at : at + _STEP])
        _agree(peers)
    assert all(line.isprintable() for line in lines)


def _peer(server: RelayServer, who: Who) -> Any:
    connection: Any = SimpleNamespace(transport=SimpleNamespace(abort=lambda: None))
    peer = _Peer(who, who.name, connection)
    server._come(peer)
    return peer


def _step(server: RelayServer, peers: list[Any], said: bytes) -> None:
    who, word, number, node = said
    peer = peers[who % len(peers)]
    if peer not in server._peers:
        return
    fields = {"Node": b"nmxo"[node % 4 :][:1], "Data": b"x", "reason": bytes((node,)), "Packet": b"p"}
    fields["AccessPoint"] = b"oxab"[node % 4 :][:1]
    try:
        server._take(peer, messages.decoded(Message(_SAID[word % len(_SAID)], number % 80, fields).encoded()))
    except FrameError:
        server._leave(peer)


def _agree(peers: list[Any]) -> None:
    for peer in peers:
        assert len(peer.done) <= peer.places() <= OF_A_NODE and (peer.places() == 0 or not peer.who.is_remote)
        assert peer.remotes_places <= OF_REMOTES
        assert peer.places() == peer.remotes_places or peer.who.is_node
        assert all(peer.places(each.source) <= OF_BOTH for each in peers)
        assert len(peer.asked) <= _most(peer.who)
        for number, asked in peer.asked.items():
            assert asked.node.done[asked.number] == (peer, number)
        for number, (asker, others) in peer.done.items():
            assert asker.asked[others].node is peer and asker.asked[others].number == number
        waiting = Counter(each.number for each in peer.queue._queue if each.word == DATA)
        assert waiting == peer.queued and max(waiting.values(), default=0) <= WINDOW


def _most(who: Who) -> int:
    if who.is_remote:
        return OF_A_REMOTE
    return OF_AN_ACCESS_POINT if who.is_access_point else 0
