"""Looks at jobs, as joblensd hands them out: one at a time, and what a child says is only passed on."""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent import evidence
from condor_joblens.agent.evidence import Evidence
from condor_joblens.common import descriptors
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.control.verbs import Refused
from condor_joblens.jobs.death_sentence import EXIT, keep
from condor_joblens.jobs.run_state import STATE
from condor_joblens.model.metrics import empty_rows


class Reader:
    """The end of a stream, at which somebody takes what comes or not."""

    def __init__(self) -> None:
        self.data, self.refused, self.is_ended = b"", "", False
        self.has_room = True
        self.on_room: Any = None
        self.on_close: Any = None

    def send(self, data: bytes) -> bool:
        self.data += data
        return self.has_room

    def end(self, fields: object) -> None:
        self.is_ended = True

    def refuse(self, reason: str) -> None:
        self.refused = reason


class Children:
    """What starts children; a test is the child."""

    def __init__(self) -> None:
        self.channels: list[socket.socket] = []
        self.folders: list[int] = []
        self.killed: list[int] = []
        self.fails: BaseException | None = None
        self._wake, self._end = os.pipe()

    def fileno(self) -> int:
        return self._wake

    def start(self, channel: socket.socket, folder: int, for_whom: object, charge: object) -> Any:
        if isinstance(self.fails, OSError):
            raise self.fails
        self.channels.append(channel.dup())
        self.folders.append(folder)
        number = len(self.channels)
        return SimpleNamespace(kill=lambda: self.killed.append(number))

    def receive(self) -> None:
        os.read(self._wake, 10)
        if self.fails is not None:
            raise self.fails

    def report(self) -> None:
        os.write(self._end, b"x")


