"""Job ads from wherever a person has them, as bytes in the old format: a line an attribute.

Nothing is evaluated here: that is for the policy child.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from condor_joblens.common.condor_commands import EXPRESSION
from condor_joblens.common.errors import JobLensError

MAX_AD = 1 << 20  # bytes of one that a policy is asked about
MAX_PIECE = 16 << 20  # bytes of one in a file
CHUNK = 1 << 20

_BANNER = re.compile(rb"(?:^|\n)\*\*\*[^\n]*\n|\n\n")
_AFTER_AD = re.compile(rb"\n\}[ \t\r]*(?=\n|$)")

_EXPRESSION = EXPRESSION, ")/"


def ads(stream: BinaryIO) -> Iterator[bytes]:
    """The ads in the output of `-l` or `-json`, a file of history, or a .job.ad, one at a time.

    Raises JobLensError where it is neither.
    """
    chunks = iter(lambda: stream.read(CHUNK), b"")
    head = b""
    for chunk in chunks:
        head += chunk
        if head.strip():
            break
    pieces = _chained(head.lstrip(), chunks)
    yield from _json_ads(pieces) if head.lstrip()[:1] in (b"[", b"{") else _long_ads(pieces)


def _long_ads(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Ads with a blank line between them (-l), or with a line of *** after each (a file of history)."""
    head = next(chunks)
    separate = _BANNER.split if head.startswith(b"***") or b"\n***" in head else _blank_lines
    return (ad.strip() + b"\n" for ad in _split(_chained(head, chunks), separate) if ad.strip())


def _blank_lines(text: bytes) -> list[bytes]:
    return text.replace(b"\r", b"").split(b"\n\n")


def _json_ads(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """HTCondor's tools print an array with a brace alone on a line before and after each ad; the rest is read whole."""
    pieces = _split(chunks, _AFTER_AD.split)
    first = next(pieces)
    following = next(pieces, None)
    if following is None or not first.lstrip(b"[ \t\r\n").startswith((b"{\n", b"{\r\n")):
        yield from _any_json(b"\n}".join([first, *([] if following is None else [following]), *pieces]))
        return
    for piece in _chained(first, _chained(following, pieces)):
        body = piece.lstrip(b"[, \t\r\n").rstrip()
        if body not in (b"", b"]"):
            yield _old_format(_object(body + b"\n}"))


def _split(chunks: Iterable[bytes], separate: Callable[[bytes], list[bytes]]) -> Iterator[bytes]:
    """What is between the separators; a chunk may end anywhere. Raises JobLensError where a piece has no end."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        *whole, rest = separate(rest)
        yield from whole
        if len(rest) > MAX_PIECE:
            raise JobLensError(f"an ad has more than {MAX_PIECE >> 20} MB: is it output of condor_history -l or -json?")
    yield rest


def _any_json(text: bytes) -> Iterator[bytes]:
    """One ad, or an array of them, in whatever layout."""
    found = _object(text)
    for ad in found if isinstance(found, list) else [found]:
        yield _old_format(ad)


def _object(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JobLensError(f"it looks like JSON, and is none: {error}") from None


def _old_format(ad: Any) -> bytes:
    if not isinstance(ad, dict):
        raise JobLensError("the JSON has something else than ads")
    return "".join(f"{name} = {classad(value)}\n" for name, value in ad.items() if value is not None).encode()


def classad(value: Any) -> str:
    """A value of JSON as a ClassAd expression."""
    kind = type(value)
    if kind is str:
        before, after = _EXPRESSION
        if value.startswith(before) and value.endswith(after):
            return " ".join(value[len(before) : -len(after)].split("\n"))
        return json.dumps(value, ensure_ascii=False)
    if kind is bool:
        return "true" if value else "false"
    if kind is list:
        return "{" + ", ".join(map(classad, value)) + "}"
    if kind is dict:
        return "[" + "; ".join(f"{name} = {classad(item)}" for name, item in value.items()) + "]"
    return "undefined" if value is None else repr(value)


def _chained(first: bytes, others: Iterable[bytes]) -> Iterator[bytes]:
    yield first
    yield from others
