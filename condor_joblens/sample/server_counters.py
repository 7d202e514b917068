"""The collector of what reached file servers: totals by class, and the list of servers."""

from __future__ import annotations

import numpy as np

from condor_joblens.common.structs import taken
from condor_joblens.model import classes
from condor_joblens.model.metrics import METRICS
from condor_joblens.model.servers import NUMBERS, SECONDS
from condor_joblens.sample import totals
from condor_joblens.sample.collector import NO_RUNS, SampledNode, SourceFailed
from condor_joblens.sample.kernel_counters import KernelCounters
from condor_joblens.sample.merged_columns import COUNTER, Column, GatheredColumns, MergedColumns, Part
from condor_joblens.sample.merged_columns import SECONDS as SECONDS_COLUMN
from condor_joblens.sample.server_lists import ServerLists
from condor_joblens.tracer import map_layout

COLUMNS = tuple(metric.column for metric in METRICS if metric.group == "Server" and metric.name != "MappedBytes")
"""A block of len(NUMBERS) for each class, as in the kernel's words."""

MAPPED = tuple(metric.column for metric in METRICS if metric.group == "Server" and metric.name == "MappedBytes")
"""One for each class; servers in lists have none."""

_ARE_SECONDS = np.tile(np.arange(len(NUMBERS)) == SECONDS, len(classes.SERVERS))
_COUNTS = GatheredColumns([column for column, is_seconds in zip(COLUMNS, _ARE_SECONDS) if not is_seconds])
_TIMES = GatheredColumns([column for column, is_seconds in zip(COLUMNS, _ARE_SECONDS) if is_seconds])
_ARE_COUNTS = ~_ARE_SECONDS[: len(NUMBERS)]


class ServerCounters:
    """What each run asked file servers, at every level."""

    name = "file servers"

    def __init__(self, node: SampledNode, kernel: KernelCounters) -> None:
        self.runs = NO_RUNS
        self.lists = ServerLists(node.tracer, node.config.endpoint_names)
        self.columns = (*(column for column in COLUMNS + MAPPED if column not in node.tracer.unknown), "servers")
        self._node, self._kernel = node, kernel
        self._merged: dict[frozenset[str], MergedColumns] = {}  # by the classes that the kernel refuses

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
        # at an end there is no time for a table in which the run has nothing
        if len(self.runs) and not (at_end and not self._node.tracer.counters["servers"][plan.slots].any()):
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
            ended = taken(reading.ended, is_new)
            self._known_columns().merge(table.rows, table.state["offset"], runs, (ended,))
            self.lists.update(table, runs, sums(table.rows, runs))

    def _known_columns(self) -> MergedColumns:
        """Those of the classes that this kernel can count by now: modules can be loaded later."""
        refused = self._node.tracer.uncounted_servers()
        if refused not in self._merged:
            self._merged[refused] = merged(refused)
        return self._merged[refused]

    def rebase(self, run: int) -> None:
        """What the tracer has counted of its slot by now is not added to its totals."""
        table = self._node.runs
        if self._counts:
            found = columns(self._node.tracer.counters[table.state["kernel_slot"][[run]]])
            known = {column: found[column] for column in known_columns(self._node.tracer.uncounted_servers())}
            totals.rebase(table.rows, table.state["offset"], run, known)
            self.lists.rebase(table, run)

    def reset(self, run: int) -> None:
        """Before the job's first instruction nothing is counted for the run: see owner_of_task in servers.bpf.h."""

    def forget(self, run: int) -> None:
        """Its list is made anew when it is next read."""
        self.lists.forget(self._node.runs, run)


def known_columns(refused: frozenset[str]) -> list[str]:
    """Without the classes that this kernel can't count: their numbers stay absent."""
    return [column for column in (*COLUMNS, *MAPPED) if column.split("_")[1] not in refused]


def merged(refused: frozenset[str]) -> MergedColumns:
    """The known columns, from map_layout.COUNTERS."""
    return MergedColumns([_column(name) for name in known_columns(refused)])


def _column(name: str) -> Column:
    if name in MAPPED:
        return Column(name, COUNTER, (Part(0, map_layout.COUNTERS, "mapped_bytes", MAPPED.index(name)),))
    place = COLUMNS.index(name)
    kind = SECONDS_COLUMN if _ARE_SECONDS[place] else COUNTER
    return Column(name, kind, (Part(0, map_layout.COUNTERS, "servers", place),))


def columns(ended: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of n slots (map_layout.COUNTERS, shape (n,)), each of shape (n,)."""
    words = ended["servers"]
    found = {
        column: words[:, place] * 1e-9 if is_seconds else words[:, place].astype("i8")
        for place, (column, is_seconds) in enumerate(zip(COLUMNS, _ARE_SECONDS.tolist()))
    }
    found.update((column, ended["mapped_bytes"][:, place].astype("i8")) for place, column in enumerate(MAPPED))
    return found


def sums(rows: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """The totals of `runs` (n,) over all classes, shape (n, len(NUMBERS)); absent numbers are 0."""
    found: np.ndarray = np.zeros((len(runs), len(NUMBERS)))
    counts, seconds = _COUNTS.of(rows, runs), _TIMES.of(rows, runs)
    shape = (len(runs), len(classes.SERVERS), len(NUMBERS) - 1)
    found[:, _ARE_COUNTS] = np.maximum(counts, 0).reshape(shape).sum(axis=1)
    found[:, SECONDS] = np.fmax(seconds, 0).sum(axis=1)
    return found
