"""Which runs a round measures, and one guard for each collector: what one costs when it fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent import measure
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import ABSENT, text
from condor_joblens.sample import totals
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.sample.collector import Collector, SampledNode
from condor_joblens.sample.collectors import Collectors
from condor_joblens.tracer import map_layout

SLOTS = 4


class Tracer:
    """A tracer without a kernel: a test says what it has counted."""

    source, note, is_exact, unknown, missing = b"bpf", "", True, frozenset[str](), dict[str, str]()
    connections_round = 0

    def __init__(self) -> None:
        self.counters = np.zeros(SLOTS, map_layout.COUNTERS)
        self.living = np.zeros(SLOTS, map_layout.LIVING)
        self.connections = np.zeros(SLOTS, map_layout.LIVING)
        self.order: list[str] = []
        self.sensors = {"io": SimpleNamespace(counters=self._io_counters, lost=lambda: 0, missing={})}
        self.endpoints = MagicMock(room=1)
        self.endpoints.read.side_effect = lambda: (self.order.append("endpoints"), self._no_entries())[1]

        self.servers = MagicMock(room=1)
        self.servers.read.side_effect = lambda: (self.order.append("servers"), self._no_servers())[1]

    def _no_servers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0, map_layout.SERVER_KEY), np.zeros(0, map_layout.SERVER)

    def uncounted_servers(self) -> frozenset[str]:
        return frozenset()

    def _no_entries(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(0, map_layout.ENDPOINT_KEY), np.zeros(0, map_layout.ENDPOINT)

    def count_living(self) -> None:
        self.order.append("threads")

    def count_connections(self) -> None:
        self.order.append("connections")

    def _io_counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.order.append("io")
        at_io = self.counters["io_key"][slots] > 0
        return at_io, np.zeros(int(at_io.sum()), map_layout.IO_COUNTERS)

    def attached(self) -> list[str]:
        return []

    def lost(self) -> int:
        return 0

    def begin_at_next_exec(self, slot: int) -> bool:
        self.order.append("begin")
        return True


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A node with two runs, at basic and at io."""
    made = make(tmp_path, monkeypatch)
    made.node.tracer = Tracer()  # type: ignore[assignment]
    made.node.collectors = Collectors(made.node)
    for level in (Level.BASIC, Level.IO):
        run = made.begin(f"{level}.0", level)
        made.node.runs.state["kernel_slot"][run] = run
        made.node.handles[run].files = CgroupFiles({})
        made.node.tracer.counters["io_key"][run] = level is Level.IO
    return made


def round_of(it: Made) -> None:
    it.node.runs.state["next_measure"][:] = 0
    measure.sample_all(it.node)


def test_no_number_is_older_than_its_run_whatever_the_clock_does(it: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    it.node.runs.rows["start_time"][:2] = 5000, 3000
    monkeypatch.setattr(measure.time, "time", lambda: 4000.0)
    round_of(it)
    assert it.node.runs.rows["update_time"][:2].tolist() == [5000, 4000]
    for run in (0, 1):
        it.node.runs.rows["update_time"][run] = 0
        measure.reset(it.node, run)
    assert it.node.runs.rows["update_time"][:2].tolist() == [5000, 4000], "when the job begins as well"


def column(it: Made, name: str) -> list[Any]:
    return it.node.runs.rows[name][it.node.runs.living()].tolist()


def uncounted(it: Made) -> list[str]:
    return [text(value) for value in column(it, "uncounted")]


# -- which runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slot", "living", "is_measured"),
    [(0, -1, True), (0, 2, True), (0, 0, False), (-1, -1, False)],
    ids=["not looked yet", "some live on", "empty", "never counted"],
)
def test_a_run_whose_first_process_has_ended_is_measured_until_its_cgroup_is_known_to_be_empty(
    it: Made, monkeypatch: pytest.MonkeyPatch, slot: int, living: int, is_measured: bool
) -> None:
    measured: list[int] = []
    monkeypatch.setattr(measure, "_collect", lambda node, runs, at_end: measured.extend(runs.tolist()))
    it.node.runs.rows["final"] = True
    it.node.runs.rows["process_live"][0] = living
    it.node.runs.rows["process_live"][1] = 0
    it.node.runs.state["kernel_slot"][0] = slot
    round_of(it)
    assert measured == ([0] if is_measured else [])


