"""Traces that stand for the life of runs: whose are begun, when they end, and what becomes of what they say."""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from agent_node import Made, make
from traced_samples import BEGUN, content

from condor_joblens.agent import function_traces, script_shares, traces
from condor_joblens.agent.function_traces import FunctionTraces, described
from condor_joblens.agent.levels import level_arbiter, policy_decisions, standing_requests
from condor_joblens.agent.output import run_artifacts
from condor_joblens.agent.traces import Traces
from condor_joblens.common import descriptors
from condor_joblens.control.child_output import MOST, NOTICE, WHOLE
from condor_joblens.control.verbs import Refused
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import text
from condor_joblens.policy import trace_request
from condor_joblens.policy.policy_answers import Decision
from condor_joblens.profiles import traced_commands
from condor_joblens.shm.artifacts import ArtifactReader, ArtifactWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.tracer.sensors import Recorder
from condor_joblens.tracing import followers, for_triggers
from condor_joblens.tracing import standing_messages as messages
from condor_joblens.tracing.standing_messages import Listed, Sums

SHELLS = {
    "Begun": BEGUN, "Ended": BEGUN, "Notes": [], "Folded": 0, "Probed": [], "Lines": [],
    "Sums": {**dict.fromkeys(traced_commands.COUNTS, 3), "Seconds": 0.5},
}  # fmt: skip


class StandingOnes(Traces):
    """What starts them, without processes."""

    def __init__(self, made: Made) -> None:
        super().__init__(made.node, None, None, selectors.DefaultSelector())
        self.begun: list[tuple[int, tuple[str, ...]]] = []
        self.ends: list[socket.socket] = []
        self.requests: list[Mapping[str, float]] = []
        self.refuses = ""

    def _check(self) -> None:
        """They can be begun, here without processes."""

    def stand(
        self, run: int, cgroup: int, sandbox: Any, specs: Sequence[str], request: Mapping[str, float]
    ) -> socket.socket:
        if self.refuses:
            raise Refused(self.refuses)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.begun.append((run, tuple(specs)))
        self.requests.append(request)
        self.ends.append(theirs)
        return ours


