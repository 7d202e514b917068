"""Local variables of an exception's frames, as a Python of a job tells them (hooks/python/local_variables.h).

They are the job's own word, and can be its secrets. So each value is shown as one of an environment is. Of a
variable whose name is a secret's nothing is shown, and nothing that looks like a secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from condor_joblens.common.redact import Redactor, printable

TITLE = "Local variables, of the innermost function first:"

LOOK_SECONDS = 0.02
"""CPU time for one Python's; values for which it does not suffice are not shown."""

MOST_LINES = 500

MOST_VALUE = 1300
"""Characters of a value that are looked at: a Python tells 120, each of which can be written in ten."""


def shown(lines: str) -> list[str]:
    """A title, a line for each function, and one for each of its variables, fit to print."""
    return [TITLE, *_shown(lines.split("\n")[:MOST_LINES])]


def _shown(lines: list[str]) -> Iterator[str]:
    redactor = Redactor(LOOK_SECONDS)
    for line in lines:
        kind, said = line[:1], line[1:]
        if kind == "@":
            yield f"  {printable(said)}"
        elif kind in ("=", "~"):
            name, _, value = said.partition("=")
            is_cut = kind == "~" or len(value) > MOST_VALUE
            told = redactor.variable(name, value[:MOST_VALUE].encode("utf-8", "surrogateescape"), cut=is_cut)
            yield f"    {printable(name)} = {told}"
