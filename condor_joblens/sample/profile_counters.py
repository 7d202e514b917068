"""The collector of level profile: what its samples lack of a run. The samples themselves go another way."""

from __future__ import annotations

import numpy as np

from condor_joblens.sample import totals
from condor_joblens.sample.collector import NO_RUNS, SampledNode
from condor_joblens.tracer import map_layout

_MOST_LOST = 1 << 53
"""The reader of samples can say anything."""


class ProfileCounters:
    """Samples of tasks that are left alone."""

    name = "counters of level profile"
    columns = ("profile_not_ours", "profile_lost_samples")

    def __init__(self, node: SampledNode) -> None:
        self.runs = NO_RUNS
        self._node = node
        self._lost: dict[int, int] = {}  # run -> samples that were lost with a reader of samples, since `begin`

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Nothing."""

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """The counters of those that are sampled."""
        self.runs = NO_RUNS
        sensor = self._node.tracer.sensors.get("profile")
        counted_by_kernel = runs[self._node.runs.state["kernel_slot"][runs] >= 0]
        if sensor is None or not len(counted_by_kernel):
            return
        is_sampled, counted = sensor.counters(self._node.runs.state["kernel_slot"][counted_by_kernel])
        self.runs = counted_by_kernel[is_sampled]
        if len(self.runs):
            self._merge(self.runs, counted)

    def lose(self, run: int, samples: int) -> None:
        """So many samples of the run were taken by the kernel, and lost with what reads them."""
        self._lost[run] = min(self._lost.get(run, 0) + samples, _MOST_LOST)

    def _merge(self, runs: np.ndarray, counted: np.ndarray) -> None:
        """The numbers of `runs` (n,): map_layout.SAMPLED, shape (n,)."""
        lost = np.array([self._lost.get(run, 0) for run in runs.tolist()], "i8")
        totals.merge(self._node.runs.rows, self._node.runs.state["offset"], runs, columns(counted, lost))

    def begin(self, run: int) -> None:
        """The kernel samples the run from nothing on: its totals go on from where they are."""
        nothing: np.ndarray = np.zeros(1, map_layout.SAMPLED)
        self._lost.pop(run, None)
        totals.rebase(self._node.runs.rows, self._node.runs.state["offset"], run, columns(nothing, np.zeros(1, "i8")))

    def add(self, run: int, counted: np.ndarray) -> None:
        """What was counted of the run to the last moment (map_layout.SAMPLED, shape (1,))."""
        self._merge(np.array([run]), counted)

    def rebase(self, run: int) -> None:
        """The kernel counts from nothing on whenever a run comes to level profile: see `begin`."""

    def reset(self, run: int) -> None:
        """The same."""

    def forget(self, run: int) -> None:
        """The run is over."""
        self._lost.pop(run, None)


def columns(counted: np.ndarray, lost: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of n runs that are sampled, each of shape (n,).

    From map_layout.SAMPLED, and the samples that were lost with a reader of samples, each of shape (n,).
    """
    return {
        "profile_not_ours": counted["not_ours"].astype("i8"),
        "profile_lost_samples": counted["lost"].astype("i8") + lost,
    }