class Node:
    """joblensd with such traces."""

    def __init__(self, made: Made, tmp_path: Path) -> None:
        self.made, self.selector = made, selectors.DefaultSelector()
        self.starts = StandingOnes(made)
        self.all: FunctionTraces = made.agent.function_traces
        self.all.open(self.starts, self.selector)
        output = made.agent.output
        folder = str(tmp_path / "artifacts")
        output.artifacts.store = ArtifactWriter(folder, run_artifacts.limits(made.node.config, folder))
        output.events.ring = EventWriter(str(tmp_path / "events"), 0, os.getgid())

    def begin(self, asks: str, level: Level = Level.TRACE, job: str = "1.0") -> int:
        run = self.made.begin(job, level)
        self.made.levels.inputs[run].trace = trace_request.of_text(asks)
        level_arbiter.explain(self.made.levels, run)
        return run

    def of(self, run: int, user: int) -> int:
        """The run is this user's."""
        self.made.node.handles[run].sandbox.scratch_uid = user  # type: ignore[union-attr]
        return run

    def say(self, *said: bytes, to: int = -1) -> None:
        """What a trace says, and joblensd hears."""
        for message in said:
            self.starts.ends[to].send(message)
        self.hear()

    def hear(self) -> None:
        while ready := self.selector.select(0):
            for key, _ in ready:
                key.data()

    def is_ended(self, at: int = -1) -> bool:
        """Whether joblensd has closed its end."""
        try:
            while self.starts.ends[at].recv(MOST, socket.MSG_DONTWAIT):
                pass  # it was told something before
            return True
        except BlockingIOError:
            return False

    def row(self, run: int, column: str) -> Any:
        return self.made.node.runs.rows[column][run]

    def note(self, run: int) -> str:
        return text(self.row(run, "note"))

    def kept(self) -> list[bytes]:
        store = self.made.agent.output.artifacts.store
        names = [each.name for each in store.stored() if each.name.endswith(".trace")]
        return [ArtifactReader(store.folder).read(name)[1] for name in names]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(function_traces, "open_cgroup", lambda path, number: os.open("/", os.O_RDONLY))
    found = Node(make(tmp_path, monkeypatch, max_level=Level.TRACE), tmp_path)
    yield found
    for end in found.starts.ends:
        end.close()
    for key in list(found.selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    found.selector.close()


def sums(calls: int, seconds: float = 1.5, unseen: float | None = 0.5, begun: float = BEGUN) -> bytes:
    return messages.packed(
        Sums(calls, 2, seconds, begun, unseen, (Listed("fit(int)\x1b[2J", calls, 2, seconds, False, 9.0),))
    )


def kept(made: bytes, begun: float = BEGUN) -> list[bytes]:
    parts = [messages.PART + made[at : at + MOST - 1] for at in range(0, len(made), MOST - 1)]
    return [*parts, messages.KEEP + messages.SPAN.pack(begun, begun + 10)]


def test_a_job_at_level_trace_that_asks_is_traced_once(node: Node) -> None:
    run = node.begin("reco:fit; python:raises; reco:load")
    node.begin("reco:fit", Level.PROFILE, "2.0")
    node.begin("", Level.TRACE, "3.0")
    for _ in range(3):
        node.all.tick()
    assert node.starts.begun == [(run, ("reco:fit", "reco:load"))]
    assert node.note(run) == ""


def test_a_trace_that_stands_can_be_followed(node: Node) -> None:
    run, other = node.begin("reco:fit"), node.begin("", Level.TRACE, "3.0")
    node.all.tick()
    ours = node.starts.start(run, -1, None, {"spec": "", "seconds": 60, "follow": True}, 1000)  # type: ignore[arg-type]
    packet, (theirs,) = descriptors.receive(node.starts.ends[0], 1000, 1)
    assert packet == followers.request(60.0)
    with ours, socket.socket(fileno=theirs) as teller:
        teller.send(b"a call")
        assert ours.recv(100) == b"a call"
    with pytest.raises(Refused, match="name a function, FILE:FUNCTION, or bash"):
        node.starts.start(other, -1, None, {"spec": "", "seconds": 60, "follow": True}, 1000)  # type: ignore[arg-type]


def test_looks_of_all_traces_share_some_of_joblensds_cpu(node: Node) -> None:
    """The first is told when a second one comes."""
    node.begin("prog:one")
    node.all.tick()
    (alone,) = node.starts.requests
    node.begin("prog:two", job="2.0")
    node.all.tick()
    assert json.loads(asked(node, 0)) == node.starts.requests[1] == {"looking": alone["looking"] / 2}
    assert alone["looking"] == pytest.approx(script_shares.OF_LOOKS * node.made.node.config.max_cpu)


def test_the_attribute_alone_grants_nothing(node: Node) -> None:
    run = node.begin("reco:fit", Level.IO)
    node.all.tick()
    assert not node.starts.begun and node.note(run) == "JobLensTrace needs level trace: no function is traced"


def test_a_bad_spec_is_told_and_the_good_ones_are_traced(node: Node) -> None:
    run = node.begin("reco:fit; fit")
    node.all.tick()
    assert node.starts.begun == [(run, ("reco:fit",))]
    assert node.note(run).startswith("JobLensTrace: fit is not traced: write FILE:FUNCTION")


def test_a_policy_can_want_it_and_what_it_writes_wrong_is_in_the_log(node: Node) -> None:
    run = node.begin("reco:fit")
    decision = Decision(Level.TRACE, None, "", "rule", "", "", traced="libXrdCl.so*:*Open*; nothing")
    policy_decisions.record(node.made.levels, run, decision)
    node.all.tick()
    assert node.starts.begun == [(run, ("libXrdCl.so*:*Open*", "reco:fit"))]
    assert any("policies: trace: nothing is not traced" in line for line in node.made.log)


def test_before_anybody_has_decided_nothing_is_traced(node: Node) -> None:
    run = node.begin("reco:fit")
    node.made.levels.inputs[run].is_decided = False
    node.all.tick()
    assert not node.starts.begun and standing_requests.FUNCTIONS.note(node.made.levels, run) == ""


def test_it_ends_when_the_level_is_lowered_and_counts_go_on_when_it_comes_back(node: Node) -> None:
    run = node.begin("reco:fit")
    node.all.tick()
    node.say(sums(40), sums(100))
    rows = node.made.node.runs.rows
    rows["level_number"][run] = Level.IO
    node.all.tick()
    assert node.is_ended()
    rows["level_number"][run] = Level.TRACE
    node.all._not_before.clear()
    node.all.tick()
    node.say(sums(7, begun=BEGUN + 60))
    assert (node.row(run, "trace_calls"), node.row(run, "trace_unwound")) == (107, 4)
    assert node.row(run, "trace_seconds") == pytest.approx(3.0)
    assert node.row(run, "trace_from_time") == BEGUN + 60


def test_sums_are_in_the_row_fit_to_print(node: Node) -> None:
    run = node.begin("reco:fit")
    node.all.tick()
    node.say(sums(40))
    assert text(node.row(run, "trace_functions")) == "fit(int)\\x1b[2J 40 calls 1.5 s, 2 unwound"
    assert (node.row(run, "trace_calls"), node.row(run, "trace_unseen_seconds")) == (40, 0.5)
    node.say(sums(41, unseen=None))
    assert node.row(run, "trace_unseen_seconds") != node.row(run, "trace_unseen_seconds")  # not known


def test_before_a_function_was_probed_nothing_is_in_the_row(node: Node) -> None:
    run = node.begin("reco:fit")
    node.all.tick()
    node.say(sums(0, begun=0.0))
    assert node.row(run, "trace_calls") == -1 and node.row(run, "trace_functions") == b""


def test_a_count_that_stopped_says_the_time_that_it_covers() -> None:
    assert described(Listed("hot", 100, 0, 0.25, True, 3.25)) == "hot 100 calls 0.25 s, counted for 3.25 s alone"


def test_what_is_kept_takes_the_place_of_what_was_before(node: Node) -> None:
    node.begin("reco:fit")
    node.all.tick()
    node.say(*kept(b"first" * 30_000))
    node.say(*kept(content()))
    assert node.kept() == [content()]
    node.say(WHOLE)
    node.starts.ends[-1].close()
    node.hear()
    assert not node.all._running


def test_what_comes_after_the_end_of_the_run_is_kept_too(node: Node) -> None:
    run = node.begin("reco:fit")
    node.all.tick()
    node.made.node.runs.rows["final"][run] = True
    node.all.tick()
    assert not node.is_ended()
    node.say(sums(40), *kept(content()))
    assert node.kept() == [content()] and node.row(run, "trace_calls") == -1  # its last row stands


def test_of_a_run_so_many_are_kept(node: Node) -> None:
    node.begin("reco:fit")
    for number in range(function_traces.MOST_KEPT + 3):
        node.all._not_before.clear()
        node.all.tick()
        node.say(*kept(b"%d" % number))
        node.starts.ends[-1].close()
        node.hear()
    assert node.kept() == [b"%d" % number for number in range(3, function_traces.MOST_KEPT + 3)]


def listen(node: Node, *kinds: EventKind) -> list[np.ndarray]:
    """What triggers are told that want these kinds."""
    heard: list[np.ndarray] = []
    events = node.made.agent.output.events
    events.listener, events.wanted_kinds = heard.append, frozenset(kinds)
    return heard


def asked(node: Node, at: int = -1) -> bytes:
    """What a trace was told that triggers want; empty: nothing."""
    try:
        return node.starts.ends[at].recv(1000, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def events(count: int, untold: int = 0, kind: EventKind = EventKind.FUNCTION) -> bytes:
    made: np.ndarray = np.zeros(count, EVENT)
    made["kind"], made["run_number"], made["text"] = kind, 4711, b"fit"
    return messages.packed_events(untold, made)


def test_triggers_are_told_calls_if_one_wants_them(node: Node) -> None:
    run = node.begin("reco:fit")
    node.all.tick()
    assert asked(node) == b""
    heard = listen(node, EventKind.FUNCTION, EventKind.SIGNAL)
    node.all.tick()
    assert asked(node) == for_triggers.request({EventKind.FUNCTION}, node.made.node.config.max_events)
    node.all.tick()
    assert asked(node) == b""
    node.say(events(2), events(1, untold=70))
    assert [len(each) for each in heard] == [2, 1]
    assert {int(each["run_number"][0]) for each in heard} == {int(node.row(run, "run_number"))}
    assert node.note(run) == "triggers were not told of 70 calls: they are more than JOBLENS_MAX_EVENTS"
    listen(node)
    node.all.tick()
    assert b'"tell": []' in asked(node)


def test_a_trace_waits_a_moment_for_the_flight_recorder(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor: Any = MagicMock(spec=Recorder, rows=4, loaded=None, missing={})
    node.made.node.tracer.sensors = {"recorder": MagicMock(sensor=sensor)}  # type: ignore[misc]
    run = node.begin("reco:fit")
    node.all.tick()
    assert not node.starts.begun
    sensor.loaded, sensor.places = MagicMock(), (16, 48)
    sensor.for_traces.return_value = [5, 6, 7]
    node.made.node.runs.state["kernel_slot"][run] = 3
    node.all.tick()
    assert node.starts.begun == [(run, ("reco:fit",))]
    assert node.starts._recorder(run) == ({"recorder": {"slot": 3, "places": [16, 48]}}, [5, 6, 7])
    sensor.loaded = None
    other = node.begin("reco:fit", job="2.0")
    node.all.tick()
    monkeypatch.setattr(traces, "RECORDER_SECONDS", 0.0)
    node.all.tick()
    assert node.starts.begun[1:] == [(other, ("reco:fit",))]


def test_what_cpp_throws_is_traced_for_triggers_and_nothing_is_kept(node: Node) -> None:
    throws = node.made.agent.throw_traces
    throws.open(node.starts, node.selector)
    heard = listen(node, EventKind.EXCEPTION)
    run, low = node.begin("throws; reco:fit"), node.begin("throws", Level.IO, "2.0")
    throws.tick()
    assert node.starts.begun == [(run, ("throws",))]
    assert asked(node) == for_triggers.request({EventKind.EXCEPTION}, node.made.node.config.max_events)
    node.say(events(1, kind=EventKind.EXCEPTION))
    assert len(heard[0]) == 1 and not node.kept()
    assert node.note(low) == "JobLensTrace needs level trace: no exception of C++ is traced"
    assert node.note(node.begin("reco:__cxa_throw", job="3.0")).endswith("write throws for what C++ programs throw")


@pytest.mark.parametrize(
    "said",
    [
        events(1, kind=EventKind.EXEC),
        events(1)[:-1],
        messages.EVENTS,
        events(1)[:9] + b"\xff" * EVENT.itemsize,
        b"x",
        messages.SUMS + b"{}",
        messages.SUMS + b"[",
        messages.KEEP + b"short",
        messages.SUMS + b'{"calls":-1}',
    ],
)
def test_a_trace_that_says_what_makes_no_sense_is_ended(node: Node, said: bytes) -> None:
    run = node.begin("reco:fit")
    node.all.tick()
    node.say(said)
    assert node.is_ended() and "its trace was ended" in node.note(run)
    node.all.tick()
    assert len(node.starts.begun) == 1  # not again at once


def test_more_than_is_kept_is_not_held(node: Node) -> None:
    node.begin("reco:fit")
    node.all.tick()
    for _ in range(20):
        if node.is_ended():
            break
        node.say(messages.PART + bytes(MOST - 1))
    assert node.is_ended() and not node.kept()


def test_what_it_says_to_people_is_in_the_note(node: Node) -> None:
    run = node.begin("reco:fti")
    node.all.tick()
    node.say(NOTICE + b"/home/alice/reco has no function like fti\x1b; is it one of these: fit?")
    assert node.note(run) == "JobLensTrace: /home/alice/reco has no function like fti\\x1b; is it one of these: fit?"


def test_a_node_that_can_trace_nothing_says_so(node: Node) -> None:
    run = node.begin("reco:fit")
    node.starts.refuses = "nothing can be traced on this node"
    node.all.tick()
    assert node.note(run) == "JobLensTrace: no function is traced: nothing can be traced on this node"


def test_who_has_most_places_gives_one_up_and_his_job_waits(node: Node) -> None:
    of_one = [node.begin("reco:fit", job=f"{number}.0") for number in range(function_traces.MOST_AT_ONCE + 2)]
    for run in of_one:
        node.of(run, 1001)
    node.made.node.runs.state["policy_priority"][of_one[0]] = -1  # of all, the least important to him
    node.all.tick()
    begun = [run for run, _ in node.starts.begun]
    assert begun == of_one[: function_traces.MOST_AT_ONCE]
    said = "JobLensTrace: no function is traced: 16 jobs are traced here already, 16 of them of this user"
    assert [node.note(run) for run in of_one[-2:]] == [said, said]
    other = node.of(node.begin("reco:fit", job="99.0"), 1002)
    node.all.tick()
    assert node.starts.begun[-1][0] == other and node.note(other) == ""
    assert node.is_ended(0) and not any(node.is_ended(at) for at in range(1, len(node.starts.ends)))
    said = "JobLensTrace: no function is traced any more: a job of another user, who has fewer, has its place"
    assert node.note(of_one[0]) == said
    node.all._not_before.clear()
    node.all.tick()  # it does not come back at the other one's cost
    assert len(node.starts.begun) == function_traces.MOST_AT_ONCE + 1


def test_nobody_goes_for_a_trace_that_does_not_begin(node: Node) -> None:
    for number in range(function_traces.MOST_AT_ONCE):
        node.of(node.begin("reco:fit", job=f"{number}.0"), 1001)
    node.all.tick()
    node.starts.refuses = "the job's folder is unknown"
    node.of(node.begin("reco:fit", job="99.0"), 1002)
    node.all.tick()
    assert not any(node.is_ended(at) for at in range(function_traces.MOST_AT_ONCE))


def test_what_root_has_raised_is_the_last_to_go(node: Node) -> None:
    runs = [node.of(node.begin("reco:fit", job=f"{number}.0"), 1001) for number in range(function_traces.MOST_AT_ONCE)]
    node.made.node.runs.state["is_overridden"][runs[:-1]] = True
    node.made.node.runs.state["override_by_root"][runs[:-1]] = True
    node.made.node.runs.state["policy_priority"][runs[-1]] = 50
    node.all.tick()
    node.of(node.begin("reco:fit", job="99.0"), 1002)
    node.all.tick()
    assert node.is_ended(len(runs) - 1)


def test_scripts_have_a_trace_of_their_own(node: Node) -> None:
    """Each of the two is begun, and ended, by itself; and may cost half of what one alone may."""
    shells = node.made.agent.shell_traces
    shells.open(node.starts, node.selector)
    run = node.begin("bash; reco:fit")
    node.all.tick()
    shells.tick()
    assert node.starts.begun == [(run, ("reco:fit",)), (run, ("bash",))] and node.starts.stands(run) == 2
    said = messages.packed_shell(messages.ShellSums(12, 3, 5, BEGUN, 0.5))
    made = traced_commands.encode(SHELLS, [])
    node.say(said, messages.PART + made, messages.KEEP + messages.SPAN.pack(BEGUN, BEGUN + 1))
    assert (node.row(run, "trace_commands"), node.row(run, "trace_failed_commands")) == (12, 3)
    assert node.row(run, "trace_commands_counted_alone") == 5
    store = node.made.agent.output.artifacts.store
    assert [each.name.partition(".")[2] for each in store.stored()] == [traced_commands.KIND]
    node.say(messages.SUMS + b'{"commands": -1}')
    assert node.is_ended() and not node.is_ended(0)
    assert "its trace was ended: a number that makes no sense" in node.note(run)


def test_scripts_are_not_traced_below_level_trace(node: Node) -> None:
    run = node.begin("bash", Level.IO)
    node.made.agent.shell_traces.open(node.starts, node.selector)
    node.made.agent.shell_traces.tick()
    assert not node.starts.begun and node.note(run) == "JobLensTrace needs level trace: no script is traced"


def test_beside_it_another_trace_may_cost_half(node: Node) -> None:
    assert node.starts.stands(node.begin("reco:fit")) and not node.starts.stands(node.begin("", job="2.0"))
