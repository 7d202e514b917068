"""What programs ask of queues, as access points tell of them: how many jobs are in each state, and which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from condor_joblens.hub.web import filters, queue
from condor_joblens.hub.web.reads import Reader

COUNTED = (*queue.WAITS, "running", queue.UNWATCHED)
"""States whose jobs are counted; those of which no numbers come are among those that run, too."""

TEXTS = {name: filters.TEXTS[name] for name in ("owner", "group", "executable", "cause", "cluster", "schedd")}
TIMES = {
    "since": "it has been so since then or later, epoch seconds",
    "until": "it has been so since then or before, epoch seconds",
}
"""Which jobs: a parameter -> what it says."""

MOST_PAGES = 1000

ALWAYS = ("GlobalJobId", "JobId", "State", "Kind", "Time", "Slot", "Code", "ExitCode", "Signal", "Why", "IsMine")
"""Of a job; and if it may be seen:"""

MAYBE = ("Owner", "AccountingGroup", "Executable", "Reason", "SubCode")


def counts(reader: Reader, asked: Mapping[str, Any]) -> dict[str, Any]:
    """By state, of all and of his own, and causes of holds; null where nothing is told, or to be told."""
    found = queue.sums(reader) or {"site": None, "mine": None, "held": [], "newest": None}
    return {**found, "time": reader.now}


def jobs(reader: Reader, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a state, of which each has been so for longest first."""
    exact = {name: asked[name] for name in (*TEXTS, *TIMES)}
    return queue.jobs(reader, "", "updated", asked["state"], asked["page"], asked["limit"], exact)
