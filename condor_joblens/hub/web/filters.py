"""Which jobs: the exact parameters of an address, for pages and programs alike, as conditions on their newest records.

What a viewer may not see of a job fits nothing, job by job: his own he finds by all that is known of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.ended import ASKED, KIND, SAID, with_code
from condor_joblens.hub.web.who_sees import Seen, seen_of

EQUAL = {"owner": "Owner", "group": "AccountingGroup", "vo": "Vo", "executable": "Executable", "node": "Node"}
"""A parameter -> the column that is to be equal."""

TEXTS: Mapping[str, str] = {
    **{name: f"{column} is this" for name, column in EQUAL.items()},
    "cluster": "the cluster, with its schedd before it: ap1.example.org#12",
    "schedd": "the schedd",
    "server": "a file server that it asked",
    "cause": "why it failed, in the words of the page Site",
}
"""A parameter that is a text -> what it says."""

TIMES: Mapping[str, str] = {
    "since": "the last numbers came then or later, epoch seconds",
    "until": "the last numbers came then or before, epoch seconds",
}
"""A parameter that is a time -> what it says."""

NAMES = (*TEXTS, *TIMES)

MOST_TEXT = 300
"""Characters of a parameter that is a text."""

_LATEST_TIME = 1e11

_EXIT = re.compile(r"exit code ([0-9]{1,9})(?:: (.*))?", re.S)


class Viewing(Protocol):
    """As much of a Reader as conditions need."""

    now: float
    oldest: float

    def sees(self, what: Seen) -> str:
        """Of which rows he may see it, as a condition."""
        ...


def exact(name: str, text: str) -> Any:
    """What a parameter of an address says. Raises WrongRequest."""
    if name in TIMES:
        try:
            moment = float(text)
        except ValueError:
            moment = math.nan
        if not 0 <= moment <= _LATEST_TIME:
            raise WrongRequest(f"{name} is a time, in seconds since 1970")
        return moment
    if len(text) > MOST_TEXT:
        raise WrongRequest(f"{name} has at most {MOST_TEXT} characters")
    return text


def conditions(reader: Viewing, asked: Mapping[str, Any]) -> tuple[list[str], dict[str, str | float]]:
    """Conditions, and the values of their parameters. asked: by the names above; None or empty: whatever it is."""
    parts: list[str] = []
    values: dict[str, str | float] = {}
    since = asked.get("since") or reader.oldest
    for name in (*TEXTS, *TIMES):
        value = asked.get(name)
        if value not in (None, ""):
            text, more = _MADE[name](reader, name, value, since) if name in _MADE else _equal(reader, name, str(value))
            parts.append(text)
            values |= more
    return parts, values


def _equal(reader: Viewing, name: str, value: str) -> tuple[str, dict[str, str | float]]:
    column = EQUAL[name]
    return f"({reader.sees(seen_of(column))} AND {column} = {{equal_{name}:String}})", {f"equal_{name}": value}


def _begins(reader: Viewing, name: str, value: str, since: float) -> tuple[str, dict[str, str | float]]:
    """A cluster or a schedd: the beginning of a job's name."""
    end = "." if name == "cluster" else "#"
    return f"startsWith(GlobalJobId, {{begins_{name}:String}})", {f"begins_{name}": value + end}


def _server(reader: Viewing, name: str, value: str, since: float) -> tuple[str, dict[str, str | float]]:
    return f"({reader.sees(Seen.WORDS)} AND Servers != '' AND has({ASKED}, {{server:String}}))", {"server": value}


def _cause(reader: Viewing, name: str, value: str, since: float) -> tuple[str, dict[str, str | float]]:
    """As `ended.cause` names it: whole, or by its kind to whom the words are not to be read."""
    values: dict[str, str | float] = {"cause": value}
    whole, kinds = f"(Death != '' AND {SAID} = {{cause:String}})", f"(Death != '' AND {KIND} = {{cause:String}})"
    found = _EXIT.fullmatch(value)
    if found:
        values |= {"code": found[1], "said": found[2] or ""}
        has_code = with_code(since, "{code:Int32}")
        whole = f"({whole} OR (Death = '' AND {SAID} = {{said:String}} AND {has_code}))"
        if not found[2]:
            kinds = f"({kinds} OR (Death = '' AND {has_code}))"
    sees = reader.sees(Seen.WORDS)
    return f"(Type = 'job' AND {whole if sees == '1' else f'if({sees}, {whole}, {kinds})'})", values


def _time(reader: Viewing, name: str, value: float, since: float) -> tuple[str, dict[str, str | float]]:
    """Rows lie by the day of their Time, which is their UpdateTime: a bound below keeps older days unread.

    A bound above must not: the newest record of a run could be one that is not read.
    """
    if name == "until":
        return "UpdateTime <= {until:Float64}", {"until": value}
    return "(UpdateTime >= {since:Float64} AND Time >= {since:Float64} - 1)", {"since": value}


_MADE: Mapping[str, Callable[[Viewing, str, Any, float], tuple[str, dict[str, str | float]]]] = {
    "cluster": _begins, "schedd": _begins, "server": _server, "cause": _cause, "since": _time, "until": _time,
}  # fmt: skip
