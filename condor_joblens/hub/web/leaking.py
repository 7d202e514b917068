"""Running jobs whose memory leaks, by the definition that nodes have too (analysis/leaks.py), over hours.

A node looks at the last ten minutes, and has a job's limit at once. Here a job is called after two windows. Of one
that has run for longer, all of LOOKED_AT is asked: so a slow leak is found, and a warm-up is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from condor_joblens.analysis.leaks import FEWEST, HOUR, fit, leaks, mean
from condor_joblens.hub.store.schema import READING_SECONDS, READINGS
from condor_joblens.hub.web import states
from condor_joblens.hub.web.reads import Reader

WINDOW = 1.5 * HOUR
LOOKED_AT = 6 * HOUR
"""Seconds: a job is called after two windows, by its readings of this time at most."""

MOST_ASKED = 20_000
"""Runs that are looked at: those whose memory has grown fastest."""

MOST = 500
"""That are shown; those that will be at their limit first."""

_PLACES = int(LOOKED_AT / READING_SECONDS) + 1
_CORRELATED = 0.25
"""What is less has no slope of three standard errors, with as many readings as there are."""

_ANON = "ifNull(Memory.CgroupAnonBytes, Memory.AnonBytes)"


def leaking(reader: Reader) -> dict[str, Any]:
    """Those that the viewer may see, with growth and hours to the limit. Raises JobLensError."""
    rows = _asked(reader)
    found = sorted(judged(rows), key=lambda one: (one["hours"] is None, one["hours"], -one["share"], one["Run"]))
    jobs = {job["Run"]: job for job in reader.jobs_named([one["Run"] for one in found[:MOST]])}
    return {
        "jobs": [{**jobs[one["Run"]], **one} for one in found[:MOST] if one["Run"] in jobs],
        "count": len(found),
        "is_cut": len(rows) == MOST_ASKED,
        "time": reader.now,
    }


def judged(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those that leak: growth in bytes and shares of their memory an hour, and hours to the limit (None: no limit).

    rows: `Times` (seconds), `Sizes` (bytes) in the same order, `Held` and `Limit` in bytes (Limit None: there is none).
    """
    shape = (len(rows), _PLACES)
    times: np.ndarray = np.zeros(shape)
    values: np.ndarray = np.zeros(shape)
    used: np.ndarray = np.zeros(shape, bool)
    room: np.ndarray = np.full(len(rows), np.inf)
    for place, row in enumerate(rows):
        ordered = sorted(dict(zip(row["Times"], row["Sizes"])).items())[-_PLACES:]  # one that came twice is one
        count = len(ordered)
        times[place, :count], values[place, :count] = np.array(ordered).T
        used[place, :count] = True
        if row["Limit"]:
            room[place] = max(0.0, row["Limit"] - row["Held"])
    leak = np.flatnonzero(leaks(times, values, used, room))
    slope, _ = fit(times[leak], values[leak], used[leak])
    return [
        {
            **{"Run": rows[place]["Run"], "bytes_per_hour": float(each) * HOUR},
            "share": float(each) * HOUR / level if level else 0.0,
            "hours": float(room[place] / each / HOUR) if np.isfinite(room[place]) else None,
        }
        for place, each, level in zip(leak, slope, mean(values[leak], used[leak]))
    ]


def _asked(reader: Reader) -> list[dict[str, Any]]:
    """Readings of the runs that have some of two windows, and may have grown.

    Without FINAL, which would take most of the time: readings that came twice are left for `judged`.
    """
    since = reader.now - LOOKED_AT
    live = (
        f"SELECT Run, Node, RunNumber, ifNull({_ANON}, 0) + ifNull(Memory.CgroupKernelBytes, 0) AS Has, "
        f"ifNull(Memory.LimitBytes, RequestMemoryBytes) AS Most FROM {reader.live} "
        f"WHERE {states.running(reader.now)} AND StartTime < {reader.now - 2 * WINDOW} AND {reader.scope}"
    )
    return reader.ask(
        "SELECT Run, any(Has) AS Held, any(Most) AS Limit, groupArray(Time) AS Times, groupArray(Bytes) AS Sizes, "
        f"covarPop(Time - {since}, Bytes) / varPop(Time - {since}) AS Slope "
        f"FROM (SELECT Run, Node, RunNumber, Time, Bytes FROM {READINGS.name} WHERE Time > {since}) AS r "
        f"INNER JOIN ({live}) AS l USING (Run, Node, RunNumber) GROUP BY Run, Node, RunNumber "
        f"HAVING count() >= {FEWEST} AND max(Time) - min(Time) > {2 * WINDOW - 2 * READING_SECONDS} "
        f"AND corr(Time - {since}, Bytes) > {_CORRELATED} ORDER BY Slope DESC LIMIT {MOST_ASKED}"
    )
