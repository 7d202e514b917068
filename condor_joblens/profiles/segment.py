"""What the reader of samples makes of a minute: the profile in pprof's format, with what the job's ad says in front.

joblensd takes it apart without looking into the profile, which is made of names that a job chose. The sentence is the
comment that a gzip file can have (RFC 1952), so that all of it still is what pprof reads.
"""

from __future__ import annotations

from condor_joblens.common.errors import printable

MOST_SENTENCE = 400
"""Characters of printable ASCII."""

_HEAD_BYTES, _FLAGS = 10, 3
_BEGIN = b"\x1f\x8b\x08"
_COMMENT = 0x10


def joined(hottest: str, packed: bytes) -> bytes:
    """The profile with the hottest functions in words; `packed` has no comment yet."""
    said = printable(hottest, MOST_SENTENCE).encode("ascii")
    head = packed[:_FLAGS] + bytes([packed[_FLAGS] | _COMMENT]) + packed[_FLAGS + 1 : _HEAD_BYTES]
    return head + said + b"\0" + packed[_HEAD_BYTES:]


def hottest_of(segment: bytes) -> str:
    """The hottest functions in words, fit to print. Raises ValueError if this is no profile with such a comment."""
    end = segment.find(b"\0", _HEAD_BYTES, _HEAD_BYTES + MOST_SENTENCE + 1)
    if not segment.startswith(_BEGIN) or segment[_FLAGS : _FLAGS + 1] != bytes([_COMMENT]) or end < 0:
        raise ValueError("no profile: it begins with something else")
    return printable(segment[_HEAD_BYTES:end].decode("latin-1"), MOST_SENTENCE)
