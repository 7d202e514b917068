"""A row of the double buffer -> the nested ClassAd `JobLensUsage` of a job or slot ad.

Both of HTCondor's parsers read the text. The old syntax is read from .update.ad and from a startd cron job, the new one
wherever a program parses an ad as such. They disagree about a backslash within a string: the old one takes it
literally, unless a quote follows. So a backslash is written before a quote only.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Union

import numpy as np

from condor_joblens.model.death_causes import BY_HTCONDOR
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import AD_GROUPS, FIELDS, METRICS, SCHEMA, SINGLE, Metric, empty_rows
from condor_joblens.publish import endpoint_ads, server_ads
from condor_joblens.publish.shortening import ENDPOINT, SERVERS, Draft, Entry, shorten

LIMIT = 2048
"""Greatest length of an ad in bytes. The schedd keeps one for every running job in memory and in its log."""

LIMIT_IO = 4096
"""The same from level io on."""

_GREATEST = 1e300  # an infinity would be read as the name of an attribute
_ONLY_COUNTED = ("Errors",)  # groups of which a number of 0 says nothing that its absence does not
_BYTES_A_CALL = 65536  # that weigh as much as a call where classes are compared
_DECIMALS = {"seconds": 6, "cores": 3, "hours": 2, "value": 6}

_SINGLES = empty_rows(0)[SINGLE].dtype
"""A row without its lists: to make this of a row's type takes as long as to write an ad."""

_COLUMN = {name: position for position, name in enumerate(SINGLE)}
_LEVEL = _COLUMN["level_number"]
_PLAIN = dict.fromkeys((*range(32), 127, ord("\\")), "?")
_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4})")
"""A character as redact.printable writes it."""


def quote(value: str) -> str:
    """`value` as a string literal that both syntaxes read alike, of ASCII alone.

    A question mark takes the place of a backslash, of what is not printable ASCII, and of an escape of it. The two
    syntaxes would read them differently, or they would fool the terminal that shows them.
    """
    return _quoted(_plain(value))


def _plain(value: str) -> str:
    return _ESCAPE.sub("?", value).encode("ascii", "replace").decode().translate(_PLAIN)


def _quoted(plain: str) -> str:
    return '"' + plain.replace('"', '\\"') + '"'


def usage_ads(rows: np.ndarray) -> list[str]:
    """The ads of `rows`, shape (n,): each like `[Schema=1;Run="...";...;Cpu=[Seconds=1.5;...];...]`.

    Of at most LIMIT bytes, from level io on LIMIT_IO. An ad lacks what its row doesn't know, and each group of
    which nothing is known. Classes of calls and file systems that are not in use are left out too. If there is no room
    for everything, shortening.py chooses, and the ad says `Shortened=true`.
    """
    endpoints, servers = endpoint_ads.lists(rows["endpoints"]), server_ads.lists(rows["servers"])
    return [
        _ad(values, {ENDPOINT: of_network, SERVERS: of_files})
        for values, of_network, of_files in zip(rows.view(_SINGLES).tolist(), endpoints, servers)
    ]


_ENDED = (
    "EnteredCurrentStatus<=UpdateTime+60?"
    'JobStatus=?=3?strcat("removed by the schedd: ",RemoveReason?:"no reason given"):'
    'JobStatus=?=5?strcat("held by the schedd: ",HoldReason?:"no reason given"):undefined:undefined'
)
"""Evaluated in the job's own ad: absent where it was evicted and is to run again. A minute for clocks that differ."""

_Writer = Callable[[Any], str]  # a column's value, or those of a class -> `Name=value;`, or nothing where not known


def _text(name: str) -> _Writer:
    return lambda value: f"{name}={quote(value.decode('utf-8', 'replace'))};" if value else ""


def _boolean(name: str) -> _Writer:
    return lambda value: f"{name}={'true' if value else 'false'};"


def _integer(name: str) -> _Writer:
    return lambda value: f"{name}={value};" if value >= 0 else ""


def _counted(name: str) -> _Writer:
    return lambda value: f"{name}={value};" if value > 0 else ""


def _real(name: str, decimals: int) -> _Writer:
    # never without its point: an integer would make a user's division an integer's
    return lambda value: f"{name}={round(value, decimals)!r};" if 0 <= value <= _GREATEST else ""


def _death(value: bytes) -> str:
    """Which of the ways in which HTCondor ends a job it was, the schedd knows: it evaluates this where it is read."""
    return f"Death={_ENDED};" if _is_told_elsewhere(value) else _text("Death")(value)


