"""The ad of a node: what `joblens pool` shows of it. One slot of each startd carries it, the first, as `JobLensNode`.

It is there with and without jobs, and also while joblensd is not. It is renewed now and then, so that what a publisher
that has ended left behind can be told from what is so.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens import __version__
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level
from condor_joblens.publish.classad import quote

ATTRIBUTE = "JobLensNode"
SLOT = "slot1@"
"""The beginning of the first slot's name: there is one in each startd. Dynamic slots are called slot1_1@ and so on."""

PERIOD = 300.0
"""Seconds after which it is renewed at the latest: the collector hears of it with the startd's own updates."""

SLOTS_PERIODS = 5
"""So many JOBLENS_SLOT_AD_PERIOD are also enough."""

_LONGEST = 240


@dataclass(frozen=True)
class Health:
    """What `joblens doctor` found on the node."""

    state: str = ""  # ok, warn, FAIL; empty: it has not looked yet
    says: str = ""  # the worst finding, if it is not ok


@dataclass(frozen=True)
class JobCounts:
    """The jobs of a startd that JobLens watches."""

    by_level: tuple[int, ...]  # Level.OFF, Level.BASIC ...
    incomplete: int  # jobs with Complete = false
    lost: int  # events, of the job that lost most


def count(rows: np.ndarray) -> JobCounts:
    """The jobs in `rows`, shape (n,), that go on."""
    living = rows[~rows["final"]]
    levels = np.bincount(living["level_number"].clip(0, Level.TRACE), minlength=len(Level))
    return JobCounts(
        tuple(levels.tolist()), int((~living["complete"]).sum()), int(living["lost"].max(initial=0).clip(0))
    )


class NodeAd:
    """Says when the ad is due, and prints it. Knows no clock."""

    def __init__(self, run_dir: str) -> None:
        self.period = PERIOD
        self._run_dir = run_dir
        self._said = float("-inf")
        self._told: tuple[object, ...] | None = None

    def block(self, jobs: JobCounts | None, trouble: str, health: Health, now: float) -> str:
        """The block if it is due at `now` (epoch seconds), else nothing. `jobs` is None if joblensd is silent.

        What an administrator must know, `trouble` or a change of `health`, is told at once.
        """
        if jobs is None:
            health = Health("FAIL", trouble)
        version, source = self._running() if jobs is not None else ("", "")
        told = (version, source, health, jobs is None)
        if told == self._told and now < self._said + self.period:  # a shorter period counts at once
            return ""
        is_news, self._told, self._said = told != self._told, told, now
        parts = {
            "Version": quote(version or __version__), "Installed": quote(__version__),
            "Source": quote(source) if source else None, "Doctor": quote(health.state) if health.state else None,
            "Says": quote(printable(health.says, _LONGEST)) if health.says else None, "UpdateTime": f"{now:.0f}",
        }  # fmt: skip
        if jobs is not None:
            parts["Levels"] = _record({level.word.capitalize(): str(jobs.by_level[level]) for level in Level})
            parts["Incomplete"], parts["Lost"] = str(jobs.incomplete), str(jobs.lost)
        ad = _record({name: value for name, value in parts.items() if value is not None})
        update = "true" if is_news else "false"
        return f'SlotName = "{SLOT}"\n{ATTRIBUTE} = {ad}\n- {ATTRIBUTE} update:{update}\n'

    def _running(self) -> tuple[str, str]:
        """The version of the joblensd that runs, and where its numbers come from; empty if it does not tell."""
        with contextlib.suppress(OSError, ValueError):
            with open(os.path.join(self._run_dir, "attached"), "rb") as file:
                facts: Any = json.loads(file.read(1 << 20))
            if isinstance(facts, dict):
                version, source = (printable(str(facts.get(name) or ""), 40) for name in ("Version", "Source"))
                return version, source
        return "", ""


def _record(parts: dict[str, str]) -> str:
    return f"[ {'; '.join(f'{name} = {value}' for name, value in parts.items())} ]"
