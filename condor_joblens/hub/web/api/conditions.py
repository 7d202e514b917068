"""`where`: `Cpu.RecentCores < 0.1 and Owner = alice` as a condition of the store's, its values as parameters.

Nothing of its text becomes part of a question: columns are those of the table, and operators those below.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from condor_joblens.common.errors import printable
from condor_joblens.hub.web.api.columns import BOOLEAN, COLUMNS, TEXT, Column
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.who_sees import Seen

MOST = 8
"""Comparisons in one `where`."""

MOST_LENGTH = 500
"""Characters of it."""

_COMPARISON = re.compile(
    r"\s*(?P<column>[A-Za-z][A-Za-z0-9_.]*)\s*(?P<operator><=|>=|!=|=|<|>|~)\s*"
    r"(?:\"(?P<quoted>[^\"]*)\"|(?P<word>[^\s\"]+))\s*(?P<rest>and\b|$)"
)
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,15})?([eE][-+]?[0-9]{1,2})?")


def pattern() -> str:
    """What condition() takes, as a regular expression of JSON Schema; its length, and nothing else, it does not say."""
    number = _NUMBER.pattern
    texts, others = (
        "|".join(re.escape(one.name) for one in COLUMNS.values() if (one.type == TEXT) is is_text)
        for is_text in (True, False)
    )
    text = rf'({texts})\s*(=|!=|~)\s*("[^"]*"|[^\s"]+)'
    other = rf'({others})\s*(<=|>=|!=|=|<|>)\s*("{number}"|{number})'
    one = rf"\s*({text}|{other})\s*"
    return f"^({one}(and\\b{one}){{0,{MOST - 1}}})?$"


def condition(text: str, sees: Callable[[Seen], str]) -> tuple[str, dict[str, Any]]:
    """The condition, and its parameters' values. Raises WrongRequest.

    sees: of which rows something may be seen, as a condition. A row whose column is not to be seen fits nothing.
    """
    parts: list[str] = []
    values: dict[str, Any] = {}
    place, goes_on = 0, True
    while goes_on:
        found = _COMPARISON.match(text, place)
        if found is None:
            rest = printable(text[place : place + 40])
            raise WrongRequest(f"where can't be read at `{rest}`: write COLUMN < VALUE and COLUMN = VALUE")
        if len(parts) == MOST:
            raise WrongRequest(f"where has at most {MOST} comparisons")
        place, goes_on = found.end(), bool(found["rest"])
        column = COLUMNS.get(found["column"])
        if column is None:
            raise WrongRequest(f"there is no column {printable(found['column'][:60])}: /api/v1/schema lists them")
        name = f"w{len(parts)}"
        value = found["word"] if found["quoted"] is None else found["quoted"]
        parts.append(f"({sees(column.seen)} AND {_compared(column, found['operator'], value, name)})")
        values[name] = value
    return " AND ".join(parts), values


def _compared(column: Column, operator: str, value: str, name: str) -> str:
    """Raises WrongRequest."""
    if column.type == TEXT:
        if operator == "~":
            return f"positionCaseInsensitiveUTF8({column.name}, {{{name}:String}}) > 0"
        if operator not in ("=", "!="):
            raise WrongRequest(f"{column.name} is text: write =, != or ~ (has these letters in it)")
        return f"{column.name} {operator} {{{name}:String}}"
    if operator == "~" or not _NUMBER.fullmatch(value):
        kind = "true (1) or false (0)" if column.type == BOOLEAN else "a number"
        raise WrongRequest(f"{column.name} is {kind}: compare it with a number")
    return f"{column.name} {operator} {{{name}:Float64}}"
