"""Answers to a warrant that only who has asked can read, and only the node can have made.

The header names a key for this one answer, signed by the node's own:

    joblens-answer/1 NUL, signature (64 bytes, Ed25519), key (32 bytes, X25519, public)

The signature is over the first field, the SHA-256 of the warrant, and the key. So an answer belongs to one warrant.
Then come messages, each sealed (ChaCha20-Poly1305) with what both sides derive from this key and the warrant's sealing
key. They are counted, and the last one is known as such: none can be left out, exchanged or put between unnoticed.

Needs the package `cryptography`, as warrants.py does.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

from condor_joblens.control.warrants import KEY_BYTES, SIGNATURE_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

MAX_MESSAGE = 131072 + 64
"""Bytes of a sealed message: one of frames.MAX_ANSWER, and what sealing adds."""

HEADER_BYTES = 17 + SIGNATURE_BYTES + KEY_BYTES

_START = b"joblens-answer/1\0"
_COUNT = struct.Struct("<4xQ")  # the AEAD's nonce: the key is used for one answer only
_MORE, _LAST = b"more", b"last"


class BadAnswer(Exception):
    """Why an answer is not believed, in words for who has asked."""


class Sealer:
    """The node's side of one answer."""

    def __init__(self, warrant: bytes, sealing_key: bytes, node_key: Ed25519PrivateKey) -> None:
        """`warrant` is its packet, and `sealing_key` the one in it. Raises BadAnswer if that is no key."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        own = X25519PrivateKey.generate()
        public = own.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self.header = _START + node_key.sign(_signed(warrant, public)) + public
        """What is sent first."""
        self._aead = _aead(own, sealing_key, warrant, public, sealing_key)
        self._count = 0

    def seal(self, message: bytes, *, is_last: bool = False) -> bytes:
        """The next message as it is sent."""
        sealed = self._aead.encrypt(_COUNT.pack(self._count), message, _LAST if is_last else _MORE)
        self._count += 1
        return (_LAST if is_last else _MORE)[:1] + sealed


class Opener:
    """The side of who has asked."""

    def __init__(self, warrant: bytes, sealing_key: X25519PrivateKey, node_key: bytes) -> None:
        """`warrant` is its packet, `sealing_key` the other half of the key in it, `node_key` the node's, public."""
        self._warrant, self._sealing_key, self._node_key = warrant, sealing_key, node_key
        self._aead: ChaCha20Poly1305 | None = None
        self._count = 0
        self.is_whole = False
        """Whether the last message has come. If the answer ends before, somebody has cut it off."""

    def open(self, packet: bytes) -> bytes:
        """The message in the next packet; empty for the header. Raises BadAnswer: believe nothing after it."""
        from cryptography.exceptions import InvalidTag

        if self._aead is None:
            self._begin(packet)
            return b""
        if self.is_whole:
            raise BadAnswer("the answer goes on after its end: somebody has added to it")
        kind = {each[:1]: each for each in (_MORE, _LAST)}.get(packet[:1])
        if kind is None or len(packet) > MAX_MESSAGE:
            raise BadAnswer("a part of the answer is none of the node's")
        try:
            message = self._aead.decrypt(_COUNT.pack(self._count), packet[1:], kind)
        except InvalidTag:
            raise BadAnswer("a part of the answer was changed, left out or exchanged on the way") from None
        self._count += 1
        self.is_whole = kind == _LAST
        return message

    def _begin(self, packet: bytes) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        if len(packet) != HEADER_BYTES or not packet.startswith(_START):
            raise BadAnswer("this is no answer of a version that is known here")
        signature, public = packet[len(_START) : -KEY_BYTES], packet[-KEY_BYTES:]
        try:
            Ed25519PublicKey.from_public_bytes(self._node_key).verify(signature, _signed(self._warrant, public))
        except (InvalidSignature, ValueError):
            raise BadAnswer("the node of the job has not made this answer to this question") from None
        self._aead = _aead(self._sealing_key, public, self._warrant, public, _public(self._sealing_key))


def _signed(warrant: bytes, public: bytes) -> bytes:
    return _START + hashlib.sha256(warrant).digest() + public


def _aead(own: X25519PrivateKey, other: bytes, warrant: bytes, answers: bytes, sealing: bytes) -> ChaCha20Poly1305:
    """What both sides derive: from the keys of this answer, for this warrant alone. Raises BadAnswer."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:  # also for the few keys with which everybody would share the same
        raise BadAnswer("the key of who has asked, or of the answer, is none") from None
    info = _START + hashlib.sha256(warrant).digest()
    return ChaCha20Poly1305(HKDF(SHA256(), 32, salt=answers + sealing, info=info).derive(shared))


def _public(key: X25519PrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