def test_what_a_job_gives_back_at_its_end_is_no_part_of_its_growth(it: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "condor_joblens.sample.cgroup_files.read_slow", lambda files: {"memory_cgroup_anon_bytes": np.array([0])}
    )
    rows, state = it.node.runs.rows, it.node.runs.state
    rows["memory_growth_bytes_per_hour"][0] = 5 << 30
    measure.sample_final(it.node, np.array([0]))
    assert rows["memory_cgroup_anon_bytes"][0] == 0 and rows["memory_growth_bytes_per_hour"][0] == 5 << 30
    assert not state["growth_time"][0].any()


# -- the order, on which exact totals stand -----------------------------------------------------------------------


def test_entries_are_read_before_totals_and_files_after_all_counters(it: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer: Any = it.node.tracer
    for name in ("read_cpu", "read_slow"):
        monkeypatch.setattr(
            f"condor_joblens.sample.cgroup_files.{name}", lambda files, name=name: tracer.order.append(name) or {}
        )
    tracer.counters["connected"][0] = 1
    round_of(it)
    # entries are read again after the walk: what was open in it
    walks = ["threads", "connections", "endpoints"]
    assert tracer.order == ["endpoints", "servers", *walks, "io", "read_cpu", "read_slow"]
    tracer.order.clear()
    measure.sample_final(it.node, np.array([0, 1]))
    # a run that has asked no server has no entry
    assert tracer.order == ["endpoints", "connections", "io", "read_cpu", "read_slow"]
    tracer.order.clear()
    tracer.counters["servers"][0] = 1
    measure.sample_final(it.node, np.array([0, 1]))
    assert tracer.order == ["endpoints", "servers", "connections", "io", "read_cpu", "read_slow"]


def test_the_totals_of_what_has_ended_are_those_before_the_walk(it: Made) -> None:
    tracer: Any = it.node.tracer

    def a_thread_ends_meanwhile() -> None:
        tracer.counters["minor_faults"][0] += 100

    tracer.count_living = a_thread_ends_meanwhile
    tracer.counters["minor_faults"][0] = 7
    round_of(it)
    assert column(it, "memory_minor_faults") == [7, 0]


def test_without_a_walk_over_open_connections_no_tcp_number_goes_backwards_or_is_half(it: Made) -> None:
    tracer: Any = it.node.tracer
    tracer.counters["connected"][0], tracer.connections["sent_bytes"][0] = 1, 500
    tracer.connections["connections"][0] = 1
    round_of(it)
    assert column(it, "tcp_sent_bytes") == [500, 0]
    tracer.counters["connected"][0], tracer.counters["sent_bytes"][0] = 2, 100  # one of two has closed, no walk is due
    tracer.counters["closed"][0] = 1
    round_of(it)
    assert column(it, "tcp_sent_bytes") == [500, 0] and column(it, "tcp_connected") == [1, 0]
    it.node.collectors.kernel.walk_next_time()
    round_of(it)
    assert column(it, "tcp_sent_bytes") == [600, 0] and column(it, "tcp_connected") == [2, 0]


def test_when_a_job_begins_files_are_read_before_the_kernel_counts_anew(
    it: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer: Any = it.node.tracer
    used = {"cpu_seconds": np.array([3.0])}
    monkeypatch.setattr(
        "condor_joblens.sample.cgroup_files.read_cpu", lambda files: tracer.order.append("read_cpu") or used
    )
    it.node.runs.rows["process_forked"][0] = 17
    measure.reset(it.node, 0)
    assert tracer.order == ["read_cpu", "begin"]
    assert it.node.runs.rows["process_forked"][0] == ABSENT and it.node.runs.rows["cpu_seconds"][0] == 0
    used["cpu_seconds"] = np.array([5.0])
    measure.sample_final(it.node, np.array([0]))
    assert it.node.runs.rows["cpu_seconds"][0] == 2


# -- a collector more ---------------------------------------------------------------------------------------------


class Fans:
    """A collector as a later one will be: one class that knows its columns. It counts page faults, for a test."""

    name = "fans"
    columns = ("memory_major_faults", "process_threads", "memory_largest_process_peak_bytes")

    def __init__(self, node: SampledNode) -> None:
        self.runs: np.ndarray = np.zeros(0, "i8")
        self.node = node
        self.calls: list[tuple[str, Any]] = []
        self.error: Exception | None = None
        self.fails_at = "read"
        self.turns = 100

    def _called(self, what: str, argument: Any) -> None:
        self.calls.append((what, argument))
        if self.error is not None and self.fails_at == what:
            raise self.error

    def prepare(self, runs: np.ndarray, at_end: bool) -> None:
        self._called("prepare", at_end)

    def read(self, runs: np.ndarray, at_end: bool) -> None:
        self._called("read", at_end)
        table = self.node.runs
        found = {name: np.full(len(runs), self.turns) for name in self.columns}
        totals.merge(table.rows, table.state["offset"], runs, found)

    def rebase(self, run: int) -> None:
        self._called("rebase", run)
        measured = {"memory_major_faults": np.array([self.turns])}
        totals.rebase(self.node.runs.rows, self.node.runs.state["offset"], run, measured)

    def reset(self, run: int) -> None:
        self._called("reset", run)

    def forget(self, run: int) -> None:
        self._called("forget", run)


@pytest.fixture
def fans(it: Made) -> Fans:
    found = Fans(it.node)
    as_one: Collector = found
    it.node.collectors.all.append(as_one)
    return found


FAILED = "fans (failed, see JobLensdLog)"


def test_a_new_collector_is_asked_in_each_round_and_at_each_turn_of_a_run(it: Made, fans: Fans) -> None:
    round_of(it)
    assert column(it, "memory_major_faults") == [100, 100] and uncounted(it) == ["", ""] and not it.log
    measure.sample_final(it.node, np.array([1]))
    measure.reset(it.node, 1)
    measure.rebase(it.node, 1)
    assert fans.calls[:4] == [("prepare", False), ("read", False), ("prepare", True), ("read", True)]
    assert fans.calls[4:] == [("forget", 1), ("reset", 1), ("rebase", 1)]
    assert it.node.runs.rows["memory_major_faults"][1] == 0


@pytest.mark.parametrize("where", ["prepare", "read"])
def test_a_collector_that_fails_costs_its_own_numbers_and_nobody_elses(it: Made, fans: Fans, where: str) -> None:
    round_of(it)
    tracer: Any = it.node.tracer
    tracer.counters["minor_faults"][:2] = 8, 9
    fans.error, fans.fails_at = ZeroDivisionError("no fan turns"), where
    for _ in range(3):
        round_of(it)
    assert column(it, "memory_major_faults") == column(it, "process_threads") == [ABSENT, ABSENT]
    assert column(it, "memory_minor_faults") == [8, 9]
    assert uncounted(it) == [FAILED, FAILED]
    # once, with its traceback, and not each second
    assert sum("the collector of fans failed" in line for line in it.log) == 1
    assert any("ZeroDivisionError: no fan turns" in line for line in it.log)
    assert any("in _called" in line for line in it.log)


def test_another_error_is_logged_as_well(it: Made, fans: Fans) -> None:
    for error in (ZeroDivisionError("a"), ZeroDivisionError("b"), OSError("c")):
        fans.error = error
        round_of(it)
    assert sum("the collector of fans failed" in line for line in it.log) == 2


def test_numbers_that_come_back_are_no_less_than_before_and_no_longer_uncounted(it: Made, fans: Fans) -> None:
    round_of(it)
    fans.error = ValueError("for a while")
    round_of(it)
    fans.error, fans.turns = None, 60
    round_of(it)
    assert column(it, "memory_major_faults") == column(it, "memory_largest_process_peak_bytes") == [100, 100]
    assert column(it, "process_threads") == [60, 60]  # a gauge is as it is
    assert uncounted(it) == ["", ""] and not it.node.collectors.failing


def test_numbers_that_are_lacking_when_a_tracer_takes_over_go_on_from_where_they_were(it: Made, fans: Fans) -> None:
    round_of(it)
    fans.error = ValueError("for a while")
    round_of(it)
    fans.error, fans.turns = None, 5000
    measure.rebase(it.node, 0)
    fans.turns = 5007
    round_of(it)
    assert it.node.runs.rows["memory_major_faults"][0] == 107


def test_the_next_joblensd_knows_what_failed_under_the_last(it: Made, fans: Fans) -> None:
    fans.error = ValueError("until the update")
    round_of(it)
    it.node.collectors = Collectors(it.node)
    it.node.collectors.all.append(fans)
    fans.error = None
    measure.recall_failures(it.node)
    round_of(it)
    assert uncounted(it) == ["", ""] and column(it, "memory_major_faults") == [100, 100]


@pytest.mark.parametrize("turn", ["reset", "rebase"])
def test_a_collector_that_fails_at_a_turn_of_a_run_fails_for_that_run(it: Made, fans: Fans, turn: str) -> None:
    round_of(it)
    fans.error, fans.fails_at = OSError("gone"), turn
    getattr(measure, turn)(it.node, 1)
    assert uncounted(it) == ["", FAILED] and column(it, "memory_major_faults") == [100, ABSENT]
    round_of(it)
    assert uncounted(it) == ["", ""]


def test_a_run_that_begins_anew_or_ends_leaves_nothing_of_a_failure(it: Made, fans: Fans) -> None:
    fans.error = OSError("gone")
    round_of(it)
    fans.error = None
    measure.reset(it.node, 1)
    assert uncounted(it) == [FAILED, ""] and list(it.node.collectors.failing["fans"]) == [0]
    it.node.collectors.forget(0)
    assert not it.node.collectors.failing["fans"]


def test_the_kernels_counters_that_fail_take_what_is_a_share_of_them_along(it: Made) -> None:
    round_of(it)
    tracer: Any = it.node.tracer
    tracer.count_living = MagicMock(side_effect=OSError("the iterator fails"))
    round_of(it)
    assert column(it, "process_forked") == [ABSENT, ABSENT] and column(it, "tcp_refused") == [ABSENT, ABSENT]
    assert uncounted(it) == [
        "counters of the kernel (failed, see JobLensdLog); file servers (failed, see JobLensdLog)",
        "counters of the kernel (failed, see JobLensdLog); network by endpoint (failed, see JobLensdLog); "
        "file servers (failed, see JobLensdLog)",
    ]
    assert column(it, "syscall_read_calls") == [ABSENT, 0]
    assert sum("failed: its numbers are absent" in line for line in it.log) == 1


def test_a_failure_concerns_the_runs_that_the_collector_measures(it: Made) -> None:
    round_of(it)
    tracer: Any = it.node.tracer
    tracer.sensors["io"].counters = MagicMock(side_effect=OSError("no such map"))
    round_of(it)
    assert column(it, "syscall_read_calls") == [ABSENT, ABSENT]
    assert uncounted(it) == ["", "counters of level io (failed, see JobLensdLog)"]


def test_slow_numbers_that_failed_are_read_in_the_next_round(it: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(files: list[CgroupFiles]) -> dict[str, np.ndarray]:
        raise OSError("what a file")

    with monkeypatch.context() as patched:
        patched.setattr("condor_joblens.sample.cgroup_files.read_slow", fails)
        round_of(it)
    assert all("memory and pressure of the cgroup (failed" in said for said in uncounted(it))
    assert all("memory growth (failed" in said for said in uncounted(it))
    round_of(it)
    assert uncounted(it) == ["", ""]


def test_every_collector_names_the_columns_that_it_fills_and_no_two_the_same(it: Made) -> None:
    names = [name for collector in it.node.collectors.all for name in collector.columns]
    assert len(names) == len(set(names)) and set(names) <= set(it.node.runs.rows.dtype.names)
    by_policies = {"cpu_idle_seconds"}  # agent.levels.policy_input, from the cores
    by_traces = {name for name in measure.COLUMNS if name.startswith("trace_")}  # agent.function_traces, as told
    by_peeks = {name for name in measure.COLUMNS if name.startswith("peek_")}  # agent.peeks, as told
    assert set(measure.COLUMNS) - set(names) == by_policies | by_traces | by_peeks
    assert (len(by_traces), len(by_peeks)) == (8, 4)
