"""Commands that come from afar: the job's access point vouches for who asks, for one run on one node, for a minute.

A warrant is bytes that its access point has signed. Whoever carries it can drop it or keep it back, and nothing else:

    joblens-warrant/1 NUL, signature (64 bytes, Ed25519), body

The signature is over the first field and the body. The body is the verb and named fields, as in a request of joblens/2
(frames.py). First come those of _FIELDS in this order, then the verb's arguments, sorted by name. There is one encoding
of each warrant, and no other is taken. Nothing of the body is looked at before the signature is found to be good.

A person of the site's staff signs one with his own key, which nodes know (staff.py). It has another first field:

    joblens-staff/1 NUL, key (32 bytes, Ed25519, public)

Needs the package `cryptography` (the extra `relay`), which nothing else of a node loads. It is that one because
Debian and Enterprise Linux have it themselves, with all four algorithms that are used here and in sealed_answers.py.
"""

from __future__ import annotations

import heapq
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from condor_joblens.common.errors import printable
from condor_joblens.control import frames
from condor_joblens.control.door import BY_PROOF
from condor_joblens.control.frames import FrameError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_SECONDS = 60
"""The longest time for which a warrant holds."""

EARLY_SECONDS = 2.0
"""So far may the access point's clock be ahead of the node's."""

MAX_BYTES = 16384
"""Of a warrant."""

MAX_REMEMBERED, REMEMBERED_OF_A_USER = 10_000, 200
"""Warrants of the last minute that a node remembers. It takes no other until some have run out. An access point that
sets no key leaves that to users, and so one can sign as many for himself as he likes."""

KEY_BYTES, NONCE_BYTES, SIGNATURE_BYTES = 32, 16, 64

WARRANT = b"joblens-warrant/1\0"
"""How an access point's begins; staff_start: how a person's does."""

_STAFF = b"joblens-staff/1\0"
_FIELDS = ("User", "By", "Run", "Node", "SealingKey", "Nonce", "From", "Until")
_TIME = struct.Struct("<Q")  # milliseconds since 1970
_MAX_TEXT = 1024


class BadWarrant(Exception):
    """Why a warrant is not taken, in words for who has asked."""


@dataclass(frozen=True)
class Warrant:
    """What an access point vouches for. Times are milliseconds since 1970."""

    user: str  # the job's, as the schedd knows him: alice@pool
    by: str  # who asks: the same, a queue super user of the access point, or the key of one of the staff as text
    run: str  # GlobalJobId#start
    node: str  # RemoteHost of the job's ad: slot1_1@host
    verb: str
    arguments: Mapping[str, bytes]
    sealing_key: bytes  # X25519, public: who has its other half can read the answer (sealed_answers.py)
    nonce: bytes
    begins: int
    ends: int


@dataclass(frozen=True)
class Meant:
    """The run that a warrant has to be for, as the node itself knows it."""

    user: str
    run: str
    node: str


def new_nonce() -> bytes:
    """Bytes that no other warrant has."""
    return os.urandom(NONCE_BYTES)


def name_of(warrant: Warrant) -> str:
    """By which it is called in logs: at the access point and on the node alike."""
    return f"warrant {warrant.nonce.hex()[:12]}"


def staff_start(public_key: bytes) -> bytes:
    """How a warrant begins that the person with this key signs."""
    return _STAFF + public_key


def staff_key(packet: bytes) -> bytes:
    """Whose of the staff a warrant says that it is, by his public key; empty if it is an access point's."""
    at = len(_STAFF)
    return packet[at : at + KEY_BYTES] if packet.startswith(_STAFF) else b""


def sign(warrant: Warrant, key: Ed25519PrivateKey, start: bytes = WARRANT) -> bytes:
    """The warrant as it is sent. Raises BadWarrant if nobody would take it."""
    body = _encoded(warrant)
    if len(start) + SIGNATURE_BYTES + len(body) > MAX_BYTES:
        raise BadWarrant(f"a warrant has at most {MAX_BYTES} bytes")
    _check_shape(warrant)
    return start + key.sign(start + body) + body


