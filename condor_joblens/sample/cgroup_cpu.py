"""The collector of CPU time, from each cgroup's cpu.stat, and of the rates that are made from it."""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.sample import cgroup_files, cpu_rates, totals
from condor_joblens.sample.collector import NO_RUNS, SampledNode, have_their_cgroups


class CgroupCpu:
    """CPU seconds, and how many cores that is."""

    name = "CPU time"
    columns = (*cgroup_files.CPU_COLUMNS, "cpu_recent_cores", "cpu_average_cores")

    def __init__(self, node: SampledNode) -> None:
        self.runs = NO_RUNS
        self._node = node

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Nothing."""

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """One small file for each run."""
        table, handles = self._node.runs, self._node.handles
        columns = cgroup_files.read_cpu([handles[run].files for run in runs.tolist()])
        own = have_their_cgroups(self._node, runs)
        if not own.all():
            self.runs = runs = runs[own]
            columns = {column: values[own] for column, values in columns.items()}
        totals.merge(table.rows, table.state["offset"], runs, columns)
        cpu_rates.cores(table.rows, table.state, runs, time.monotonic())

    def rebase(self, run: int) -> None:
        """Its cgroup is the same as before."""

    def reset(self, run: int) -> None:
        """What the cgroup has used so far is not the job's."""
        table = self._node.runs
        columns = cgroup_files.read_cpu([self._node.handles[run].files])
        totals.rebase(table.rows, table.state["offset"], run, columns)
        cpu_rates.remember(table.rows, table.state, np.array([run]), time.monotonic())

    def forget(self, run: int) -> None:
        """Nothing is kept beside the state."""
