"""Job ads from wherever a person has them, as bytes in the old format: a line an attribute.

Nothing is evaluated here: that is for the policy child.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from condor_joblens.errors import JobLensError

MAX_AD = 1 << 20  # bytes

_EXPRESSION = "/Expr(", ")/"  # how condor_q -json writes what is no literal


def ads(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The ads in the output of `-l` or `-json`, or in a .job.ad, one at a time: memory for one is enough.

    `-l` has blank lines between them (a file of history has lines with ***). Raises JobLensError where it is neither.
    """
    iterator = iter(lines)
    for line in iterator:
        text = line.strip()
        if text[:1] in (b"[", b"{"):
            yield from _json_ads([line], iterator)
            return
        if text:
            yield from _long_ads(line, iterator)
            return


def _long_ads(first: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    ad: list[bytes] = []
    size = 0
    for line in _chained(first, lines):
        if line.startswith(b"***") or not line.strip():
            if ad:
                yield b"".join(ad)
            ad, size = [], 0
        elif size < MAX_AD:
            ad.append(line if line.endswith(b"\n") else line + b"\n")
            size += len(line)
    if ad:
        yield b"".join(ad)


def _json_ads(head: list[bytes], lines: Iterator[bytes]) -> Iterator[bytes]:
    """HTCondor's tools print an array with a brace alone on a line around each ad; other JSON is read at one go."""
    ad: list[bytes] = []
    inside = False
    for line in _chained(head[0], lines):
        bare = line.strip().strip(b",[]").strip() if not inside or not line[:1].isspace() else b""
        if not inside and bare == b"{":
            inside, ad = True, [b"{"]
        elif inside and bare == b"}":
            inside = False
            yield _old_format(_object(b"".join(ad) + b"}"))
        elif inside:
            ad.append(line)
        elif bare:
            yield from _any_json(line + b"".join(lines))
            return
    if inside:
        raise JobLensError("the JSON ends in the middle of an ad")


def _any_json(text: bytes) -> Iterator[bytes]:
    """One ad, or an array of them, in whatever layout."""
    found = _object(text.strip().lstrip(b"[").rstrip(b"]") if text.count(b"{") == 1 else text)
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


def _chained(first: bytes, lines: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from lines
