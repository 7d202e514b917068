"""The one exception that reaches a person, and how text from strangers is made fit to print."""

from __future__ import annotations

import re


class JobLensError(Exception):
    """What went wrong, in one line that names the thing, its value and the remedy."""


class UsageError(JobLensError):
    """The arguments of a command make no sense, whatever the machine and its jobs are like."""


class Refusal(JobLensError):
    """Whoever could have done it has said no, and why."""


def printable(text: str, limit: int = 80) -> str:
    """`text` as one line of printable ASCII of at most `limit` characters: safe in a log, an ad and a terminal.

    What is fit to print is left alone, backslashes too: a text that comes here twice is the same as after once.
    """
    escaped = re.sub(r"[^ -~]+", lambda strange: strange[0].encode("unicode_escape").decode("ascii"), text)
    return escaped if len(escaped) <= limit else escaped[: limit - 3] + "..."
