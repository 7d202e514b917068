"""Process events: each start and end is told once, in order, with what it was; what is lost is counted."""

from __future__ import annotations

import os
import select
import shutil
from pathlib import Path

import ground as grounds
import numpy as np
import pytest
from ground import Ended, Slot, forked, on_ground

from condor_joblens.agent.lifecycle.process_events import TEXT_BYTES, as_events
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.bpf import Tracer

pytestmark = pytest.mark.guest


def told(tracer: Tracer) -> np.ndarray:
    """Everything in the ring, map_layout.PROCESS_EVENT."""
    found = [tracer.processes.take().copy()]
    while len(found[-1]):
        found.append(tracer.processes.take().copy())
    return np.concatenate(found)


def events_of(slot: Slot) -> np.ndarray:
    """The same as EVENT."""
    found = told(slot.tracer)
    assert set(found["cgroup_id"].tolist()) == {slot.cgroup_id}
    return as_events(found, np.full(len(found), 7, "u8"), 0.0)


def of_kind(events: np.ndarray, kind: EventKind) -> np.ndarray:
    found: np.ndarray = events[events["kind"] == kind]
    return found


def exec_in(slot: Slot, *arguments: bytes, program: Path | None = None) -> int:
    """Runs a program of these arguments in the slot to its end; its process id."""
    pid = slot.fork(lambda: os.execv(program or grounds.JOB, list(arguments)))
    os.waitpid(pid, 0)
    return pid


def complete(ended: Ended, events: np.ndarray) -> None:
    assert len(of_kind(events, EventKind.EXEC)) == ended.said["executed"] + 1
    ends = of_kind(events, EventKind.EXIT)
    assert len(ends) == ended.said["exited"] + 1
    assert np.count_nonzero(ends["exit_code"] & 0x7F) == ended.said["signalled"]
    assert np.count_nonzero((ends["exit_code"] >> 8) & 0xFF) == ended.said["failed"]
    assert np.count_nonzero(ends["exit_code"] & 0x80) == ended.said["core_dumps"]


THREADS = ("threads", 50, 8, "group", 0)


@pytest.mark.parametrize("verb", [("children", 50), ("orphans", 32), ("threadexec", 20), THREADS])
def test_every_start_and_end_is_told_once(slot: Slot, verb: tuple[object, ...]) -> None:
    ended = slot.run(*verb)
    events = events_of(slot)
    complete(ended, events)
    # a CPU can stand still between the look at the clock and the place in the ring
    assert (np.diff(events["time"]) >= -10).all() and (events["run_number"] == 7).all()


def test_every_kind_of_end_is_told_as_wait_has_it(slot: Slot, tmp_path: Path) -> None:
    complete(slot.run("ends", tmp_path), events_of(slot))


def test_two_thousand_children_of_two_milliseconds(slot: Slot) -> None:
    ended = slot.run("children", 2000)
    assert ended.said["exited"] == 2000
    complete(ended, events_of(slot))


def test_who_it_was_and_who_its_parent(slot: Slot) -> None:
    pid = exec_in(slot, b"job", b"children", b"1", b"leave", b"5")
    events = events_of(slot)
    first, child, child_end, end = events
    assert (first["pid"], first["parent_pid"]) == (end["pid"], end["parent_pid"]) == (pid, os.getpid())
    assert child["parent_pid"] == child_end["parent_pid"] == pid and child["pid"] == child_end["pid"]
    assert (first["program"], end["program"]) == (b"test_job", b"test_job")
    assert first["text"] == b"job children 1 leave 5"
    assert end["exit_code"] == 5 << 8 and child_end["exit_code"] == 0
    assert 0 < child_end["lived_seconds"] < end["lived_seconds"] < 60


def test_an_end_knows_what_the_process_executed_last(slot: Slot) -> None:
    pid = slot.fork(lambda: os.execv("/bin/sh", ["sh", "-c", "exec /bin/sh /dev/stdin two"]))
    os.waitpid(pid, 0)
    found = told(slot.tracer)
    assert found["command"].tolist() == [
        b"sh\0-c\0exec /bin/sh /dev/stdin two", b"/bin/sh\0/dev/stdin\0two", b"/bin/sh\0/dev/stdin\0two",
    ]  # fmt: skip


