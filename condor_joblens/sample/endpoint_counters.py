"""The collector of the network at level io: causes of failure, loopback, UDP, and the list of remote endpoints."""

from __future__ import annotations

import numpy as np

from condor_joblens.common.structs import taken
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import MetricKind
from condor_joblens.sample import totals
from condor_joblens.sample.collector import NO_RUNS, SampledNode, SourceFailed, declare_uncounted
from condor_joblens.sample.endpoint_lists import EndpointLists
from condor_joblens.sample.kernel_counters import KernelCounters, counted_by, summed
from condor_joblens.sample.merged_columns import MergedColumns
from condor_joblens.tracer import map_layout

COLUMNS = counted_by(Level.IO, MetricKind.COUNTER, map_layout.COUNTERS.names or ())
UDP = "udp_"
"""What the columns begin with that are absent if the kernel refuses the programs of UDP."""

_OF_TCP = {column: field for column, field in COLUMNS.items() if not column.startswith(UDP)}
_MERGED, _MERGED_OF_TCP = (MergedColumns(summed(fields, 0, 1)) for fields in (COLUMNS, _OF_TCP))

AT_IO_ALONE = tuple(field for column, field in COLUMNS.items() if column.startswith((UDP, "tcp_loopback_")))
"""Fields that stay 0 at lower levels; causes of failure are counted at each."""

ELSEWHERE = "connections of other network namespaces while they are open"
"""As `Uncounted` calls them: a walk meets only those of joblensd's own."""

UDP_BY_FILE = "UDP by read() and write()"
"""A kernel before 6.3 does not tell of these (udp.bpf.c)."""


class EndpointCounters:
    """What runs that are or were at level io did in the network, by endpoint."""

    name = "network by endpoint"
    columns = (*COLUMNS, "endpoints")

    def __init__(self, node: SampledNode, kernel: KernelCounters) -> None:
        self.runs = NO_RUNS
        self.lists = EndpointLists(node.tracer, node.config.endpoint_names)
        self._node = node
        self._kernel = kernel
        self._chosen: np.ndarray = np.zeros(0, "?")  # which runs of the kernel's plan are counted by endpoint
        self._unmet: set[int] = set()  # runs with open connections that the last walk did not meet

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        """Reads the entries of endpoints: they must be older than the totals, of which they are shares."""
        plan = self._kernel.plan
        if plan is None:
            raise SourceFailed("which jobs the kernel counts is unknown")
        self._chosen = self._by_endpoint(plan.runs, plan.slots)
        if plan.has_open and not plan.walks:
            self._chosen[:] = False  # without a walk their totals are not known
        self.runs = plan.runs[self._chosen]
        if len(self.runs):
            self.lists.read()

    def _by_endpoint(self, runs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Which of `runs` (n,) are counted by endpoint: those that are or were at level io, shape (n,)."""
        if not self.lists.usable:
            return np.zeros(len(runs), "?")
        found: np.ndarray = self._node.runs.rows["level_number"][runs] >= Level.IO
        found |= self._node.tracer.counters["by_endpoint"][slots] > 0
        found &= ~self._node.runs.state["io_provisional"][runs]
        return found

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        """After the kernel's totals are in the rows."""
        reading, table, tracer = self._kernel.reading, self._node.runs, self._node.tracer
        if not len(self.runs):
            return
        if reading is None:
            raise SourceFailed("the kernel's totals were not read")
        ended, walked = taken(reading.ended, self._chosen), None
        if reading.walked is not None and reading.unmet is not None:
            walked = taken(reading.walked, self._chosen)
            self._note_unmet(self.runs, set(self.runs[reading.unmet[self._chosen]].tolist()))
        to_merge = merged("UDP" not in tracer.missing)
        to_merge.merge(table.rows, table.state["offset"], self.runs, (ended, walked))
        if "jl_udp_sys_exit" in tracer.attached():
            for run in self.runs.tolist():
                declare_uncounted(table.rows, run, [UDP_BY_FILE])
        self.lists.update(table.rows, self.runs, table.state["cgroup_id"][self.runs], walked)

    def _note_unmet(self, runs: np.ndarray, unmet: set[int]) -> None:
        """Declares those of `unmet` uncounted whose open connections two walks in a row have not all met.

        One alone can be a connection that was just being closed: it is out of the kernel's table before it is counted.
        """
        for run in unmet & self._unmet:
            declare_uncounted(self._node.runs.rows, run, [ELSEWHERE])
        self._unmet.difference_update(runs.tolist())
        self._unmet |= unmet

    def rebase(self, run: int) -> None:
        """After the kernel's counters, which walk over the connections: what they have by now is not added."""
        table, tracer = self._node.runs, self._node.tracer
        runs = np.array([run])
        slots = table.state["kernel_slot"][runs]
        if self._by_endpoint(runs, slots)[0]:
            found = columns(tracer.counters[slots], tracer.connections[slots], "UDP" not in tracer.missing)
            totals.rebase(table.rows, table.state["offset"], run, found)
            self.lists.rebase(table.rows, run, int(table.state["cgroup_id"][run]))

    def reset(self, run: int) -> None:
        """The kernel itself begins anew, with the job's first instruction: see Tracer.begin_at_next_exec."""

    def discard(self, run: int) -> None:
        """What the kernel has counted of the run by endpoint is nobody's, and it goes on no longer."""
        tracer, table = self._node.tracer, self._node.runs
        slot = int(table.state["kernel_slot"][run])
        if tracer.counters["by_endpoint"][slot]:
            tracer.counters["by_endpoint"][slot] = 0
            keys, _ = tracer.endpoints.read()
            tracer.drop_endpoints(keys[keys["cgroup_id"] == table.state["cgroup_id"][run]])
        for field in (*AT_IO_ALONE, "endpoints_dropped"):
            tracer.counters[field][slot] = 0

    def forget(self, run: int) -> None:
        """Its list is made anew when it is next read."""
        self._unmet.discard(run)
        self.lists.forget(run)


def merged(with_udp: bool) -> MergedColumns:
    """The columns in one pass, from what has ended and the open connections: None if these were not walked over."""
    return _MERGED if with_udp else _MERGED_OF_TCP


def columns(ended: np.ndarray, connections: np.ndarray, with_udp: bool) -> dict[str, np.ndarray]:
    """The columns of n slots at level io, each of shape (n,): see kernel_counters.columns for the arguments."""
    fields = COLUMNS if with_udp else _OF_TCP
    return {
        column: (ended[field] + connections[field] if field in map_layout.TOTALS else ended[field]).astype("i8")
        for column, field in fields.items()
    }
