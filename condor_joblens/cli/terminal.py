"""What a terminal can do, and lines that fit it."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "reverse": "7"}

_JOINED = "\N{NO-BREAK SPACE}"

_MOST_NAMED = 4
"""Names before a note."""

ENDLESS = 100_000
"""The width of what is no terminal: nothing is cut."""


@dataclass(frozen=True)
class Style:
    """How lines may look: their greatest width, and whether colours are wanted, and blocks (▁ to █) can be shown."""

    width: int = ENDLESS
    colour: bool = False
    blocks: bool = False

    def paint(self, text: str, *looks: str) -> str:
        """`text` in bold, dim, red, green, yellow or reverse, where colours are wanted."""
        if not (self.colour and looks):
            return text
        return f"\033[{';'.join(_COLOURS[look] for look in looks)}m{text}\033[0m"

    def fit(self, text: str) -> str:
        """`text`, cut to the width with `..` at its end where it is longer."""
        return text if len(text) <= self.width else text[: self.width - 2] + ".."

    def wrapped(self, text: str, first: str = "", other: str | None = None) -> list[str]:
        """`text` in lines of at most 110 columns.

        `first` begins the first line, `other` (blanks unless given) the next ones.
        """
        other = " " * len(first) if other is None else other
        width = max(min(self.width, 110), len(first) + 20)
        # a number and its unit stay together
        joined = re.sub(r"(?<=\d) (?=[A-Za-z%])", _JOINED, text)
        lines = textwrap.wrap(joined, width, initial_indent=first, subsequent_indent=other, break_on_hyphens=False)
        return [line.replace(_JOINED, " ") for line in lines] or [first.rstrip()]


def style(stream: TextIO | None = None) -> Style:
    """The style of `stream`, standard output unless given: colours on a terminal, and not with NO_COLOR."""
    stream = stream or sys.stdout
    blocks = (stream.encoding or "").lower().replace("-", "") == "utf8"
    if not stream.isatty():
        return Style(blocks=blocks)
    width = shutil.get_terminal_size().columns
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(width, colour, blocks)


def notes(said: Iterable[tuple[str, str]], look: Style) -> list[str]:
    """An empty line, and each note once behind the names that have it; nothing where there is none.

    `said` has pairs of a name and its note, which may be empty.
    """
    having: dict[str, list[str]] = {}
    for name, note in said:
        if note:
            having.setdefault(note, []).append(name)
    lines = []
    for note, names in having.items():
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        lines += look.wrapped(note, f"{' '.join(names[:_MOST_NAMED])}{more}: ", "  ")
    return ["", *lines] if lines else []


def bar(share: float, width: int = 20) -> str:
    """`[||||||      ]`: how much of a whole is used; a share above 1 fills it."""
    full = round(min(max(share, 0.0), 1.0) * width)
    return f"[{'|' * full}{' ' * (width - full)}]"


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], left: str, width: int = ENDLESS, spare: str = ""
) -> list[str]:
    """Lines of aligned columns, the headers first; `left` names the headers that are aligned to the left.

    Where the lines would be wider than `width`, the columns that `spare` names go, one after the other. The
    last column has no padding and may be long: a terminal cuts it, and it is sure of 10 columns. It loses
    its header where it is empty.
    """
    lines = [list(headers), *map(list, rows)]
    if not any(line[-1] for line in lines[1:]):
        lines[0][-1] = ""
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    kept = list(range(len(headers)))
    needed = [*widths[:-1], min(widths[-1], 10)]
    for name in spare.split():
        if sum(needed[i] + 2 for i in kept) - 2 <= width:
            break
        kept.remove(headers.index(name))
    to_left = [name in left.split() for name in headers]

    def line(cells: Sequence[str]) -> str:
        padded = (cells[i].ljust(widths[i]) if to_left[i] else cells[i].rjust(widths[i]) for i in kept)
        return "  ".join(padded).rstrip()

    return [line(cells) for cells in lines]
