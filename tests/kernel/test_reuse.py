"""A cgroup that HTCondor could not remove, and into which it starts the next job: it is counted from nothing on."""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ground import Cgroup, Ground, Slot, forked, on_ground, until

from condor_joblens.agent.lifecycle.leftovers import Leftovers
from condor_joblens.tracer import cgroup_uses, map_layout

COUNTS = ("process_forked", "process_executed", "process_exited", "process_signalled")


@dataclass
class Starters(Cgroup):
    """The cgroup as a starter's child comes into it."""

    inner: Path | None = None  # as from HTCondor 24.8 on: the processes are in a cgroup within the slot's

    def enter(self) -> None:
        Path("/proc/self/comm").write_text("condor_starter")
        ((self.inner or self.path) / "cgroup.procs").write_text("0")


def uses(ground: Ground, cgroup: Cgroup) -> list[dict[str, float]]:
    """What was counted of each job in the cgroup, the first one first, as the kernel told of them."""
    born = [event for event in ground.tracer.events() if event["kind"] == map_layout.BORN]
    assert {cgroup_uses.inode_of(int(event["cgroup_id"])) for event in born} == {cgroup.cgroup_id}
    assert [cgroup_uses.jobs_before(int(event["cgroup_id"])) for event in born] == list(range(len(born)))
    assert ground.tracer.counted_id(cgroup.cgroup_id) == int(born[-1]["cgroup_id"])
    found = []
    for event in born:
        slot = _Counted(cgroup.path, ground.tracer, int(event["slot"]))
        totals = slot.totals()
        found.append({name: totals[name] for name in COUNTS})
    return found


@dataclass
class _Counted(Slot):
    """By the slot's index: what was counted before the next job came is found by nothing else."""

    at: int

    @property
    def index(self) -> int:
        return self.at


def job(children: int, signalled: int = 0) -> dict[str, float]:
    """What a job with so many children has in its counts."""
    return dict(zip(COUNTS, (children, 1 + children, 1 + children, signalled)))


@pytest.mark.guest
@pytest.mark.parametrize("is_inner", [False, True], ids=["23.9", "25"])
def test_the_next_job_in_an_empty_cgroup_is_counted_from_nothing_on(ground: Ground, is_inner: bool) -> None:
    path = ground.slot().path
    inner = path / "condor_slot1.scope" if is_inner else None
    for children in (3, 5, 2):
        if inner:
            inner.mkdir(exist_ok=True)
        Starters(path, inner).run("children", children)
    assert uses(ground, Starters(path)) == [job(3), job(5), job(2)]
    index = ground.tracer.slot_of(ground.tracer.counted_id(path.stat().st_ino) or 0)
    assert index is not None and not ground.tracer.counters["entered_shared"][index]


@pytest.mark.guest
def test_its_events_are_its_own(ground: Ground) -> None:
    cgroup = Starters(ground.slot().path)
    cgroup.run("leave", 3)
    cgroup.run("leave", 4)
    events = [(int(event["cgroup_id"]), int(event["kind"])) for event in ground.tracer.events()]
    first, second = cgroup.cgroup_id, cgroup_uses.next_use(cgroup.cgroup_id)
    kinds = (map_layout.BORN, map_layout.MAIN_EXITED, map_layout.EMPTY)
    assert events == [(first, kind) for kind in kinds] + [(second, kind) for kind in kinds]
    told = ground.tracer.processes.take()
    assert set(told["cgroup_id"].tolist()) == {first, second}
    ends = told[told["kind"] == map_layout.PROCESS_EXIT]
    assert [(int(end["cgroup_id"]), int(end["exit_code"]) >> 8) for end in ends] == [(first, 3), (second, 4)]
    cgroup.path.rmdir()
    (gone,) = ground.tracer.events()
    assert (gone["kind"], gone["cgroup_id"]) == (map_layout.CGROUP_GONE, second)


