"""The one exception that reaches a person, and how text from strangers is made fit to print."""

from __future__ import annotations


class JobLensError(Exception):
    """What went wrong, in one line that names the thing, its value and the remedy."""


def printable(text: str, limit: int = 80) -> str:
    """`text` as one line of printable ASCII of at most `limit` characters: safe in a log, an ad and a terminal."""
    escaped = text.encode("unicode_escape").decode("ascii")
    return escaped if len(escaped) <= limit else escaped[: limit - 3] + "..."