def verify(packet: bytes, public_key: bytes, start: bytes = WARRANT) -> Warrant:
    """The warrant in `packet`, if the access point, or the person, with this key has signed it. Raises BadWarrant."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    at = len(start) + SIGNATURE_BYTES
    if len(packet) > MAX_BYTES or len(packet) <= at or not packet.startswith(start):
        raise BadWarrant("this is no warrant of a version that is known here")
    if len(public_key) != KEY_BYTES:
        raise BadWarrant("the job's access point has no key, or had none when the job was submitted")
    signature, body = packet[len(start) : at], packet[at:]
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, start + body)
    except (InvalidSignature, ValueError):
        who = "the job's access point" if start == WARRANT else "the person whose key it names"
        raise BadWarrant(f"{who} has not signed this") from None
    warrant = _decoded(body)
    _check_shape(warrant)
    return warrant


class Acceptance:
    """What a node takes: warrants for the run that is meant, at their time, each once."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970. What holds from EARLY_SECONDS after now on no predecessor has taken."""
        self._clock = clock
        self._started = clock()
        self._taken: dict[bytes, str] = {}  # nonce -> whose: see _whose
        self._of_user: Counter[str] = Counter()
        self._by_end: list[tuple[int, bytes]] = []  # a heap
        self._forgotten = 0  # the latest end of a warrant that is not remembered any more

    def take(self, warrant: Warrant, meant: Meant, whose: str = "") -> None:
        """Takes it, for good. `whose` it is, if its signer is none who vouches for others. Raises BadWarrant."""
        for what, said, wanted in (
            ("run", warrant.run, meant.run),
            ("node", warrant.node, meant.node),
            ("user", warrant.user, meant.user),
        ):
            if not wanted or said != wanted:
                raise BadWarrant(f"this is for another {what}: {printable(said, 100)}")
        now = self._clock()
        self._check_time(warrant, now)
        self._forget(int(now * 1000))
        if warrant.nonce in self._taken or warrant.ends <= self._forgotten:
            raise BadWarrant("this has been taken before")
        if len(self._taken) >= MAX_REMEMBERED:
            raise BadWarrant("this node has taken too many commands in a minute: try again")
        whose = whose or _whose(warrant)
        if self._of_user[whose] >= REMEMBERED_OF_A_USER:
            raise BadWarrant("this node has taken too many of your commands in a minute: try again")
        self._taken[warrant.nonce] = whose
        self._of_user[whose] += 1
        heapq.heappush(self._by_end, (warrant.ends, warrant.nonce))

    def _check_time(self, warrant: Warrant, now: float) -> None:
        begins, ends = warrant.begins / 1000, warrant.ends / 1000
        if begins > now + EARLY_SECONDS:
            raise BadWarrant(f"this is valid in {begins - now:.0f} s: the node's clock or the access point's is wrong")
        if now >= ends:
            raise BadWarrant(f"this is {now - ends:.0f} s too old: it came late, or a clock is wrong")
        if begins < self._started + EARLY_SECONDS:  # a predecessor may have taken it early
            raise BadWarrant("this may have been taken before joblensd started, a moment ago: ask again")

    def _forget(self, now: int) -> None:
        """What has run out can't come again: if the clock is set back, nothing is taken that ends before it did."""
        while self._by_end and self._by_end[0][0] <= now:
            ends, nonce = heapq.heappop(self._by_end)
            whose = self._taken.pop(nonce)
            self._of_user[whose] -= 1
            if not self._of_user[whose]:
                del self._of_user[whose]
            self._forgotten = ends


def _whose(warrant: Warrant) -> str:
    """Against whose number it counts: its user's, or that of all others together who ask about this user's jobs.

    Their names are not told apart: who has the access point's key can write any.
    """
    is_his_own = warrant.by == warrant.user or warrant.by.endswith(BY_PROOF)
    return warrant.user if is_his_own else f"others for {warrant.user}"


def _check_shape(warrant: Warrant) -> None:
    if len(warrant.sealing_key) != KEY_BYTES or len(warrant.nonce) != NONCE_BYTES:
        raise BadWarrant("its sealing key or its nonce has another length")
    if not 0 < warrant.ends - warrant.begins <= MAX_SECONDS * 1000:
        raise BadWarrant(f"a warrant holds for {MAX_SECONDS} s at most")
    texts = (warrant.user, warrant.by, warrant.run, warrant.node, warrant.verb)
    if not all(0 < len(text) <= _MAX_TEXT and text.isprintable() for text in texts):
        raise BadWarrant("a text of it is empty, too long, or not printable")


def _encoded(warrant: Warrant) -> bytes:
    if set(_FIELDS) & set(warrant.arguments):
        raise BadWarrant("an argument has the name of a field")
    values = (
        warrant.user.encode(), warrant.by.encode(), warrant.run.encode(), warrant.node.encode(),
        warrant.sealing_key, warrant.nonce, _TIME.pack(warrant.begins), _TIME.pack(warrant.ends),
    )  # fmt: skip
    return frames.encode_words(warrant.verb, {**dict(zip(_FIELDS, values)), **dict(sorted(warrant.arguments.items()))})


def _decoded(body: bytes) -> Warrant:
    try:
        words = frames.decode_words(body)
        given = [words.fields.pop(name) for name in _FIELDS]
        user, by, run, node = (value.decode() for value in given[:4])
        warrant = Warrant(
            user, by, run, node, words.word, words.fields, given[4], given[5],
            _TIME.unpack(given[6])[0], _TIME.unpack(given[7])[0],
        )  # fmt: skip
        is_canonical = _encoded(warrant) == body
    except (FrameError, KeyError, UnicodeError, struct.error) as error:
        raise BadWarrant(f"its body makes no sense ({type(error).__name__})") from None
    if not is_canonical:
        raise BadWarrant("its body is not encoded as a warrant's is")
    return warrant
