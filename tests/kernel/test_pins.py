"""What outlives the tracer's process: counting goes on, and the next tracer finds it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import ground as grounds
import pytest
from condor_joblens.tracer._bpf import ffi, lib
from ground import BPFFS, Cgroup, Ground, Slot, assert_io_of, forked, on_ground, until

from condor_joblens.tracer import map_layout
from condor_joblens.tracer.bpf import Tracer
from condor_joblens.tracer.sensors import Profile


def killed_tracer(name: str, act: Callable[[Ground], object], max_slots: int = 64) -> None:
    """Another process that makes a ground, does this, and ends by kill -9."""

    def live() -> None:
        act(Ground(name, max_slots))
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitpid(forked(live), 0)[1] == signal.SIGKILL


@pytest.mark.guest
def test_counting_goes_on_and_the_next_tracer_adopts_it(name: str) -> None:
    killed_tracer(name, lambda ground: ground.slot("condor_slot1").run("children", 5))
    base = Ground.place(name)
    first, second = Cgroup(base / "condor_slot1"), Cgroup(base / "condor_slot2")
    first.run("children", 5)
    job = first.start("children", 5, "wait", 60000)
    second.path.mkdir()
    ended = second.run("orphans", 16)
    with on_ground(name) as ground:
        tracer = ground.tracer
        assert (tracer.adopted, tracer.replaced, tracer.warnings) == (True, False, [])
        slots = [Slot(cgroup.path, tracer) for cgroup in (first, second)]
        until(lambda: slots[0].totals()["process_exited"] == 2 + 15)
        assert slots[0].totals()["process_forked"] == 15
        assert slots[0].totals()["process_live"] == 1
        assert_io_of(slots[1], ended)
        assert slots[1].totals()["process_forked"] == ended.said["forked"]
        # what happened meanwhile waits in the ring
        born = [event["name"] for event in tracer.events() if event["kind"] == map_layout.BORN]
        assert born == [b"condor_slot1", b"condor_slot2"]
        job.kill()
        job.wait()
        assert slots[0].totals()["process_signalled"] == 1
        assert tracer.lost() == 0


def test_it_can_be_killed_again_and_again(name: str) -> None:
    killed_tracer(name, lambda ground: ground.slot())
    cgroup = Cgroup(Ground.place(name) / "condor_slot1")
    for _ in range(5):
        cgroup.run("children", 2)
        killed_tracer(name, lambda ground: None)
    with on_ground(name) as ground:
        assert ground.tracer.adopted
        assert Slot(cgroup.path, ground.tracer).totals()["process_forked"] == 10


def runs_at_waits_end(tracer: Tracer) -> bool:
    """Whether a program is there for when a call ends that has waited."""
    return bool(
        lib.bpf_map_lookup_elem(tracer.basic.maps["jl_at_waits_end"], ffi.new("__u32 *"), ffi.new("__u32 *")) == 0
    )


def start_profile(ground: Ground) -> Slot:
    slot, profile = ground.slot(), ground.tracer.sensors["profile"]
    assert isinstance(profile.sensor, Profile)
    profile.sensor.describe(slot.index, 1, 12345)
    assert profile.start(slot.index), profile.missing
    assert runs_at_waits_end(ground.tracer)
    # a clock on each CPU and no other hook: jobs at other levels meet no further program
    assert profile.sensor.loaded is not None and not profile.sensor.loaded._links
    return slot


def test_the_next_tracer_takes_no_stacks_of_waits_until_a_job_needs_them(name: str) -> None:
    killed_tracer(name, start_profile)
    with on_ground(name) as ground:
        assert ground.tracer.adopted and not runs_at_waits_end(ground.tracer)


def test_stacks_of_waits_end_with_the_last_job_that_needs_them(ground: Ground) -> None:
    slot = start_profile(ground)
    ground.tracer.sensors["profile"].discard(slot.index)
    until(lambda: (ground.tracer.settle(), not runs_at_waits_end(ground.tracer))[1])


def test_slots_of_the_adopted_are_still_free(name: str) -> None:
    killed_tracer(name, lambda ground: ground.slot("condor_slot1"), max_slots=2)
    with on_ground(name, max_slots=2) as ground:
        ground.slot("condor_slot2").run("children", 2)
        assert ground.tracer.lost() == 0
        ground.slot("condor_slot3")
        assert ground.tracer.lost() == 1


def test_another_versions_pins_are_replaced(name: str) -> None:
    killed_tracer(name, lambda ground: ground.slot("condor_slot1"), max_slots=32)
    (theirs,) = (BPFFS / name).iterdir()
    with on_ground(name, max_slots=64) as ground:
        assert (ground.tracer.adopted, ground.tracer.replaced) == (False, True)
        (ours,) = ground.pins.iterdir()
        assert ours != theirs
        assert ground.tracer.slot_of((ground.base / "condor_slot1").stat().st_ino) is None
        # one program counts, not two
        slot = ground.slot("condor_slot2")
        assert slot.run("children", 3).said["forked"] == slot.totals()["process_forked"]


def test_what_was_pinned_only_in_part_is_not_adopted(name: str) -> None:
    killed_tracer(name, lambda ground: ground.slot("condor_slot1"))
    (folder,) = (BPFFS / name).iterdir()
    (folder / "basic" / "complete").rmdir()
    with on_ground(name) as ground:
        assert (ground.tracer.adopted, ground.tracer.replaced) == (False, False)
        slot = ground.slot("condor_slot2")
        assert slot.run("children", 3).said["forked"] == slot.totals()["process_forked"]


def test_an_orderly_stop_leaves_nothing(name: str) -> None:
    def descriptors() -> list[str]:
        gc.collect()
        with os.scandir("/proc/self/fd") as entries:
            return sorted(link for link in (os.readlink(entry.path) for entry in entries) if "bpf" in link)

    def live() -> None:
        before = descriptors()
        for _ in range(2):
            with on_ground(name) as ground:
                assert ground.pins.is_dir() and descriptors() != before
            assert not ground.pins.exists() and not ground.base.exists()
            del ground
            assert descriptors() == before

    assert os.waitpid(forked(live), 0)[1] == 0


@pytest.mark.guest
def test_without_bpffs_it_counts_and_says_what_is_lost(name: str, tmp_path: Path) -> None:
    with on_ground(name) as ground:
        tracer = Tracer(8, tmp_path / "pins")
        (warning,) = tracer.warnings
        assert str(tmp_path / "pins") in warning and "mount -t bpf" in warning and "\n" not in warning
        assert tracer.pins() is None and not tracer.adopted
        tracer.watch_below([ground.base.stat().st_ino], None)
        slot = Slot(ground.slot().path, tracer)
        slot.run("children", 3)
        assert slot.totals()["process_forked"] == 3
        tracer.close()
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_nothing_is_pinned_in_a_strangers_folder_and_nothing_there_adopted(name: str) -> None:
    """Where everybody may write, a user can make the folder of our pins before we do, or put maps of his into it."""
    with grounds.bpffs():
        pins = BPFFS / f"{name}-strangers"
        pins.mkdir()
        os.chown(pins, 65534, 65534)
        tracer = Tracer(8, pins)
        try:
            (warning,) = tracer.warnings
            assert f"{pins} belongs to the user 65534: give it to root alone" in warning
            assert tracer.pins() is None and list(pins.iterdir()) == []
            (pins / "0123456789abcdef" / "basic" / "complete").mkdir(parents=True)
            assert not Tracer(8, pins).adopted
        finally:
            tracer.close()
            shutil.rmtree(pins, ignore_errors=True)
