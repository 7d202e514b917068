"""What every collector is: it reads one kind of number from one source into the rows of runs.

joblensd calls all collectors in turn, each in a guard (agent/measure.py). If one raises, its numbers become absent, the
row's `Uncounted` names it, and the others go on. A new one is one file here, its metrics in model/metrics.py, and one
line in collectors.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from condor_joblens.common.config import Config
from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import cut, text
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend_protocol import Backend

NO_RUNS: np.ndarray = np.zeros(0, "i8")


class SourceFailed(JobLensError):
    """Another collector, whose reading this one needs, has failed in this round: its error is in the log already."""


class Collector(Protocol):
    """One kind of number. `runs` are indices of the table of runs, shape (n,).

    In each round `prepare` of all collectors is called, then `read` of all, both in the order of collectors.py.
    `read` puts totals and gauges into the rows, which do not depend on the rounds before (sample/totals.py). So a round
    that failed costs nothing but itself.
    """

    runs: np.ndarray
    """Those of the last read. The caller sets it before `prepare` to all of the round; a collector that measures fewer
    narrows it, so that a failure concerns those alone."""

    @property
    def name(self) -> str:
        """As the log and a row's `Uncounted` call it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the row, that it fills: absent after it has failed."""

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Reads what must be older than the kernel's totals, if there is such."""

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """Puts the numbers of `runs` into their rows; `at_end`: their first processes have just ended.

        At the end a job's starter waits for no more than some milliseconds: what takes longer is left out.
        """

    def rebase(self, run: int) -> None:
        """A tracer that knows nothing of the run's past takes it over: its totals go on from where they are."""

    def reset(self, run: int) -> None:
        """The run's job begins now, with absent numbers: what its sources say at this moment is not the job's."""

    def forget(self, run: int) -> None:
        """What this collector itself remembers of the run is void: it has ended, or its numbers are absent again."""


class Table(Protocol):
    """The table of runs: jobs/run_table.py."""

    @property
    def rows(self) -> Any:
        """metrics.ROW, shape (capacity,)."""

    @property
    def state(self) -> Any:
        """run_state.STATE, shape (capacity,)."""


class OpenFiles(Protocol):
    """What is open for one run."""

    @property
    def files(self) -> CgroupFiles:
        """Of its cgroup."""


class SampledNode(Protocol):
    """The part of a node (agent/node.py) that collectors see."""

    @property
    def config(self) -> Config:
        """Read again at condor_reconfig: not to be kept."""

    @property
    def tracer(self) -> Backend:
        """What counts in the kernel, or in its stead."""

    @property
    def runs(self) -> Table:
        """Rows and states."""

    @property
    def handles(self) -> Mapping[int, OpenFiles]:
        """By run."""


def have_their_cgroups(node: SampledNode, runs: np.ndarray) -> np.ndarray:
    """Which of `runs` (n,) are alone in their cgroup, shape (n,) of bool: the next job has not come into it.

    Ask this after the files of the cgroup have been read: what they said is then the run's own.
    """
    slots = node.runs.state["kernel_slot"][runs]
    found: np.ndarray = (slots < 0) | (node.tracer.counters["state"][slots] != map_layout.LEFT)
    return found


def declare_uncounted(rows: np.ndarray, run: int, names: list[str]) -> None:
    """Adds `names` to what the run's `Uncounted` says."""
    known = text(bytes(rows["uncounted"][run])).split("; ")
    rows["uncounted"][run] = cut("; ".join(dict.fromkeys(filter(None, [*known, *names]))), "uncounted")


def withdraw_uncounted(rows: np.ndarray, run: int, name: str) -> None:
    """Takes `name` out of what the run's `Uncounted` says: it is counted again, and lacks nothing."""
    known = text(bytes(rows["uncounted"][run])).split("; ")
    rows["uncounted"][run] = cut("; ".join(known_name for known_name in known if known_name != name), "uncounted")