@pytest.mark.guest
def test_what_the_job_before_has_left_is_not_counted_with_the_next(ground: Ground) -> None:
    """Its processes have been killed, and end when the next job is there."""
    slot = ground.slot()
    cgroup = Starters(slot.path)
    left = [cgroup.fork(lambda: signal.pause()) for _ in range(3)]
    until(lambda: len((cgroup.path / "cgroup.procs").read_text().split()) == len(left))
    cgroup.run("children", 1)
    next_job = cgroup.start("wait", 600_000)
    until(next_job.has_begun)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    next_job.kill()
    next_job.wait()
    first, second = uses(ground, cgroup)
    assert first["process_signalled"] == 0
    assert second == job(0, signalled=1)
    index = ground.tracer.slot_of(ground.tracer.counted_id(cgroup.cgroup_id) or 0)
    assert ground.tracer.counters["entered_shared"][index] == 1


@pytest.mark.guest
def test_a_straggler_that_forks_is_still_the_jobs_own(ground: Ground) -> None:
    slot = ground.slot()
    cgroup = Starters(slot.path)
    reader, writer = os.pipe()

    def straggler() -> None:
        cgroup.enter()
        os.read(reader, 1)
        os.waitpid(os.fork() or os._exit(0), 0)

    pid = forked(straggler)
    until(lambda: pid in cgroup.pids())
    cgroup.run("children", 2)
    os.write(writer, b"!")
    os.waitpid(pid, 0)
    os.close(reader), os.close(writer)
    (only,) = uses(ground, cgroup)
    assert only["process_exited"] == 1 + 2 + 2


@pytest.mark.guest
def test_nobody_but_htcondor_begins_another_job(ground: Ground) -> None:
    """Who is brought in by others, as by an administrator's hand, or by HTCondor's while the first process lives."""
    slot = ground.slot()
    first = slot.start("wait", 600_000)
    until(first.has_begun)
    Starters(slot.path).run("children", 1)  # as condor_ssh_to_job
    first.kill()
    first.wait()
    slot.run("children", 2)
    assert len(uses(ground, slot)) == 1


def test_no_user_begins_another_job_by_a_name(ground: Ground) -> None:
    slot = ground.slot()
    slot.run("children", 1)
    inner = slot.path / "inner"
    inner.mkdir()
    for path in (slot.path, inner):
        os.chown(path / "cgroup.procs", 12345, 12345)

    def move() -> None:
        slot.enter()
        Path("/proc/self/comm").write_text("condor_starter")
        os.setgid(12345)
        os.setuid(12345)
        (inner / "cgroup.procs").write_text("0")

    assert os.waitpid(forked(move), 0)[1] == 0
    assert len(uses(ground, slot)) == 1


def test_a_full_table_counts_the_next_job_with_nobody(name: str) -> None:
    with on_ground(name, max_slots=1) as ground:
        slot = ground.slot()
        cgroup = Starters(slot.path)
        cgroup.run("children", 3)
        index, lost = slot.index, ground.lost()
        cgroup.run("children", 5)
        born = [event for event in ground.tracer.events() if event["kind"] == map_layout.BORN]
        assert [int(event["slot"]) for event in born] == [index, map_layout.NO_SLOT]
        assert _Counted(slot.path, ground.tracer, index).totals()["process_forked"] == 3
        assert ground.tracer.counted_id(cgroup.cgroup_id) is None
        assert ground.lost() == lost + 1


def test_the_slot_of_the_job_before_is_given_back_and_the_next_ones_is_kept(ground: Ground) -> None:
    slot = ground.slot()
    cgroup, before = Starters(slot.path), slot.index
    cgroup.run("children", 3)
    cgroup.run("children", 5)
    second = cgroup_uses.next_use(cgroup.cgroup_id)
    assert ground.tracer.counters["state"][before] == map_layout.LEFT
    assert ground.tracer.slot_of(cgroup.cgroup_id) is None
    ground.tracer.stop(before)
    ground.tracer.settle()
    after = ground.tracer.slot_of(second)
    assert after is not None and after != before
    assert ground.tracer.take(second, 1) == after
    assert ground.tracer.take(cgroup.cgroup_id, 1) is None, "the job before is not there any more"
    third = cgroup_uses.next_use(second)
    taken = ground.tracer.take(third, 1)
    assert taken not in (None, after) and ground.tracer.slot_of(second) is None
    ground.tracer.stop(after)
    assert ground.tracer.slot_of(third) == taken


