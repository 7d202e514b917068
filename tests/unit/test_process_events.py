"""Process events on their way: to the right run, in batches, with their losses, and into the state of their run."""

from __future__ import annotations

import os
import selectors
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent import throttle
from condor_joblens.agent.lifecycle import death, process_events
from condor_joblens.agent.output.emit_events import EventEmitter
from condor_joblens.agent.run_guard import Failures, RunGuard
from condor_joblens.common.redact import WITHHELD
from condor_joblens.jobs.death_sentence import last_exits, said
from condor_joblens.jobs.run_state import STATE
from condor_joblens.model import failures
from condor_joblens.model.events import EVENT, SINKS_WITHOUT_EVENTS, EventKind
from condor_joblens.model.metrics import empty_rows
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.registry import SHIPPED, load
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.process_ring import EVENTS_AT_A_TIME


class Ring:
    """A ring of process events, filled by hand."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.batches: list[np.ndarray] = []
        self.taken = 0

    def fileno(self) -> int:
        return self.reader

    def put(self, *events: np.ndarray) -> None:
        for first in range(0, len(events), EVENTS_AT_A_TIME):
            self.batches.append(np.concatenate(events[first : first + EVENTS_AT_A_TIME]))
            os.write(self.writer, b"x")

    def take(self) -> np.ndarray:
        self.taken += 1
        with_something = bool(self.batches)
        if with_something:
            os.read(self.reader, 1)
        nothing: np.ndarray = np.zeros(0, map_layout.PROCESS_EVENT)
        return self.batches.pop(0) if with_something else nothing


class Told(list[Any]):
    """The ring of events."""

    def append(self, events: np.ndarray) -> None:
        assert events.dtype == EVENT
        self.extend(events.copy())  # their maker uses its memory again


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Any:
    # as much CPU time as a busy machine takes: what is late is said to be so by a test of its own
    monkeypatch.setattr(process_events, "AT_END_SECONDS", 600.0)
    rows, state = empty_rows(3), np.zeros(3, STATE)
    rows["run_number"] = [11, 12, 13]
    state["used"], state["kernel_slot"], state["cgroup_id"] = True, [4, 2, -1], [104, 102, 103]
    by_cgroup = {104: 0, 102: 1, 103: 2}
    runs = SimpleNamespace(rows=rows, by_cgroup=by_cgroup, state=state, living=lambda: np.flatnonzero(state["used"]))
    losses: dict[str, int] = {}
    woken: list[bool] = []
    counters: np.ndarray = np.zeros(8, map_layout.COUNTERS)
    counters["cgroup_id"][[4, 2]] = 104, 102
    tracer = SimpleNamespace(
        sensors={},
        failures=lambda slot, tgid: failures.Failures(),
        processes=Ring(),
        counters=counters,
        new_process_losses=lambda: dict(losses),
        lost=lambda: 0,
        wake_for_process_events=lambda at_once: woken.append(at_once),
    )
    config = SimpleNamespace(sinks=("kafka", "prometheus"), arguments=True)
    node: Any = SimpleNamespace(runs=runs, tracer=tracer, config=config, events=Told(), losses=losses, woken=woken)
    node.log, node.describe = [], lambda run: f"run {run}"
    node.events_of_unborn, node.events_ahead = [], []
    node.failures = Failures(node.log.append)
    node.guard = RunGuard(node, node.failures)
    node.handles, node.update_note = {1: SimpleNamespace(notes={})}, lambda run: None
    node.agent = SimpleNamespace(node=node, output=SimpleNamespace(events=EventEmitter(node, node.events)))
    return node


def event(slot: int, cgroup: int, code: int | None = None, program: bytes = b"job", flags: int = 0) -> np.ndarray:
    """An exec, or an exit with that code."""
    found: np.ndarray = np.zeros(1, map_layout.PROCESS_EVENT)
    found["slot"], found["cgroup_id"], found["program"], found["flags"] = slot, cgroup, program, flags
    found["kind"] = map_layout.PROCESS_EXEC if code is None else map_layout.PROCESS_EXIT
    found["exit_code"], found["tgid"] = code or 0, 99
    return found


def test_each_event_is_of_the_run_in_whose_slot_it_happened(node: Any) -> None:
    stale = event(4, 999)  # of a cgroup that had this index before
    node.tracer.processes.put(event(2, 102), stale, event(4, 104), event(2, 102, 256))
    assert process_events.drain(node.agent) == 4
    assert [(one["run_number"], one["kind"]) for one in node.events] == [
        (12, EventKind.EXEC), (11, EventKind.EXEC), (12, EventKind.EXIT),
    ]  # fmt: skip


def test_an_administrator_can_have_the_names_of_programs_alone(node: Any) -> None:
    def told(*commands: bytes) -> list[tuple[bytes, bytes]]:
        node.events.clear()
        started = [event(2, 102, program=b"python3") for _ in commands]
        for each, command in zip(started, commands):
            each["command"], each["command_bytes"] = command, len(command)
        node.tracer.processes.put(*started, event(2, 102, 256, b"python3"))
        process_events.drain(node.agent)
        return [(one["program"], one["text"]) for one in node.events]

    commands = b"python3\0fit.py\0alice", b"python3\0fit.py\0--token\0abc", b"python3\0" + b"x" * 240
    shown = told(*commands)
    assert shown[0] == (b"python3", b"python3 fit.py alice") and b"--token" in shown[1][1]
    node.config.arguments = False
    withheld = (b"python3", WITHHELD.encode())
    assert told(*commands) == [withheld, withheld, withheld, (b"python3", b"")]


def test_an_event_that_comes_before_its_slots_birth_waits_for_it(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_events.time, "monotonic_ns", lambda: 5_000_000_000)
    early, late = event(2, 102), event(5, 105)
    late["time_ns"] = 4_999_000_000
    node.tracer.processes.put(early, late)
    assert process_events.drain(node.agent) == 2
    assert [one["run_number"] for one in node.events] == [12]
    assert process_events.drain(node.agent) == 0  # its birth has still not been told
    node.runs.by_cgroup[105] = 0
    node.tracer.processes.put(event(5, 105, 0))
    assert process_events.drain(node.agent) == 1
    assert [(one["run_number"], one["kind"]) for one in node.events[1:]] == [(11, EventKind.EXEC), (11, EventKind.EXIT)]
    assert node.events_of_unborn == []


def test_an_event_without_a_birth_is_nobodys_after_a_while(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5_000_000_000]
    monkeypatch.setattr(process_events.time, "monotonic_ns", lambda: now[0])
    stray = event(5, 105)
    stray["time_ns"] = now[0]
    node.tracer.processes.put(stray)
    process_events.drain(node.agent)
    now[0] += process_events.BIRTH_NS
    process_events.drain(node.agent)
    assert node.events_of_unborn == [] and node.events == []


def test_what_went_wrong_is_kept_for_its_run(node: Any) -> None:
    ends = [event(2, 102, 54 << 8, b"xrdcp"), event(4, 104, 0), event(2, 102, 11, b"reco")]
    node.tracer.processes.put(*ends, event(2, 102, 101 << 8, b"joblens_activat"))
    process_events.drain(node.agent)
    assert [said(one) for one in last_exits(node.runs.state["death"][1])] == ["xrdcp exited 54", "SIGSEGV in reco"]
    assert node.runs.rows["exits"][1].startswith(b"xrdcp exited 54 after ")
    assert node.runs.state["death"]["count"].tolist() == [0, 2, 0]


def test_at_an_end_what_went_wrong_is_recorded_first_and_shown_later(node: Any) -> None:
    node.tracer.processes.put(event(2, 102, 54 << 8, b"xrdcp"), event(4, 104), event(2, 102, 11, b"reco"))
    process_events.take_ahead(node.agent)
    assert [said(one) for one in last_exits(node.runs.state["death"][1])] == ["xrdcp exited 54", "SIGSEGV in reco"]
    assert node.events == []
    node.tracer.processes.put(event(2, 102, 1 << 8, b"last"))
    process_events.drain(node.agent)
    assert [bytes(one["program"]) for one in node.events] == [b"xrdcp", b"job", b"reco", b"last"]
    assert node.runs.state["death"]["count"].tolist() == [0, 3, 0], "each is recorded once"


def test_what_was_taken_ahead_of_its_slots_birth_is_recorded_with_it(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_events.time, "monotonic_ns", lambda: 0)
    node.tracer.processes.put(event(5, 105, 256))
    process_events.take_ahead(node.agent)
    process_events.drain(node.agent)
    assert node.events == []
    node.runs.by_cgroup[105] = 0
    process_events.drain(node.agent)
    assert [one["run_number"] for one in node.events] == [11] and node.runs.state["death"]["count"][0] == 1


def test_a_death_is_recorded_though_its_events_came_at_the_end_of_another_run(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs of milliseconds on a busy node: the one's birth is told after the other's end has taken its events."""
    monkeypatch.setattr(process_events.time, "monotonic_ns", lambda: 0)
    node.tracer.processes.put(event(5, 105, program=b"sh"), event(2, 102, 256, b"grep"), event(5, 105, 11, b"reco"))
    process_events.take_ahead(node.agent)
    node.runs.by_cgroup[105] = 0
    process_events.take_ahead(node.agent)
    assert [said(one) for one in last_exits(node.runs.state["death"][0])] == ["SIGSEGV in reco"]
    process_events.drain(node.agent)
    assert sorted((one["run_number"], bytes(one["program"])) for one in node.events) == [
        (11, b"reco"), (11, b"sh"), (12, b"grep"),
    ]  # fmt: skip
    assert node.runs.state["death"]["count"].tolist() == [1, 1, 0], "each is recorded once"
    assert node.events_of_unborn == [] and node.events_ahead == []


