"""A text that a job has written into its ad, found without a parser: nothing of a user's ad is evaluated here."""

from __future__ import annotations

import re

_LITERAL = re.compile(rb'[ \t]*"([^"\\]{0,1000})"[ \t]*')


def written(ad: bytes, attribute: str) -> str | None:
    """What the ad (old ClassAd format) has as this attribute; empty if nothing, None if it is no text without escapes.

    Linear in the ad's length.
    """
    name = attribute.encode()
    if name.lower() not in ad.lower():
        return ""
    lines = re.findall(rb"^[ \t]*" + name + rb"[ \t]*=([^\r\n]*)", ad, re.MULTILINE | re.IGNORECASE)
    if not lines or lines[-1].strip().lower() == b"undefined":
        return ""
    literal = _LITERAL.fullmatch(lines[-1])  # of lines with the same name the last counts
    return None if literal is None else literal[1].decode("utf-8", "replace")
