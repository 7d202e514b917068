"""Variables that jobs ask for: whose are read, when that ends, and what becomes of what their readers say."""

from __future__ import annotations

import json
import math
import os
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_node import Made, make

from condor_joblens.agent import peeks
from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.peeks import Peeks, as_number
from condor_joblens.common import descriptors
from condor_joblens.control.child_output import CONTENT, FAILED
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import text
from condor_joblens.policy import peek_request
from condor_joblens.profiling import peek_messages
from condor_joblens.profiling.peek_messages import Seen
from condor_joblens.publish.classad import usage_ads


class Readers:
    """What starts children, without processes."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.fails: OSError | None = None

    def start(self, channel: socket.socket, *others: int, **_: Any) -> None:
        if self.fails is not None:
            raise self.fails
        self.ends.append(channel.dup())


class Node:
    """joblensd with them."""

    def __init__(self, made: Made) -> None:
        self.made, self.selector, self.readers = made, selectors.DefaultSelector(), Readers()
        self.folder = os.open("/", os.O_PATH)
        self.all: Peeks = made.agent.peeks
        self.all.open(self.readers, self.selector)  # type: ignore[arg-type]

    def begin(self, asks: str, level: Level = Level.BASIC, job: str = "1.0", user: int = 0) -> int:
        run = self.made.begin(job, level)
        self.made.levels.inputs[run].peek = peek_request.of_text(asks)
        sandbox: Any = self.made.node.handles[run].sandbox
        sandbox.scratch, sandbox.scratch_uid = self.folder, user or sandbox.scratch_uid
        level_arbiter.explain(self.made.levels, run)
        return run

    def asked(self, at: int = -1) -> dict[str, Any]:
        packet, given = descriptors.receive(self.readers.ends[at], 10_000, 2)
        for each in given:
            os.close(each)
        found: dict[str, Any] = json.loads(packet)
        return found

    def say(self, *seen: Seen, at: int = -1) -> None:
        self.send(CONTENT + peek_messages.packed(seen), at)

    def send(self, packet: bytes, at: int = -1) -> None:
        self.readers.ends[at].send(packet)
        self.hear()

    def hear(self) -> None:
        while ready := self.selector.select(0):
            for key, _ in ready:
                key.data()

    def is_ended(self, at: int = -1) -> bool:
        try:
            while self.readers.ends[at].recv(1, socket.MSG_DONTWAIT):
                pass
        except BlockingIOError:
            return False
        return True

    def row(self, run: int, column: str) -> Any:
        return self.made.node.runs.rows[column][run]

    def note(self, run: int) -> str:
        return text(self.row(run, "note"))

    def knob(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self.made.node.config, name, value)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(peeks, "open_cgroup", lambda path, number: os.open("/", os.O_RDONLY))
    found = Node(make(tmp_path, monkeypatch))
    yield found
    for end in found.readers.ends:
        end.close()
    for key in list(found.selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    found.selector.close()
    os.close(found.folder)


def test_a_job_that_asks_has_its_values_in_its_row_and_ad(node: Node) -> None:
    run = node.begin("reco:event; reco:w::state.run[3]; reco:phase")
    node.begin("", job="2.0")
    for _ in range(3):
        node.all.tick()
    assert len(node.readers.ends) == 1
    asked = node.asked()
    assert asked["specs"] == ["reco:event", "reco:w::state.run[3]", "reco:phase"] and asked["follow"] is True
    assert asked["every"] == node.row(run, "period_seconds")
    config = node.made.node.config
    assert asked["files_share"] + config.max_peeks * asked["looks_share"] <= 0.6 * config.max_cpu + 1e-9
    node.say(Seen("4711"), Seen("0.5"), Seen("FIT (2)\x1b"))
    assert text(node.row(run, "peek_values")) == "event = 4711; w::state.run[3] = 0.5; phase = FIT (2)\\x1b"
    assert [node.row(run, f"peek_{name}") for name in ("first", "second")] == [4711.0, 0.5]
    assert math.isnan(node.row(run, "peek_third")) and math.isnan(node.row(run, "peek_fourth"))
    (ad,) = usage_ads(node.made.node.runs.rows[run : run + 1])
    assert 'Peek=[First=4711.0;Second=0.5;Values="event = 4711; w::state.run[3] = 0.5; phase = FIT (2)?"]' in ad
    assert node.note(run) == ""


def test_why_a_value_is_not_known_is_in_the_note_until_it_is(node: Node) -> None:
    run = node.begin("reco:evnt; reco:state")
    node.all.tick()
    node.say(Seen(why="no variable is called evnt (is it one of these: event?)"), Seen(why="not resident"))
    assert node.note(run) == "JobLensPeek: reco:evnt: no variable is called evnt (is it one of these: event?)"
    node.say(Seen("1"), Seen(why="not resident"))
    assert node.note(run) == "JobLensPeek: reco:state: not resident"
    node.say(Seen("1"), Seen("2"))
    assert node.note(run) == ""


def test_what_is_not_understood_is_told_and_the_rest_is_read(node: Node) -> None:
    run = node.begin("event; reco:event")
    node.all.tick()
    assert node.asked()["specs"] == ["reco:event"]
    assert node.note(run).startswith("JobLensPeek: event is not read: write FILE:NAME")


def test_a_site_can_forbid_it_and_a_job_that_is_not_watched_is_not_read(node: Node) -> None:
    node.begin("reco:event", Level.OFF)
    node.all.tick()
    node.knob(max_peeks=0)
    run = node.begin("reco:event", job="2.0")
    node.all.tick()
    assert not node.readers.ends
    assert node.note(run) == "JobLensPeek: this site reads no variables of jobs (JOBLENS_MAX_PEEKS)"


@pytest.mark.parametrize("said", [b"", b"[]", b"[[1, 2]]", b'[["1", ""], ["2", ""]]', b"[[" * 5000])
def test_who_says_what_can_not_be_is_ended(node: Node, said: bytes) -> None:
    run = node.begin("reco:event")
    node.all.tick()
    node.send(CONTENT + said)
    assert node.is_ended() and "JobLensPeek: no variable is read: " in node.note(run)
    node.all.tick()
    assert len(node.readers.ends) == 1, "not at once again"


def test_a_reader_that_ends_is_started_again_later_and_what_it_told_stays(node: Node) -> None:
    run = node.begin("reco:event")
    node.all.tick()
    node.say(Seen("7"))
    node.send(FAILED + b"it is \x1b")
    assert node.note(run) == "JobLensPeek: it is \\x1b"
    node.readers.ends[0].shutdown(socket.SHUT_RDWR)
    node.hear()
    node.all.tick()
    assert len(node.readers.ends) == 1 and node.row(run, "peek_first") == 7
    node.all._not_before.clear()
    node.all.tick()
    assert len(node.readers.ends) == 2
    node.say(Seen(why="no process of the job has a file like reco in its memory"))
    assert text(node.row(run, "peek_values")) == "event = 7" and node.row(run, "peek_first") == 7
    assert node.note(run) == "", "the new one has not seen the program that has ended"


def test_it_ends_with_the_run_or_its_level_and_begins_anew_with_another_period(node: Node) -> None:
    run = node.begin("reco:event")
    node.all.tick()
    rows = node.made.node.runs.rows
    rows["period_seconds"][run] = 30.0
    node.all.tick()
    assert node.is_ended(0) and node.asked(1)["every"] == 30.0
    rows["level_number"][run] = Level.OFF
    node.all.tick()
    assert node.is_ended(1)
    rows["level_number"][run] = Level.BASIC
    node.all.tick()
    rows["final"][run] = True
    node.all.tick()
    assert len(node.readers.ends) == 3 and node.is_ended(2)


def test_users_share_the_places(node: Node) -> None:
    node.knob(max_peeks=2)
    first, second, third = (node.begin("reco:event", job=f"{number}.0", user=1000) for number in (1, 2, 3))
    node.all.tick()
    assert len(node.readers.ends) == 2
    waits = next(run for run in (first, second, third) if node.note(run))
    assert node.note(waits) == (
        "JobLensPeek: no variable is read: variables of 2 jobs are read here already (JOBLENS_MAX_PEEKS)"
    )
    other = node.begin("reco:event", job="4.0", user=1001)
    node.all.tick()
    assert len(node.readers.ends) == 3 and node.note(other) == ""
    assert sum("has its place" in node.note(run) for run in (first, second, third)) == 1


def test_a_node_that_can_not_says_so(node: Node) -> None:
    run = node.begin("reco:event")
    node.readers.fails = OSError(11, "8 processes have not ended")
    node.all.tick()
    assert "8 processes have not ended" in node.note(run)
    node.all._not_before.clear()
    node.all.open(None, node.selector)
    node.all.tick()
    assert "can't become the job's owner" in node.note(run)


def test_what_a_number_is() -> None:
    values = {"4711": 4711.0, "0.5": 0.5, "1e+20": 1e20, "0": 0.0, "18446744073709551615": 2.0**64}
    assert {value: as_number(value) for value in values} == values
    for value in ("", "-7", "true", "FIT (2)", '"7"', "0x1f", "inf", "nan", "1e999", "1_0", "٣"):
        assert math.isnan(as_number(value)), value