def test_a_death_is_recorded_though_its_birth_was_told_between_its_events_and_their_showing(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_events.time, "monotonic_ns", lambda: 0)
    node.tracer.processes.put(event(5, 105, 11, b"reco"))
    process_events.take_ahead(node.agent)
    node.runs.by_cgroup[105] = 0
    process_events.read_batch(node.agent)
    assert [said(one) for one in last_exits(node.runs.state["death"][0])] == ["SIGSEGV in reco"]
    assert [one["run_number"] for one in node.events] == [11]


def test_a_death_is_recorded_though_its_events_were_read_before_its_birth_was_told(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_events.time, "monotonic_ns", lambda: 0)
    node.tracer.processes.put(event(5, 105, 11, b"reco"))
    process_events.read_batch(node.agent)
    node.runs.by_cgroup[105] = 0
    process_events.take_ahead(node.agent)
    assert [said(one) for one in last_exits(node.runs.state["death"][0])] == ["SIGSEGV in reco"]


def test_an_event_that_can_not_be_handled_costs_itself(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_for_one(program: bytes, command: bytes) -> str:
        if program == b"evil":
            raise ZeroDivisionError
        return program.decode()

    monkeypatch.setattr(process_events, "program_of", fails_for_one)
    node.tracer.processes.put(event(2, 102, 256, b"evil"), event(4, 104, 256, b"grep"), event(2, 102, 512, b"sed"))
    process_events.drain(node.agent)
    assert [(one["program"], one["exit_code"]) for one in node.events] == [(b"", 256), (b"grep", 256), (b"sed", 512)]
    assert any("ZeroDivisionError" in line for line in node.log)


def test_a_flood_of_command_lines_leaves_others_their_time(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of one run's before and behind the only one of another's, and time for three of them."""
    shown: list[bytes] = []

    class Three:
        def __init__(self, seconds: float) -> None:
            pass

        @property
        def is_late(self) -> bool:
            return len(shown) >= 3

        def line(self, command: bytes, cut: bool = False) -> str:
            shown.append(command)
            return command.decode()

    monkeypatch.setattr(process_events, "Redactor", Three)
    flood, other = event(2, 102, program=b"sh"), event(4, 104, program=b"sh")
    flood["command"], other["command"] = b"sh\0--token\0flood", b"sh\0--token\0other"
    flood["command_bytes"] = other["command_bytes"] = len(b"sh\0--token\0flood")
    node.tracer.processes.put(*[flood] * 20, other, *[flood] * 20)
    process_events.read_batch(node.agent)
    assert [one["run_number"] for one in node.events] == [12] * 20 + [11] + [12] * 20
    assert node.events[20]["text"].endswith(b"other") and node.events[40]["text"] == WITHHELD.encode()


def test_exits_that_can_not_be_recorded_cost_their_run(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add = death.add_exits

    def fails_for_one(kept: np.ndarray, found: np.ndarray, causes: dict[int, str]) -> None:
        if found["cgroup_id"][0] == 102:
            raise ZeroDivisionError
        add(kept, found, causes)

    monkeypatch.setattr(death, "add_exits", fails_for_one)
    node.tracer.processes.put(event(2, 102, 256), event(4, 104, 512))
    assert process_events.drain(node.agent) == 2
    assert node.runs.state["death"]["count"].tolist() == [1, 0, 0]
    assert "failed at abnormal exits" in node.handles[1].notes["failed abnormal exits"]


def test_of_thousands_of_failures_the_first_and_the_last_are_kept(node: Any) -> None:
    node.tracer.processes.put(*(event(2, 102, (number % 255 + 1) << 8, b"p%d" % number) for number in range(3000)))
    process_events.drain(node.agent)
    death = node.runs.state["death"][1]
    assert death["count"] == 3000 and death["first"]["program"] == b"p0"
    assert last_exits(death)[-1]["program"] == b"p2999" and len(node.events) == 3000


def test_a_victim_has_its_limit(node: Any) -> None:
    node.runs.rows["memory_limit_bytes"] = [1, 4096, 3]
    victim = event(2, 102, 9, b"greedy", map_layout.PROCESS_OOM_VICTIM)
    victim["resident_pages"] = victim["peak_pages"] = 1
    node.tracer.processes.put(event(4, 104), victim)
    process_events.drain(node.agent)
    oom = [one for one in node.events if one["kind"] == EventKind.OOM]
    told = [(one["limit"], one["value"], one["program"]) for one in oom]
    assert told == [(4096, os.sysconf("SC_PAGE_SIZE"), b"greedy")]
    assert node.runs.state["death"][1]["victim"]["program"] == b"greedy"


def test_losses_are_events(node: Any) -> None:
    node.losses.update(exec=3)
    node.agent.output.events.process_losses()
    loss = node.events[0]
    assert (loss["kind"], loss["value"], loss["run_number"]) == (EventKind.LOSS, 3, 0)
    assert loss["text"] == b"exec events in the kernel"


def test_what_exceeds_a_run_s_share_is_declared_for_it_once(node: Any) -> None:
    counters = node.tracer.counters
    counters["events_lost"][2] = 5
    counters["events_lost"][7] = 9  # of no run
    for more in (0, 3):
        counters["events_lost"][2] += more
        node.agent.output.events.process_losses()
        node.agent.output.events.process_losses()
    told = [(one["kind"], one["run_number"], one["value"], one["text"]) for one in node.events]
    words = b"process events beyond JOBLENS_MAX_EVENTS"
    assert told == [(EventKind.LOSS, 12, 5, words), (EventKind.LOSS, 12, 3, words)]
    assert node.handles[1].notes == {"events": "more starts and ends of programs than JOBLENS_MAX_EVENTS"}


class Clock:
    """Time that goes on only if it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return int(self.now * 1e9)

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(process_events, "time", clock)
    monkeypatch.setattr(throttle, "time", clock)
    monkeypatch.setattr(throttle, "working_time", clock.monotonic)
    return clock


def serve(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(0):
        key.data()


def test_for_a_sink_they_are_looked_at_in_batches_while_they_come(node: Any, clock: Clock) -> None:
    selector, ring = selectors.DefaultSelector(), node.tracer.processes
    batches = process_events.Batches(node.agent, selector)
    assert batches.timeout(clock.now) == 3600.0 and node.woken == [True]
    ring.put(event(2, 102))
    serve(selector)
    assert len(node.events) == 1 and batches.timeout(clock.now) == pytest.approx(process_events.LINGER)
    # more comes, and waits: the selector does not tell, and a round does not read
    ring.put(event(2, 102))
    serve(selector)
    batches.resume(clock.now)
    batches.begin_round()
    assert len(node.events) == 1
    clock.now += 1.001 * process_events.LINGER
    batches.resume(clock.now)
    assert len(node.events) == 2 and batches.timeout(clock.now) == pytest.approx(process_events.LINGER)
    # then nothing: the selector is asked again
    clock.now += 1.001 * process_events.LINGER
    batches.resume(clock.now)
    assert batches.timeout(clock.now) == 3600.0
    ring.put(event(2, 102))
    serve(selector)
    assert len(node.events) == 3


def test_without_a_sink_they_are_looked_at_once_a_round(node: Any, clock: Clock) -> None:
    node.config.sinks = ("prometheus", "prmon")
    selector, ring = selectors.DefaultSelector(), node.tracer.processes
    batches = process_events.Batches(node.agent, selector)
    assert node.woken == [False]
    for _ in range(3):
        ring.put(event(2, 102), event(4, 104))
        batches.begin_round()
    assert len(node.events) == 6 and batches.timeout(clock.now) == 3600.0
    # the ring is a quarter full
    ring.put(event(2, 102))
    serve(selector)
    assert len(node.events) == 7 and batches.timeout(clock.now) == 3600.0
    # what was not taken away wakes nobody again
    ring.batches.append(event(2, 102))
    os.write(ring.writer, b"xx")
    serve(selector)
    taken = ring.taken
    serve(selector)
    assert ring.taken == taken


def test_ends_of_runs_are_served_between_two_batches(node: Any, clock: Clock) -> None:
    selector, ring = selectors.DefaultSelector(), node.tracer.processes
    batches = process_events.Batches(node.agent, selector)
    ring.put(*[event(2, 102)] * (2 * EVENTS_AT_A_TIME + 1))
    serve(selector)
    for read in (1, 2, 3):
        assert ring.taken == read
        clock.now += 1.001 * batches.timeout(clock.now)
        batches.resume(clock.now)
    assert len(node.events) == 2 * EVENTS_AT_A_TIME + 1


def test_the_first_sink_for_events_is_served_from_the_next_round_on(node: Any, clock: Clock) -> None:
    node.config.sinks = ("prometheus",)
    selector, ring = selectors.DefaultSelector(), node.tracer.processes
    batches = process_events.Batches(node.agent, selector)
    ring.put(event(2, 102))
    node.config.sinks = ("prometheus", "file")
    batches.begin_round()
    assert node.woken == [False, True] and len(node.events) == 1
    clock.now += 2 * process_events.LINGER
    batches.resume(clock.now)
    ring.put(event(2, 102))
    serve(selector)
    assert len(node.events) == 2


@pytest.mark.parametrize("sinks", [("kafka",), ("prometheus",)])
def test_events_get_a_share_of_the_time(node: Any, clock: Clock, sinks: tuple[str, ...]) -> None:
    node.config.sinks = sinks
    selector, ring = selectors.DefaultSelector(), node.tracer.processes
    append = node.events.append

    def slowly(events: np.ndarray) -> None:
        clock.now += 0.3
        append(events)

    node.events.append = slowly
    batches = process_events.Batches(node.agent, selector)
    began = clock.now
    while clock.now < began + 60:
        ring.put(event(2, 102))
        serve(selector)
        batches.begin_round()
        clock.now += min(1.0, batches.timeout(clock.now))
        batches.resume(clock.now)
    assert 0.3 * len(node.events) < 60 * throttle.SHARE + process_events.SAVED_SECONDS + 0.3


def test_the_sinks_that_take_no_events_are_known() -> None:
    without = {name for name in SHIPPED if RecordKind.EVENT not in load(name).takes}
    assert without == SINKS_WITHOUT_EVENTS
