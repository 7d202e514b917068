"""Names of functions, files and threads are the job's: what of them may be shown, and where."""

from __future__ import annotations

import html

LONGEST = 500
"""Characters of a name that are shown; a template's can be 10,000 long."""


def clean(name: str, longest: int = LONGEST) -> str:
    """`name` in one line without anything that a terminal, a browser or an editor takes for a command."""
    short = name if len(name) <= longest else name[: longest - 2] + ".."
    if short.isprintable():
        return short
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in short)


def attribute(text: str) -> str:
    """`text` as the value of an attribute in XML, with its quotes."""
    # not xml.sax.saxutils, which imports urllib.request: joblensd loads nothing that opens connections
    return f'"{html.escape(clean(text, len(text)))}"'