def _is_told_elsewhere(death: bytes) -> bool:
    return death.startswith(BY_HTCONDOR.encode())


def _field_writer(name: str, type: str) -> _Writer:
    if name == "Death":
        return _death
    if type.startswith("S"):
        return _text(name)
    if type == "f8":
        return _real(name, _DECIMALS["seconds"])
    return _boolean(name) if type == "?" else _integer(name)


_FIELD_WRITERS = [
    (field.attribute, _COLUMN[field.name], _field_writer(field.attribute, field.type))
    for field in FIELDS
    if field.attribute and not field.group
]


def _metric_writer(metric: Metric) -> _Writer:
    if metric.is_float:
        return _real(metric.name, _DECIMALS[metric.unit])
    return _counted(metric.name) if metric.group in _ONLY_COUNTED else _integer(metric.name)


def _member(name: str, writers: Sequence[_Writer]) -> _Writer:
    """Writes a class of a group where any of its numbers is more than 0."""

    def write(values: Sequence[Any]) -> str:
        # most classes are 0, or absent: that is seen without a look at each of their numbers, as Python does it
        if not any(values) or max(values) <= 0 or not any(value > 0 for value in values):
            return ""
        body = "".join([write(value) for write, value in zip(writers, values)])
        return f"{name}=[{body[:-1]}];" if body else ""

    return write


_Place = Union[int, slice]


def _group_writers(group: str) -> list[tuple[_Place, _Writer]]:
    writers: list[tuple[_Place, _Writer]] = []
    metrics = [metric for metric in METRICS if metric.group == group]
    for member, found in itertools.groupby(metrics, lambda metric: metric.member):
        own = list(found)
        first = _COLUMN[own[0].column]
        each = [_metric_writer(metric) for metric in own]
        if member:
            writers.append((slice(first, first + len(own)), _member(member, each)))
        else:
            writers += [(first + position, write) for position, write in enumerate(each)]
    of_group = [field for field in FIELDS if field.group == group and field.attribute]
    writers += [(_COLUMN[field.name], _field_writer(field.attribute or "", field.type)) for field in of_group]
    return writers


_GROUP_WRITERS = [(group, _group_writers(group)) for group in AD_GROUPS]


_UNITS = {_COLUMN[metric.column]: _BYTES_A_CALL if metric.unit == "bytes" else 1 for metric in METRICS}


_Lists = dict[str, list[tuple[str, int]]]  # attribute -> ads, and the bytes that each carried


def _ad(values: Sequence[Any], lists: _Lists) -> str:
    parts = [f"[Schema={SCHEMA};"]
    parts += [write(values[column]) for _, column, write in _FIELD_WRITERS]
    for group, writers in _GROUP_WRITERS:
        body = "".join([write(values[place]) for place, write in writers])
        if body:
            parts += group, "=[", body[:-1], "];"
    parts += [f"{name}={{{','.join([ad for ad, _ in listed])}}};" for name, listed in lists.items() if listed]
    text = "".join(parts)[:-1] + "]"
    limit = LIMIT if values[_LEVEL] < Level.IO else LIMIT_IO
    return text if len(text) <= limit else shorten(_draft(values, lists), limit)


def _draft(values: Sequence[Any], lists: _Lists) -> Draft:
    """The same ad in pieces that can be left out."""
    head, texts = [f"Schema={SCHEMA};Shortened=true;"], {}
    for attribute, column, write in _FIELD_WRITERS:
        value = values[column]
        if isinstance(value, bytes) and not (attribute == "Death" and _is_told_elsewhere(value)):
            texts[attribute] = _plain(value.decode("utf-8", "replace"))
        else:
            head.append(write(value))
    groups = {
        group: [Entry(write(values[place]), _weight(group, values, place)) for place, write in writers]
        for group, writers in _GROUP_WRITERS
    }
    for name, listed in lists.items():
        groups[name] = [Entry(f"{ad},", size) for ad, size in listed]
    return Draft("".join(head), texts, groups, _quoted)


def _weight(group: str, values: Sequence[Any], place: _Place) -> float:
    """How much there is in a class, to compare it with others of its group; a number of no class outweighs them."""
    if isinstance(place, int):
        return float(values[place]) if group in _ONLY_COUNTED else math.inf
    columns = range(place.start, place.stop)
    return sum((values[column] / _UNITS[column] for column in columns if values[column] > 0), 0.0)
