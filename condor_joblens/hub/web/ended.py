"""Runs that are over, one row each: what their last records say, with their exit codes and why they failed.

A last record may be corrected: the next one has the same run and a greater Sequence. The newest counts, and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens.hub.web.failures import kind

HAS_FAILED = "(Death != '' OR Code > 0)"
"""Of a run that is over, beside its exit code."""

CLUSTER = "concat(splitByChar('#', GlobalJobId)[1], '#', splitByChar('.', JobId)[1])"
"""ap1#12: a number of a cluster is one schedd's."""

ASKED = "arrayMap(x -> JSONExtractString(x, 'Name'), JSONExtractArrayRaw(Servers))"
"""The names of the file servers of a run."""

SAID = "if(Cause != '', Cause, if(Death != '', Death, FirstFailure))"
"""Why it failed; of rows that are older than the column Cause, with all that differs from run to run."""

KIND = (
    f"multiIf(startsWith({SAID}, 'out of memory'), 'out of memory', match({SAID}, '^exit code [0-9]+'), "
    f"extract({SAID}, '^exit code [0-9]+'), extract({SAID}, '\\\\b(SIG[A-Z0-9]+)\\\\b') != '', "
    f"extract({SAID}, '\\\\b(SIG[A-Z0-9]+)\\\\b'), 'another cause')"
)
"""`failures.kind` of a run that died, as the store reckons it."""

_LATE = 600.0
"""Seconds between a run's last record and the event with its exit code, which comes before it or after."""

_KEY = "Run, Node, RunNumber"


def last_records(columns: str, where: str) -> str:
    """The newest last record of each run that fits, as a table of a question."""
    return f"(SELECT {columns} FROM jobs FINAL WHERE {where} ORDER BY Sequence DESC LIMIT 1 BY {_KEY})"


def with_codes(columns: str, since: float, where: str) -> str:
    """The same of those since then (epoch seconds), with the column Code: NULL, or an exit code but 0."""
    ends = f"SELECT {_KEY}, toNullable(ExitCode) AS Code FROM failed_ends FINAL WHERE Time > {since - _LATE}"
    rows = last_records(f"{_KEY}, {columns}", f"Time > {since} AND {where}")
    return f"(SELECT {_KEY}, {columns}, Code FROM {rows} AS j LEFT ANY JOIN ({ends}) AS e USING ({_KEY}))"


def with_code(since: float, code: str = "") -> str:
    """The condition that a run has ended with an exit code but 0 since then. code: a parameter, which it is then."""
    which = f" AND ExitCode = {code}" if code else ""
    return f"({_KEY}) IN (SELECT {_KEY} FROM failed_ends FINAL WHERE Time > {since - _LATE}{which})"


def cause(row: Mapping[str, Any]) -> str:
    """In words that its viewer may read. row: with Died, Said, Code, and Readable, whether he may read all of them."""
    if row["Died"]:
        words = str(row["Said"])
    else:
        words = f"exit code {row['Code']}"
        words = f"{words}: {row['Said']}" if row["Said"] else words
    return words if row["Readable"] else kind(words)


def cause_columns(readable: str) -> str:
    """The columns that `cause` needs, of rows with SAID's. readable: whether he may read the words, as a condition."""
    return f"Death != '' AS Died, {SAID} AS Said, {readable} AS Readable"


def by_cause(rows: Sequence[Mapping[str, Any]], most: int) -> list[dict[str, Any]]:
    """Counts by cause, the most frequent first, each with an example. rows: also with n, and of one run: run, job."""
    counts: Counter[str] = Counter()
    examples: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        named = cause(row)
        counts[named] += row["n"]
        examples.setdefault(named, row)
    return [
        {"cause": named, "count": count, "example_run": examples[named]["run"], "example_job": examples[named]["job"]}
        for named, count in counts.most_common(most)
    ]
