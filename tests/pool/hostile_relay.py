"""`joblens-hub relay`, which does with what it carries what the file /tmp/orders says.

That is honest, replay, swap, invent or flood; and with requests of people who are elsewhere, kill or again.

Arguments are those of joblens-hub. Its log has a line for whatever it does, and what came of it.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from condor_joblens.control import door, frames
from condor_joblens.relay import hub, messages
from condor_joblens.relay.messages import CARRY, DATA, END, Message
from condor_joblens.relay.server import RelayServer, _Peer

ORDERS = Path("/tmp/orders")
FLOOD = 1000
"""Commands that nobody has signed, before each that somebody has."""


def orders() -> str:
    return ORDERS.read_text().strip() if ORDERS.exists() else "honest"


class Hostile(RelayServer):
    """It has all that passes: warrants, and answers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[Message] = []  # commands that it has carried
        self.asked: list[bytes] = []  # requests to a door that had a nonce
        self.answers: list[Message] = []  # parts of the answer that came last and was whole
        self.coming: defaultdict[int, list[Message]] = defaultdict(list)  # parts by the node's number
        self.mine: set[int] = set()  # numbers, on the node's side, of what nobody has asked for

    def _carry(self, peer: _Peer, message: Message) -> None:
        node = self._nodes[message.text("Node")]
        if orders() == "invent":
            for data in (*(part.fields["Data"] for part in self.answers), b"L=invented"):
                peer.send(Message(DATA, message.number, {"Data": data}))
            peer.send(messages.end(message.number))
            return
        if orders() == "replay" and self.seen:
            number = next(node.numbers)
            self.mine.add(number)
            node.send(Message(CARRY, number, {name: self.seen[-1].fields[name] for name in ("Job", "Packet")}))
        if orders() == "flood":
            for number in (next(node.numbers) for _ in range(FLOOD)):
                fields = {"Job": message.fields["Job"], "Packet": os.urandom(400)}
                node.send(Message(CARRY, number, fields))
            self._log(f"{FLOOD} commands of nobody are sent to the node")
        self.seen.append(message)
        super()._carry(peer, message)

    def _ask(self, peer: _Peer, message: Message) -> None:
        words = frames.decode_words(message.fields["Packet"])
        if orders() == "kill" and door.NONCE in words.fields:
            packet = frames.encode_words("kill", {**words.fields, "signal": b"9"})
            message = Message(message.word, message.number, {**message.fields, "Packet": packet})
        elif orders() == "again" and self.asked and words.word == door.PROVE:
            message = Message(message.word, message.number, {**message.fields, "Packet": self.asked[-1]})
        elif door.NONCE in words.fields:
            self.asked.append(message.fields["Packet"])
        super()._ask(peer, message)

    def _take(self, peer: _Peer, message: Message) -> None:
        if message.word == END and message.number in self.mine:
            self._log(f"the replayed one came to this: {message.text('reason')}")
        if message.word == DATA:
            coming = self.coming[message.number]
            if orders() == "swap" and self.answers:
                message = Message(DATA, message.number, self.answers[len(coming) % len(self.answers)].fields)
            coming.append(message)
        elif message.word == END and message.number not in self.mine:
            whole = self.coming.pop(message.number, [])
            if orders() == "honest" and whole:
                self.answers = whole
        super()._take(peer, message)


if __name__ == "__main__":
    hub.RelayServer = Hostile  # type: ignore[misc]
    sys.exit(hub.main())
