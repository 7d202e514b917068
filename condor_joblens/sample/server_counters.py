"""The collector of what reached file servers: totals by class, and the list of servers."""

from __future__ import annotations

import numpy as np

from condor_joblens.model import classes
from condor_joblens.model.metrics import METRICS
from condor_joblens.model.servers import NUMBERS, SECONDS
from condor_joblens.sample import totals
from condor_joblens.sample.collector import NO_RUNS, SampledNode, SourceFailed
from condor_joblens.sample.kernel_counters import KernelCounters
from condor_joblens.sample.server_lists import ServerLists

COLUMNS = tuple(metric.column for metric in METRICS if metric.group == "Server")
"""A block of len(NUMBERS) for each class, as in the kernel's words."""

_ARE_SECONDS = np.tile(np.arange(len(NUMBERS)) == SECONDS, len(classes.SERVERS))


class ServerCounters:
    """What each run asked file servers, at every level."""

    name = "file servers"

    def __init__(self, node: SampledNode, kernel: KernelCounters) -> None:
        self.runs = NO_RUNS
        self.lists = ServerLists(node.tracer, node.config.endpoint_names)
        self.columns = (*(column for column in COLUMNS if column not in node.tracer.unknown), "servers")
        self._node, self._kernel = node, kernel

    @property
    def _counts(self) -> bool:
        """Whether this node's tracer counts requests at all."""
        return self._node.tracer.servers.room > 0

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Reads the entries of servers: they must be older than the totals, of which they are shares."""
        plan = self._kernel.plan
        if plan is None:
            raise SourceFailed("which jobs the kernel counts is unknown")
        self.runs = plan.runs if self._counts else NO_RUNS
        if len(self.runs):
            self.lists.read()

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """After the kernel's totals were read."""
        reading, table = self._kernel.reading, self._node.runs
        if not len(self.runs):
            return
        if reading is None:
            raise SourceFailed("the kernel's totals were not read")
        # most jobs ask no file server, ever: their zeros are in their rows since they were first listed
        is_new = reading.ended["servers"].any(axis=1) | ~self.lists.are_listed(self.runs)
        if is_new.any():
            runs = self.runs[is_new]
            totals.merge(table.rows, table.state["offset"], runs, self._known(columns(reading.ended[is_new])))
            self.lists.update(table, runs, sums(table.rows, runs))

    def _known(self, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Without the classes that this kernel can't count: their numbers stay absent."""
        refused = self._node.tracer.uncounted_servers()
        return {column: values for column, values in found.items() if column.split("_")[1] not in refused}

    def rebase(self, run: int) -> None:
        """What the tracer has counted of its slot by now is not added to its totals."""
        table = self._node.runs
        if self._counts:
            found = self._known(columns(self._node.tracer.counters[table.state["kernel_slot"][[run]]]))
            totals.rebase(table.rows, table.state["offset"], run, found)
            self.lists.rebase(table, run)

    def reset(self, run: int) -> None:
        """Before the job's first instruction nothing is counted for the run: see owner_of_task in servers.bpf.h."""

    def forget(self, run: int) -> None:
        """Its list is made anew when it is next read."""
        self.lists.forget(self._node.runs, run)


def columns(ended: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of n slots (map_layout.COUNTERS, shape (n,)), each of shape (n,)."""
    words = ended["servers"]
    return {
        column: words[:, place] * 1e-9 if is_seconds else words[:, place].astype("i8")
        for place, (column, is_seconds) in enumerate(zip(COLUMNS, _ARE_SECONDS.tolist()))
    }


def sums(rows: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """The totals of `runs` (n,) over all classes, shape (n, len(NUMBERS)); absent numbers are 0."""
    found: np.ndarray = np.zeros((len(runs), len(NUMBERS)))
    for place, column in enumerate(COLUMNS):
        found[:, place % len(NUMBERS)] += np.fmax(rows[column][runs], 0)
    return found
