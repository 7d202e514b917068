"""Where the other jobs of a job's cluster were at the same age.

For each of its metrics that is the tenth and the ninetieth of a hundred, by equal parts of the job's age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens.hub.web.addresses import cluster_of
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.siblings import FEWEST

PARTS = 60
"""Of the age that the job's samples are of."""

MOST_RUNS = 200
"""That are compared with; of more, some are drawn, always the same."""

METRICS = {
    "Cores": "Cpu.RecentCores",
    "ResidentBytes": "Memory.ResidentBytes",
    "ReadBytes": "Io.CallReadBytes",
    "WriteBytes": "Io.CallWriteBytes",
    "SentBytes": "Tcp.SentBytes",
    "ReceivedBytes": "Tcp.ReceivedBytes",
}
"""A metric of a job's charts -> its column."""


def band(
    reader: Reader, job: Mapping[str, Any], times: Sequence[float], more: Sequence[str] = ()
) -> dict[str, Any] | None:
    """None: too few others that he may see have been so old.

    times: those of the job's samples; more: paths of metrics that it has too.
    """
    metrics = {**METRICS, **{path: path for path in more}}
    start = job["StartTime"]  # what a node says: it may be none, or no time that can be
    if not times or start is None or not 0 < start <= times[0]:
        return None
    first, last = times[0] - start, times[-1] - start
    width = max((last - first) / PARTS, 1.0)
    those = (
        "SELECT Run FROM latest FINAL WHERE startsWith(GlobalJobId, {cluster:String}) AND Run != {run:String} "
        f"AND {reader.scope} ORDER BY cityHash64(Run) LIMIT {MOST_RUNS}"
    )
    means = ", ".join(f"avg({column}) AS m{place}" for place, column in enumerate(metrics.values()))
    bounds = ", ".join(
        f"quantile(0.1)(m{place}) AS low{place}, quantile(0.9)(m{place}) AS high{place}, count(m{place}) AS n{place}"
        for place in range(len(metrics))
    )
    rows = reader.ask(
        f"SELECT part, count() AS runs, {bounds} FROM (SELECT Run, "
        f"toInt32(floor((Time - StartTime - {first}) / {width})) AS part, {means} FROM samples FINAL "
        f"WHERE startsWith(GlobalJobId, {{cluster:String}}) AND Run IN ({those}) AND ifNull(Process.Live, 1) > 0 "
        f"GROUP BY Run, part) WHERE part BETWEEN 0 AND {PARTS} GROUP BY part HAVING runs >= {FEWEST} ORDER BY part",
        cluster=f"{cluster_of(job['GlobalJobId'])}.", run=job["Run"],
    )  # fmt: skip
    if not rows:
        return None
    return {
        "time": [start + first + width * (row["part"] + 0.5) for row in rows],
        "runs": max(row["runs"] for row in rows),
        **{
            name: {
                word: [row[f"{word}{place}"] if row[f"n{place}"] >= FEWEST else None for row in rows]
                for word in ("low", "high")
            }
            for place, name in enumerate(metrics)
        },
    }
