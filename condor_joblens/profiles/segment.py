"""What the reader of samples makes of a minute: the profile in pprof's format, and before it what the job's ad says.

joblensd takes it apart without looking into the profile, which is made of names that a job chose.
"""

from __future__ import annotations

import struct

_HEAD = struct.Struct("<4sH")  # the mark, and how many bytes the sentence has
_MARK = b"JLP1"

MOST_SENTENCE = 400
"""Bytes of UTF-8."""


def joined(hottest: str, packed: bytes) -> bytes:
    """Both in one."""
    said = hottest.encode("utf-8", "replace")[:MOST_SENTENCE]
    return _HEAD.pack(_MARK, len(said)) + said + packed


def split(data: bytes) -> tuple[str, bytes]:
    """The hottest functions in words, and the profile. Raises ValueError."""
    if len(data) < _HEAD.size:
        raise ValueError("no profile: too short")
    mark, length = _HEAD.unpack_from(data)
    if mark != _MARK or length > MOST_SENTENCE or _HEAD.size + length > len(data):
        raise ValueError("no profile: it begins with something else")
    return data[_HEAD.size : _HEAD.size + length].decode("utf-8", "replace"), data[_HEAD.size + length :]