class Site:
    """A node with two runs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        rows, state = empty_rows(2), np.zeros(2, STATE)
        rows["run_number"], rows["job_id"] = [7, 8], [b"1.0", b"2.0"]
        state["used"], state["kernel_slot"] = True, [3, 4]
        runs = SimpleNamespace(rows=rows, state=state, living=lambda: np.flatnonzero(state["used"]))
        self.asked: list[tuple[int, int]] = []
        self.error: JobLensError | None = None
        handles = {run: SimpleNamespace(path=f"/cg/htcondor/slot{run}", sandbox=_sandbox(run)) for run in range(2)}
        self.node: Any = SimpleNamespace(
            runs=runs,
            handles=handles,
            tree=SimpleNamespace(mount="/cg"),
            tracer=SimpleNamespace(open_threads=self._open_threads),
            log=self.lines.append,
        )
        self.children = Children()
        self.selector = selectors.DefaultSelector()
        self.evidence = Evidence(self.node, self.children, self.selector)  # type: ignore[arg-type]

    def _open_threads(self, slot: int, uid: int) -> int:
        if self.error is not None:
            raise self.error
        self.asked.append((slot, uid))
        return os.open(os.devnull, os.O_RDONLY)

    def serve(self) -> None:
        """Serves what is ready now."""
        while ready := self.selector.select(0):
            for key, _ in ready:
                key.data()

    def take(self, run: int = 0, uid: int = 1000) -> Reader:
        reader = Reader()
        self.evidence.take(run, uid, reader)  # type: ignore[arg-type]
        return reader


def begun(site: Site, number: int) -> socket.socket:
    """The child of that number, which has read what it is asked."""
    channel = site.children.channels[number]
    os.close(descriptors.receive(channel, 200_000, 1)[1][0])
    return channel


def _sandbox(run: int) -> Any:
    return SimpleNamespace(scratch=90 + run, scratch_uid=1000 + run, is_of_its_user=lambda: True)


@pytest.fixture
def site() -> Site:
    return Site()


def test_what_a_child_says_is_passed_on_as_it_comes(site: Site) -> None:
    reader = site.take()
    child = site.children.channels[0]
    packet, given = descriptors.receive(child, 200_000, 1)
    assert json.loads(packet) == {
        "jobs": {"/htcondor/slot0": "1.0", "/htcondor/slot1": "2.0"},
        "heading": "",
        "least": 0.0,
        "killed": "",
    }
    assert len(given) == 1
    assert (site.asked, site.children.folders) == ([(3, 1000)], [90])
    child.send(b"first")
    site.serve()
    assert (reader.data, reader.is_ended) == (b"first", False)
    child.send(b"second")
    child.close()
    site.serve()
    assert (reader.data, reader.is_ended) == (b"firstsecond", True)


def test_a_child_is_told_who_was_killed_before(site: Site) -> None:
    end: np.ndarray = np.zeros(1, EXIT)
    end["program"], end["code"], end["pid"], end["time"] = b"worker.py", 9, 12, time.time() - 360
    keep(site.node.runs.state["death"][1:2], end)
    site.take(1)
    packet, given = descriptors.receive(site.children.channels[0], 200_000, 1)
    os.close(given[0])
    assert json.loads(packet)["killed"] == "SIGKILL in worker.py (process 12), 6 min ago"


def test_one_look_at_a_time_in_the_order_of_questions(site: Site) -> None:
    first, second = site.take(0, 1000), site.take(1, 0)
    assert len(site.children.channels) == 1
    begun(site, 0).close()
    site.serve()
    assert first.is_ended
    assert len(site.children.channels) == 2
    child = begun(site, 1)
    child.send(b"x")
    child.close()
    site.serve()
    assert (second.data, second.is_ended) == (b"x", True)


def test_a_user_has_one_question_and_there_is_an_end_to_the_queue(site: Site) -> None:
    site.take(0, 1000)
    with pytest.raises(Refused, match="wait for that answer"):
        site.take(0, 1000)
    for uid in range(2000, 2000 + evidence.MOST_WAITING):
        site.take(0, uid)
    with pytest.raises(Refused, match="users have asked before you"):
        site.take(0, 5000)


def test_a_child_that_says_nothing_is_given_up(site: Site) -> None:
    reader, next_one = site.take(0, 1000), site.take(1, 1001)
    now = time.monotonic()
    assert 0 < site.evidence.timeout(now) <= evidence.PATIENCE
    site.evidence.expire(now)
    assert not reader.is_ended
    assert site.children.killed == []
    site.evidence.expire(now + evidence.PATIENCE + 1)
    assert reader.is_ended and site.children.killed == [1], "its job may have stopped it"
    assert len(site.children.channels) == 2
    assert not next_one.is_ended


def test_who_leaves_is_not_waited_for(site: Site) -> None:
    reader, waiting = site.take(0, 1000), site.take(1, 1001)
    waiting.on_close()
    reader.on_close()
    site.take(0, 1000)
    assert len(site.children.channels) == 2
    # the child learns that nobody listens
    with pytest.raises(BrokenPipeError):
        site.children.channels[0].send(b"x")


def test_a_slow_reader_gets_all_of_it_in_the_end(site: Site) -> None:
    reader = site.take()
    reader.has_room = False
    child = begun(site, 0)
    for _ in range(3):
        child.send(b"x" * 1000)
    child.close()
    site.serve()
    assert (reader.data, reader.is_ended) == (b"", False)
    with pytest.raises(Refused, match="wait for that answer"):
        site.take()
    reader.has_room = True
    reader.on_room()
    assert (len(reader.data), reader.is_ended) == (3000, True)
    site.take()


def test_a_child_that_says_too_much_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MOST_BYTES", 1500)
    reader = site.take()
    site.children.channels[0].send(b"x" * 1000)
    site.children.channels[0].send(b"x" * 1000)
    site.serve()
    assert (len(reader.data), reader.is_ended) == (1000, True)


def test_a_run_that_is_over_when_its_turn_comes(site: Site) -> None:
    site.take(0, 1000)
    late = site.take(1, 1001)
    site.node.runs.state["used"][1] = False
    site.children.channels[0].close()
    site.serve()
    assert "the job is over" in late.refused


def test_nobody_looks_as_who_has_got_the_folder_meanwhile(site: Site) -> None:
    site.node.handles[0].sandbox.is_of_its_user = lambda: False
    assert "belongs to another user than when the job began" in site.take().refused
    assert site.children.channels == []


def test_a_kernel_or_a_machine_that_can_not(site: Site) -> None:
    site.error = JobLensError("no such iterator")
    assert "no such iterator" in site.take().refused
    site.error, site.children.fails = None, OSError(32, "Broken pipe")
    assert "Broken pipe" in site.take().refused
    site.node.runs.state["kernel_slot"] = -1
    with pytest.raises(Refused, match="not watched"):
        site.take()
    with pytest.raises(Refused, match="can't become the job's owner"):
        Evidence(site.node, None, site.selector).take(0, 0, Reader())  # type: ignore[arg-type]


def test_without_what_starts_children_joblensd_goes_on(site: Site) -> None:
    site.children.fails = HelperLost("what looks at jobs ended with code 1")
    site.children.report()
    site.serve()
    assert "until joblensd is started anew" in site.lines[0]
    with pytest.raises(Refused):
        site.take()
