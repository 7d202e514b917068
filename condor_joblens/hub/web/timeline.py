"""A job's life on one axis: submitted, its runs, levels, deaths and progress, as far as records tell of it.

No record tells when a job was matched, when its files were transferred, and when it was held: the page says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.who_sees import Seen

MOST_RUNS = 50
MOST_EVENTS = 200
MOST_WORDS = 200
"""Characters that are told of one event."""

_LATE = 600.0
"""Seconds before the first numbers and after the last ones in which events of a job may lie."""

_BEGIN = "if(StartTime > 0 AND StartTime <= UpdateTime, StartTime, UpdateTime)"
"""A node may say no start, or one that can't be: then the run is known from its newest record on."""

UNKNOWN = ("match", "file transfers", "holds and releases")
"""What no record of a node tells, but the steps that an access point sends."""

_KINDS: Mapping[str, tuple[str, str, Seen]] = {
    "Level": ("level", "Reason", Seen.WORDS),
    "Oom": ("out of memory", "Program", Seen.WORDS),
    "Death": ("death", "Reason", Seen.WORDS),
    "Hang": ("hang", "HangCause", Seen.NUMBERS),
    "Trigger": ("trigger", "Message", Seen.WORDS),
    "Traceback": ("traceback", "Exception", Seen.WORDS),
}
"""A kind of events -> what it is called here, and which of its fields says more, to whom that is to be read."""


def timeline(reader: Reader, job: Mapping[str, Any], *, has_steps: bool = False) -> dict[str, Any]:
    """Of the job that `Reader.job` gave; `has_steps`: its access point tells its steps. Raises JobLensError."""
    runs = reader.ask(
        f"SELECT Run AS run, min({_BEGIN}) AS begin, max(UpdateTime) AS end, argMax(Node, UpdateTime) AS node, "
        "argMax(Level, UpdateTime) AS level, max(Type = 'job') AS is_over FROM latest FINAL "
        f"WHERE GlobalJobId = {{job:String}} AND {reader.scope} GROUP BY Run ORDER BY begin LIMIT {MOST_RUNS}",
        job=job["GlobalJobId"],
    )
    seen = reader.seen(job)
    begin, end = min(run["begin"] for run in runs), max(run["end"] for run in runs)
    marks = _events(reader, job, begin - _LATE, end + _LATE, seen)
    marks += _progress(reader, job) if Seen.WORDS in seen else []
    marks += [{"time": run["begin"], "kind": "start", "words": f"on {run['node']}"} for run in runs]
    marks += [{"time": run["end"], "kind": "end", "words": f"on {run['node']}"} for run in runs if run["is_over"]]
    submitted = _submitted(job["GlobalJobId"], begin)
    if submitted is not None:
        marks.append({"time": submitted, "kind": "submit", "words": ""})
    marks.sort(key=lambda mark: (mark["time"], _ORDER.get(mark["kind"], 1)))
    first = begin if submitted is None else submitted
    unknown = () if has_steps else UNKNOWN if submitted is not None else ("submission", *UNKNOWN)
    return {
        "begin": first,
        "end": max(end, *(mark["time"] for mark in marks)),
        "runs": [{**run, "is_over": bool(run["is_over"])} for run in runs],
        "marks": marks,
        "unknown": list(unknown),
    }


_ORDER = {"submit": -2, "start": -1, "end": 2}


def _submitted(name: str, begin: float) -> float | None:
    """When the job was submitted: it ends its GlobalJobId. None: that is no time before its first run."""
    last = name.rpartition("#")[2]
    moment = float(last) if last.isascii() and last.isdecimal() and len(last) < 12 else 0.0
    return moment if 0 < moment <= begin + _LATE else None


def _events(
    reader: Reader, job: Mapping[str, Any], begin: float, end: float, seen: frozenset[Seen]
) -> list[dict[str, Any]]:
    """Of nodes that tell of the job. Lengths are bounded by the store: `Whole` is what a node has sent."""
    told = f"SELECT Node FROM latest WHERE GlobalJobId = {{job:String}} AND {reader.scope}"
    rows = reader.ask(
        "SELECT Time AS time, Kind AS kind, substring(Whole, 1, 4000) AS whole FROM events FINAL "
        f"WHERE Node IN ({told}) AND Time > {begin} AND Time < {end} AND GlobalJobId = {{job:String}} "
        f"AND Kind IN ({', '.join(repr(kind) for kind in _KINDS)}) ORDER BY Time LIMIT {MOST_EVENTS}",
        job=job["GlobalJobId"],
    )
    found = []
    for row in rows:
        kind, field, what = _KINDS[row["kind"]]
        try:
            said = json.loads(row["whole"])
        except (ValueError, RecursionError):
            said = None
        said = said if isinstance(said, dict) else {}
        words = str(said.get(field) or "")[:MOST_WORDS] if what in seen else ""
        if row["kind"] == "Level":
            level = str(said.get("Level") or "")[:20]
            words = f"{level}: {words}" if words else level
        elif row["kind"] == "Hang" and Seen.NUMBERS in seen:
            words = f"suspected: {words}" if said.get("HangSuspected") else "over"
        found.append({"time": row["time"], "kind": kind, "words": words})
    return found


def _progress(reader: Reader, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """When a job first said each of its steps; what it says often is thinned out by the bound."""
    rows = reader.ask(
        "SELECT min(Time) AS time, Progress AS words FROM samples "
        "WHERE GlobalJobId = {job:String} AND Run = {run:String} AND Node = {node:String} AND Progress != '' "
        f"GROUP BY Progress ORDER BY time DESC LIMIT {MOST_RUNS}",
        job=job["GlobalJobId"], run=job["Run"], node=job["Node"],
    )  # fmt: skip
    return [{"time": row["time"], "kind": "progress", "words": row["words"][:MOST_WORDS]} for row in rows]
