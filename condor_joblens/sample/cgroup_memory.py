"""The collector of charged memory and pressure, from files of the cgroup that are read less often than each round."""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.sample import cgroup_files, totals
from condor_joblens.sample.cgroup_files import OOM_KILLS, CgroupFiles
from condor_joblens.sample.collector import NO_RUNS, SampledNode, have_their_cgroups
from condor_joblens.tracer import cgroup_uses

PEAK = cgroup_files.MEMORY["memory.peak"]


class CgroupMemory:
    """Memory that is charged to the cgroup, its limit, and the pressure of CPU, memory and I/O."""

    name = "memory and pressure of the cgroup"

    def __init__(self, node: SampledNode) -> None:
        self.runs = NO_RUNS
        self.was_read = False
        """Whether the last `read` went well: `runs` have new numbers."""
        self._node = node
        # a tracer that counts victims of the OOM killer counts none of them twice
        self._leaves_out = () if OOM_KILLS in node.tracer.unknown else (OOM_KILLS,)
        self.columns = tuple(column for column in cgroup_files.SLOW_COLUMNS if column not in self._leaves_out)

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Nothing."""

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """The files of those runs whose turn it is, once in JOBLENS_PRESSURE_PERIOD; at the end all."""
        table, handles, now = self._node.runs, self._node.handles, time.monotonic()
        self.was_read = False
        self.runs = due = runs if at_end else runs[table.state["next_slow"][runs] <= now]
        if len(due):
            columns = self._read([handles[run].files for run in due.tolist()])
            own = have_their_cgroups(self._node, due)
            if not own.all():
                self.runs = due = due[own]
                columns = {column: values[own] for column, values in columns.items()}
            if PEAK in columns:
                jobs_before = table.state["cgroup_id"][due] >> cgroup_uses.SHIFT
                columns[PEAK] = np.where(jobs_before > 0, -1, columns[PEAK])  # it may be an earlier job's
            totals.merge(table.rows, table.state["offset"], due, columns)
            table.state["next_slow"][due] = now + self._node.config.pressure_period
        self.was_read = True

    def _read(self, files: list[CgroupFiles]) -> dict[str, np.ndarray]:
        columns = cgroup_files.read_slow(files)
        kills = columns.get(OOM_KILLS)
        if kills is not None and (OOM_KILLS in self._leaves_out or (kills < 0).all()):
            del columns[OOM_KILLS]
        return columns

    def rebase(self, run: int) -> None:
        """Its cgroup is the same as before."""

    def reset(self, run: int) -> None:
        """What the cgroup has had so far is not the job's."""
        table = self._node.runs
        totals.rebase(table.rows, table.state["offset"], run, self._read([self._node.handles[run].files]))

    def forget(self, run: int) -> None:
        """Nothing is kept beside the state."""