def test_a_connection_of_the_job_before_is_known_to_be_open(ground: Ground) -> None:
    slot = ground.slot()
    cgroup, before = Starters(slot.path), slot.index
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        reader, writer = os.pipe()

        def talk() -> None:
            cgroup.enter()
            with socket.create_connection(server.getsockname()):
                os.read(reader, 1)

        pid = forked(talk)
        server.accept()[0].close()
        cgroup.run("children", 1)
        cgroup.run("children", 1)
        count = ground.tracer.counters[before]
        assert (count["connected"], count["closed"]) == (1, 0)
        os.write(writer, b"!")
        os.waitpid(pid, 0)
    os.close(reader), os.close(writer)


def forgotten(ground: Ground) -> tuple[Starters, Any]:
    """The cgroup of a job of which nobody knows any more, and a node of which joblensd has just started."""
    cgroup = Starters(ground.slot().path)
    ground.tracer.stop(ground.tracer.slot_of(cgroup.cgroup_id) or 0)
    ground.tracer.settle()
    ground.tracer.events()
    return cgroup, SimpleNamespace(tracer=ground.tracer, config=SimpleNamespace(default_level=1))


@pytest.mark.guest
def test_an_empty_cgroup_that_nobody_knows_is_no_job_and_the_next_in_it_is(ground: Ground) -> None:
    cgroup, node = forgotten(ground)
    assert Leftovers().set_aside(node, cgroup.cgroup_id, str(cgroup.path))
    leftovers = Leftovers()  # one more joblensd starts
    assert leftovers.set_aside(node, cgroup.cgroup_id, str(cgroup.path))
    assert len(ground.tracer.events()) == 0
    cgroup.run("children", 3)
    born = ground.tracer.events()[0]
    assert (born["kind"], born["cgroup_id"]) == (map_layout.BORN, cgroup_uses.next_use(cgroup.cgroup_id))
    earlier = leftovers.entered(node, cgroup.cgroup_id)
    assert earlier is not None and earlier.has_ended and cgroup.cgroup_id not in leftovers
    totals = _Counted(cgroup.path, ground.tracer, int(born["slot"])).totals()
    assert {name: totals[name] for name in COUNTS} == job(3)
    assert not ground.tracer.counters["entered_shared"][int(born["slot"])]
    assert ground.tracer.counted_id(cgroup.cgroup_id) == born["cgroup_id"]


@pytest.mark.guest
def test_a_cgroup_in_which_something_lives_or_that_was_just_made_is_a_jobs(ground: Ground) -> None:
    cgroup, node = forgotten(ground)
    pid = cgroup.fork(lambda: signal.pause())
    until(lambda: cgroup.pids())
    assert not Leftovers().set_aside(node, cgroup.cgroup_id, str(cgroup.path))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    made = ground.slot("condor_slot9")
    assert not Leftovers().set_aside(node, made.cgroup_id, str(made.path))


@pytest.mark.guest
def test_a_cgroup_that_was_found_empty_and_is_removed_is_forgotten(ground: Ground) -> None:
    cgroup, node = forgotten(ground)
    leftovers, inode = Leftovers(), cgroup.cgroup_id
    assert leftovers.set_aside(node, inode, str(cgroup.path))
    cgroup.path.rmdir()
    (gone,) = ground.tracer.events()
    assert (gone["kind"], gone["cgroup_id"]) == (map_layout.CGROUP_GONE, inode)
    leftovers.keep_only(node, set())
    ground.tracer.settle()
    assert inode not in leftovers and ground.tracer.counted_id(inode) is None
