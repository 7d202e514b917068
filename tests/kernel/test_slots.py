"""Births and ends of slots, as the kernel takes and tells them."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from ground import Cgroup, Ground, Slot, on_ground, until

from condor_joblens.common import readiness
from condor_joblens.model.metrics import METRICS
from condor_joblens.tracer import map_layout

NAMES = {
    map_layout.BORN: "born",
    map_layout.MAIN_EXITED: "main exited",
    map_layout.EMPTY: "empty",
    map_layout.CGROUP_GONE: "gone",
}


def told(ground: Ground) -> list[str]:
    return [NAMES[event["kind"]] for event in ground.tracer.events()]


@pytest.mark.guest
def test_a_birth_is_told_with_name_and_maker(ground: Ground) -> None:
    slot = ground.slot("_var_lib_condor_execute_slot1_1@host.slice")
    (event,) = ground.tracer.events()
    assert event["kind"] == map_layout.BORN
    assert event["name"] == b"_var_lib_condor_execute_slot1_1@host.slice"
    assert (event["cgroup_id"], event["slot"], event["pid"]) == (slot.cgroup_id, slot.index, os.getpid())
    assert slot.tracer.counters["maker_pid"][slot.index] == os.getpid()


def test_a_name_has_nothing_of_a_longer_one_that_was_in_its_place_of_the_ring(ground: Ground) -> None:
    for number in range(4000):  # births and ends: twice what the ring holds
        slot = ground.slot(f"_var_lib_condor_execute_slot1_{number}@host.slice")
        slot.path.rmdir()
        ground.tracer.settle()
        for event in ground.tracer.events():
            if event["kind"] == map_layout.CGROUP_GONE:
                ground.tracer.stop(int(event["slot"]))
    for number in range(10, 60):
        ground.slot(f"slot1_{number}").path.rmdir()
    born = [event["name"] for event in ground.tracer.events() if event["kind"] == map_layout.BORN]
    assert born == [f"slot1_{number}".encode() for number in range(10, 60)]


@pytest.mark.guest
def test_a_life_is_told_in_order(ground: Ground) -> None:
    slot = ground.slot()
    slot.run("leave", 3)
    slot.path.rmdir()
    assert told(ground) == ["born", "main exited", "empty", "gone"]


def test_a_name_of_any_length_is_cut(ground: Ground) -> None:
    ground.slot("x" * 255)
    ground.slot("é" * 127)
    first, second = ground.tracer.events()["name"]
    assert first == b"x" * 255 and second == "é".encode() * 127


def test_only_what_is_directly_below_the_base_is_a_slot(ground: Ground) -> None:
    (ground.base.parent / f"{ground.name}-beside").mkdir()
    try:
        slot = ground.slot()
        inner = slot.path / "condor_slot2"
        inner.mkdir()
        assert told(ground) == ["born"]
        assert ground.tracer.slot_of(inner.stat().st_ino) is None
    finally:
        (ground.base.parent / f"{ground.name}-beside").rmdir()


@pytest.mark.guest
def test_work_in_a_cgroup_named_like_another_slot_is_the_outer_ones(ground: Ground) -> None:
    slot, other = ground.slot("condor_slot1"), ground.slot("condor_slot2")
    ended = slot.run("subgroup", slot.path / "condor_slot2")
    mine, others = slot.totals(), other.totals()
    assert mine["process_forked"] == ended.said["forked"] == 2
    assert mine["process_exited"] == 3
    assert mine["io_call_read_bytes"] == ended.io["rchar"]
    assert [name for name in others if others[name] > 0] == []


def test_slots_below_bases_of_different_depth(ground: Ground) -> None:
    deeper = ground.base / "system.slice"
    ground.watch()  # or it would be a slot itself
    deeper.mkdir()
    ground.watch(ground.base, deeper)
    assert told(ground) == []
    inner = Slot(deeper / "condor_slot1", ground.tracer)
    inner.path.mkdir()
    outer = ground.slot()
    for slot in (inner, outer):
        slot.run("children", 3)
        assert slot.totals()["process_forked"] == 3


def test_a_base_within_a_slot_is_the_slots(ground: Ground) -> None:
    slot = ground.slot()
    ground.watch(ground.base, slot.path)
    inner = slot.path / "condor_slot1"
    inner.mkdir()
    Cgroup(inner).run("children", 3)
    assert slot.totals()["process_forked"] == 3


def test_where_depths_are_unknown_every_depth_is_looked_at(ground: Ground) -> None:
    ground.tracer.watch_below([ground.base.stat().st_ino], None)
    slot = ground.slot()
    slot.run("children", 3)
    assert slot.totals()["process_forked"] == 3


def test_a_birth_without_room_is_told_and_counted_as_lost(name: str) -> None:
    with on_ground(name, max_slots=2) as ground:
        slots = [ground.slot(f"condor_slot{number}") for number in (1, 2, 3)]
        events = ground.tracer.events()
        assert events["slot"][2] == map_layout.NO_SLOT != events["slot"][1]
        assert ground.tracer.lost() == 1
        assert ground.tracer.take(slots[2].cgroup_id, 1) is None
        # room again, but not before the programs that may still hold the index are done
        ground.tracer.stop(slots[0].index)
        assert ground.tracer.take(slots[2].cgroup_id, 1) is None
        ground.tracer.settle()
        assert ground.tracer.take(slots[2].cgroup_id, 1) == events["slot"][0]


@pytest.mark.guest
def test_nothing_of_the_last_job_is_in_the_next(name: str) -> None:
    with on_ground(name, max_slots=1) as ground:
        slot = ground.slot()
        slot.run("children", 5, "peak", 8, 0, "freed", "leave", 3)
        index = slot.index
        slot.path.rmdir()
        ground.tracer.stop(index)
        ground.tracer.settle()
        slot = ground.slot()
        assert slot.index == index
        totals = slot.totals()
        columns = {metric.column for metric in METRICS}
        assert {name: value for name, value in totals.items() if name in columns and value > 0} == {}
        counters = slot.tracer.counters[index]
        assert (counters["main_tgid"], counters["main_exits"], counters["awaits_exec"]) == (0, 0, 1)


def test_a_stopped_slot_counts_no_more(slot: Slot) -> None:
    index = slot.index
    slot.run("children", 2)
    before = slot.tracer.counters[index].copy()
    slot.tracer.stop(index)
    slot.run("children", 2)
    assert slot.tracer.counters[index] == before


def test_a_cgroup_that_was_there_before_can_be_taken(ground: Ground) -> None:
    ground.watch()
    slot = ground.slot()
    ground.watch(ground.base)
    assert told(ground) == [] and ground.tracer.slot_of(slot.cgroup_id) is None
    index = ground.tracer.take(slot.cgroup_id, 1)
    assert index == ground.tracer.take(slot.cgroup_id, 1) == slot.index
    slot.run("children", 4)
    assert slot.totals()["process_forked"] == 4


@pytest.mark.guest
def test_of_a_slot_that_was_taken_late_the_end_of_its_first_process_is_told(ground: Ground) -> None:
    ground.watch()
    slot = ground.slot()
    first = slot.start("wait", 60000)
    later = slot.start("wait", 60000)  # as what condor_ssh_to_job starts: its parent is outside of the slot as well
    until(lambda: first.has_begun() and later.has_begun())
    ground.watch(ground.base)
    ground.tracer.take(slot.cgroup_id, 1)
    slot.totals()
    os.kill(later.pid, signal.SIGKILL)
    later.wait()
    assert told(ground) == []
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    assert told(ground)[0] == "main exited"
    assert slot.tracer.counters["main_exit_code"][slot.index] == signal.SIGKILL
    first.wait()


def test_more_events_than_are_taken_at_a_time_come_in_order(name: str) -> None:
    with on_ground(name, max_slots=1) as ground:
        for _ in range(700):
            ground.slot().path.rmdir()
        first = ground.tracer.events()
        readable = readiness.readable([ground.tracer], 0)
        assert readable
        rest = ground.tracer.events()
        assert (len(first), len(first) + len(rest)) == (1024, 1400)
        assert np.array_equal(np.append(first, rest)["kind"], [map_layout.BORN, map_layout.CGROUP_GONE] * 700)


def test_events_for_which_the_ring_has_no_room_are_counted(name: str) -> None:
    with on_ground(name, max_slots=1) as ground:
        rounds = 2200
        for _ in range(rounds):
            ground.slot().path.rmdir()
        taken = 0
        while count := len(ground.tracer.events()):
            taken += count
        lost = int(ground.tracer.basic.node["lost_events"][0])
        assert lost > 0 and taken + lost == 2 * rounds
        assert ground.tracer.lost() >= lost
        ground.slot()
        assert told(ground) == ["born"]


def test_a_base_that_is_no_longer_named_takes_no_slots(ground: Ground) -> None:
    other = ground.base / "other"
    other.mkdir()
    ground.tracer.events()
    ground.watch(other)
    ground.slot()
    (other / "condor_slot1").mkdir()
    (event,) = ground.tracer.events()
    assert event["cgroup_id"] == (other / "condor_slot1").stat().st_ino