def test_a_process_that_executes_nothing_has_its_parent_s_command(slot: Slot) -> None:
    slot.run("orphans", 8)
    found = told(slot.tracer)
    ends = found[found["kind"] == map_layout.PROCESS_EXIT]
    assert len(ends) == 17
    mine = ends[ends["parent_tgid"] == ends["tgid"][ends["flags"] & map_layout.PROCESS_MAIN != 0]]
    assert len(mine) >= 8 and set(mine["command"].tolist()) == {b"job\0orphans\x008"}


def test_two_megabytes_of_arguments(slot: Slot) -> None:
    exec_in(slot, b"job", b"leave", b"3", *[b"x" * 120_000] * 15)
    start, end = events_of(slot)
    assert start["text"].startswith(b"job leave 3 xxx"[:12]) and start["text"].endswith(b"...")
    assert len(start["text"]) <= TEXT_BYTES and end["kind"] == EventKind.EXIT


def test_names_of_any_bytes_are_told_as_one_line(slot: Slot, tmp_path: Path) -> None:
    name = b"a\x1b[2J\n\xff\xfe"
    program = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
    shutil.copy(grounds.JOB, program)
    exec_in(slot, b"job\r\n\x07", b"\xc3\x28", program=program)
    start, end = events_of(slot)
    assert end["exit_code"] == 98 << 8  # that is no verb
    for text in (start["program"], start["text"], end["program"]):
        line = text.decode("utf-8")
        assert line and not any(ord(character) < 32 for character in line)
    assert start["text"] == rb"job\x0d\x0a\x07 \xc3("


def test_secrets_are_not_told(slot: Slot) -> None:
    exec_in(slot, b"job", b"leave", b"0", b"--token", b"hunter2")
    assert events_of(slot)["text"][0] == b"job leave 0 --token ***"


def test_who_is_in_no_slot_is_not_told(slot: Slot) -> None:
    os.waitpid(forked(lambda: os.execv(grounds.JOB, [b"job", b"children", b"20"])), 0)
    assert len(told(slot.tracer)) == 0


def test_what_is_in_a_sub_cgroup_is_told(slot: Slot) -> None:
    ended = slot.run("subgroup", slot.path / "inner")
    events = events_of(slot)
    assert len(of_kind(events, EventKind.EXIT)) == ended.said["exited"] + 1


def test_the_victims_of_the_oom_killer_have_a_record_more() -> None:
    found: np.ndarray = np.zeros(3, map_layout.PROCESS_EVENT)
    found["kind"] = map_layout.PROCESS_EXIT
    found["exit_code"] = [0, 9, 9]
    found["flags"][1] = map_layout.PROCESS_OOM_VICTIM
    found["resident_pages"][1], found["peak_pages"][1] = 1000, 5000
    events = as_events(found, np.arange(1, 4, dtype="u8"), 0.0)
    assert events["kind"].tolist() == [EventKind.EXIT, EventKind.OOM, EventKind.EXIT, EventKind.EXIT]
    assert events["run_number"].tolist() == [1, 2, 2, 3]
    assert (events["value"][1], events["exit_code"][1]) == (1000 * os.sysconf("SC_PAGE_SIZE"), 0)
    assert events.dtype == EVENT


def test_a_reader_that_sleeps_loses_the_newest_and_only_events(name: str) -> None:
    with on_ground(name, process_ring_bytes=1 << 16) as ground:
        slot = ground.slot()
        ended = slot.run("children", 400)
        lost = ground.tracer.lost_process_events()
        found = told(ground.tracer)
        starts = int(np.count_nonzero(found["kind"] == map_layout.PROCESS_EXEC))
        assert starts + lost["exec"] == ended.said["executed"] + 1
        assert len(found) - starts + lost["exit"] == ended.said["exited"] + 1
        assert lost["exec"] > 0 and lost["exit"] > 0
        assert ground.tracer.new_process_losses() == {"exec": lost["exec"], "exit": lost["exit"]}
        assert ground.tracer.new_process_losses() == {}
        assert found["flags"][0] == map_layout.PROCESS_MAIN
        # the numbers lack nothing
        assert ground.tracer.lost() == 0
        assert slot.totals()["process_exited"] == ended.said["exited"] + 1


