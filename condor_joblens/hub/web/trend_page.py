"""What the page of trends is asked for, and how its sums are shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from condor_joblens.hub.web import filters
from condor_joblens.hub.web.addresses import jobs_url, node_url
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.bars import HEIGHT, WIDTH, bars
from condor_joblens.hub.web.health import moment, size
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.trends import BY, COLUMNS, DAYS, SORTS, Asked, sorted_rows

SHOWN = 100
"""Rows of a page; its CSV and its JSON have all."""

_DEEPER = {"owner": "node", "group": "owner", "vo": "owner", "node": "owner", "schedd": "owner"}
"""By what the sums of one are, if somebody wants to know more of it."""

_HEADS = {"runs": "Jobs", "failed": "Failed", "share": "Share", "asked": "Core hours", "unused": "Not used"}


def asked_trends(given: Any) -> Asked:
    """By an address. Raises WrongRequest."""
    by, sort, days = given.get("by", "owner"), given.get("sort", "unused"), given.get("days", "7")
    if by not in BY:
        raise WrongRequest(f"by is one of {', '.join(BY)}")
    if sort not in SORTS:
        raise WrongRequest(f"sort is one of {', '.join(SORTS)}")
    if days not in map(str, DAYS):
        raise WrongRequest(f"days is one of {', '.join(map(str, DAYS))}")
    only = tuple((name, filters.exact(name, given[name])) for name in COLUMNS if given.get(name))
    return Asked(by, int(days), sort, only)


def _url(asked: Asked, **other: Any) -> str:
    """Of the same, with something else."""
    words = {"by": asked.by, "days": asked.days, "sort": asked.sort, **dict(asked.only), **other}
    return "?" + urlencode({name: value for name, value in words.items() if value is not None})


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def _texts(sums: Mapping[str, Any]) -> dict[str, str]:
    return {
        **{f"{name}_text": _percent(sums[name]) for name in ("share", "efficiency", "memory_efficiency")},
        **{f"{name}_text": f"{sums[name]:,.1f}" for name in ("used", "asked", "unused")},
        "greatest_text": size(sums["greatest_bytes"]),
    }


def _dressed(sums: dict[str, Any]) -> dict[str, Any]:
    before = sums["before"]
    return {**sums, **_texts(sums), "before": before and {**before, **_texts(before)}}


def _dressed_row(asked: Asked, row: dict[str, Any]) -> dict[str, Any]:
    return {
        **_dressed(row),
        "url": _url(asked, by=_DEEPER[asked.by], **row["key"]) if all(row["key"].values()) else "",
        "node_url": node_url(row["name"]) if asked.by == "node" else "",
    }


_WHOSE = {"": "All of these", "groups": "Your jobs and your groups'", "own": "Your jobs"}
"""Over the sums of all that the viewer sees."""


def dress_trends(asked: Asked, found: dict[str, Any]) -> dict[str, Any]:
    """The words of the template."""
    steps = found["steps"]
    form = "from %H:%M UTC" if asked.days == 1 else "%Y-%m-%d"
    moments = {
        name: None if found[name] is None else moment(found[name]) for name in ("before_begin", "begin", "until")
    }
    return {
        "asked": asked,
        "moments": moments,
        "rows": [_dressed_row(asked, row) for row in found["rows"][:SHOWN]],
        "count": len(found["rows"]),
        "is_cut": found["is_cut"],
        "whole": _dressed(found["whole"]),
        "site": found["site"] and _dressed(found["site"]),
        "whose": _WHOSE[found["whose"]],
        "bys": [(by, _url(asked, by=by)) for by in BY],
        "lengths": [(days, _url(asked, days=days)) for days in DAYS],
        "chips": [(f"{name} {value}", _url(asked, **{name: None})) for name, value in asked.only],
        "heads": [(title, _url(asked, sort=name), name == asked.sort) for name, title in _HEADS.items()],
        "here": _url(asked),
        "bars": bars(
            [(step["runs"], step["failed"]) for step in steps],
            [time.strftime(form, time.gmtime(step["begin"])) for step in steps],
            [
                jobs_url("ended", **dict(asked.only), since=float(step["begin"]), until=float(step["until"]))
                for step in steps
            ],
        ),
        "step_rows": [
            {**step, **_texts(step), "begin_text": time.strftime(form, time.gmtime(step["begin"]))} for step in steps
        ],
        "width": WIDTH * len(steps),
        "height": HEIGHT,
    }


def table_of_trends(reader: Reader, asked: Asked) -> list[dict[str, Any]]:
    """A line each, with what it was before: for a spreadsheet."""
    found = []
    for row in sorted_rows(reader, asked):
        flat = {name: value for name, value in row.items() if name not in ("key", "before", "name")}
        before = {f"before_{name}": value for name, value in (row["before"] or {}).items()}
        found.append({**row["key"], **flat, **before})
    return found
