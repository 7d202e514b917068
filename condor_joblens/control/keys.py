"""Keys (Ed25519): an access point's or a person's, to sign warrants, and a node's, by which it signs answers.

Needs the package `cryptography`, as warrants.py does.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from typing import TYPE_CHECKING

from condor_joblens.common.errors import JobLensError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES = 32
_KIND = "ed25519:"


def key_at(path: str) -> Ed25519PrivateKey:
    """The key in this file of our own, which is made if it is missing. Raises JobLensError, ImportError."""
    try:
        with contextlib.suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "wb") as new:
                new.write(os.urandom(KEY_BYTES))
    except OSError as error:
        raise JobLensError(f"{path}: {error.strerror}") from None
    return known_key(path)


def known_key(path: str) -> Ed25519PrivateKey:
    """The key in this file of our own. Raises JobLensError, also if it is missing, and ImportError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as known:
            status, seed = os.fstat(known.fileno()), known.read(KEY_BYTES + 1)
    except OSError as error:
        raise JobLensError(f"{path}: {error.strerror}") from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise JobLensError(f"{path} is not its owner's alone: chmod 600, or remove it for a new key")
    if len(seed) != KEY_BYTES:
        raise JobLensError(f"{path} is no key: remove it for a new one")
    return Ed25519PrivateKey.from_private_bytes(seed)


def public_half(key: Ed25519PrivateKey) -> bytes:
    """KEY_BYTES bytes."""
    from cryptography.hazmat.primitives import serialization

    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def text_of(public: bytes) -> str:
    """A public key as text in an ad: `ed25519:` and base64."""
    return _KIND + base64.b64encode(public).decode()


def key_in(text: object) -> bytes:
    """The public key in such a text; empty if it is none."""
    if not isinstance(text, str) or not text.startswith(_KIND):
        return b""
    try:
        key = base64.b64decode(text[len(_KIND) :], validate=True)
    except (binascii.Error, ValueError):
        return b""
    return key if len(key) == KEY_BYTES else b""