def test_where_the_ring_begins_again_no_record_is_cut(name: str) -> None:
    with on_ground(name, process_ring_bytes=1 << 16) as ground:
        slot = ground.slot()
        for children in range(100, 130, 3):  # records of eight times the ring's size
            ended = slot.run("children", children)
            found = told(ground.tracer)
            complete(ended, as_events(found, np.full(len(found), 7, "u8"), 0.0))
            assert set(found["command"].tolist()) == {b"job\0children\0%d" % children, b"job\0short"}
            assert set(found["cgroup_id"].tolist()) == {slot.cgroup_id}
        assert ground.tracer.lost_process_events() == {"exec": 0, "exit": 0, "signal": 0}


def test_what_lies_in_the_ring_wakes_its_reader(slot: Slot) -> None:
    poll = select.epoll()
    poll.register(slot.tracer.processes.fileno(), select.EPOLLIN)
    assert poll.poll(0) == []
    slot.run("leave", 0)
    assert len(poll.poll(10)) == 1
    poll.close()


def test_if_nobody_waits_the_ring_wakes_its_reader_at_a_quarter(name: str) -> None:
    with on_ground(name, process_ring_bytes=1 << 16) as ground:
        slot = ground.slot()
        poll = select.epoll()
        poll.register(slot.tracer.processes.fileno(), select.EPOLLIN | select.EPOLLET)
        slot.tracer.wake_for_process_events(at_once=False)
        slot.run("children", 20)
        assert poll.poll(0) == []
        slot.run("children", 60)
        assert len(poll.poll(10)) == 1
        assert len(told(slot.tracer)) > 160 and slot.tracer.lost_process_events()["exec"] == 0
        # from now on somebody waits
        slot.tracer.wake_for_process_events(at_once=True)
        slot.run("leave", 0)
        assert len(poll.poll(10)) == 1
        poll.close()


LEAST_EVENTS = 10
"""A second: an emulated machine starts some tens of programs in that time."""


def test_a_storm_loses_its_own_events_and_nobody_else_s(name: str) -> None:
    with on_ground(name) as ground:
        tracer = ground.tracer
        tracer.limit_process_events(LEAST_EVENTS)
        storm, quiet = ground.slot("storm"), ground.slot("quiet")
        of_storm = storm.run("children", 1000)
        of_quiet = quiet.run("children", 2)
        found = told(tracer)
        complete(of_quiet, as_events(of_slot(found, quiet), np.full(len(of_slot(found, quiet)), 7, "u8"), 0.0))
        happened = of_storm.said["executed"] + of_storm.said["exited"] + 2
        seen, lost = of_slot(found, storm), int(tracer.counters["events_lost"][storm.index])
        assert LEAST_EVENTS // 2 < len(seen) < happened and len(seen) + lost == happened
        assert storm.totals()["process_events_lost"] == lost and quiet.totals()["process_events_lost"] == 0
        # it is the share that was used up, not the ring; and the numbers lack nothing
        assert tracer.lost_process_events() == {"exec": 0, "exit": 0, "signal": 0}
        assert storm.totals()["process_exited"] == of_storm.said["exited"] + 1
        # the end of the first process is told whatever came before
        assert seen["flags"][-1] & map_layout.PROCESS_MAIN and seen["kind"][-1] == map_layout.PROCESS_EXIT


def test_failures_are_told_when_the_share_for_others_is_used_up(name: str, tmp_path: Path) -> None:
    with on_ground(name) as ground:
        slot = ground.slot()
        ground.tracer.limit_process_events(LEAST_EVENTS)
        script = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done; /bin/false; /bin/false"
        pid = slot.fork(lambda: os.execv("/bin/sh", ["sh", "-c", script]))
        os.waitpid(pid, 0)
        found = told(ground.tracer)
        assert int(ground.tracer.counters["events_lost"][slot.index]) > 0
        ends = found[found["kind"] == map_layout.PROCESS_EXIT]
        assert ends["exit_code"].tolist()[-3:] == [1 << 8, 1 << 8, 1 << 8]


def of_slot(found: np.ndarray, slot: Slot) -> np.ndarray:
    mine: np.ndarray = found[found["cgroup_id"] == slot.cgroup_id]
    return mine
