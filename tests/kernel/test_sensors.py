"""A further sensor is a file of C and a class: the tracer loads, starts, reads, adopts and unloads it as its own."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess

import numpy as np
import pytest
from ground import CHECKOUT, HERE, Cgroup, Ground, Slot, forked, known_to_be_missing, on_ground

from condor_joblens.model.levels import Level
from condor_joblens.tracer import module_types
from condor_joblens.tracer.loader import Loaded, Part
from condor_joblens.tracer.sensors import SENSORS, CloserSensor
from condor_joblens.tracer.sensors.servers import FuseRequests

PR_SET_NAME = 15  # include/uapi/linux/prctl.h
COUNTS = np.dtype([("counted", "u8"), ("renames", "u8"), ("lost", "u8")])
ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}


class Renames(CloserSensor):
    """How often the tasks of a slot are renamed."""

    name = "renames"
    level = Level.PROFILE

    def sizes(self) -> dict[str, int]:
        return {"jl_renames": self._basic.max_slots}

    def opened(self) -> None:
        self._counts = self.view("jl_renames", COUNTS, self._basic.max_slots)

    def closed(self) -> None:
        self.__dict__.pop("_counts", None)

    def start(self, slot: int) -> bool:
        if np.count_nonzero(self._counts["counted"]) >= self.max_jobs and not self._counts["counted"][slot]:
            return False
        self._counts[slot] = (1, 0, 0)
        return True

    def stop(self, slot: int) -> np.ndarray | None:
        if not self._counts["counted"][slot]:
            return None
        self._counts["counted"][slot] = 0
        return self._counts[slot : slot + 1].copy()

    def counters(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counted = self._counts["counted"][slots] > 0
        return counted, self._counts[slots[counted]]

    def in_use(self) -> bool:
        return bool(self._counts["counted"].any())

    def lost(self) -> int:
        return super().lost() + (int(self._counts["lost"].sum()) if self.loaded is not None else 0)


SENSORS_AND_OURS = (*SENSORS, Renames)


@pytest.fixture(autouse=True, scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiles its programs as `make build` compiles ours."""
    stem = tmp_path_factory.mktemp("sensor") / "renames"
    flags = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v2"]
    architecture = f"-D__TARGET_ARCH_{ARCHITECTURES[platform.machine()]}"
    include = ["-I", CHECKOUT / "bpf_programs" / "lib"]
    subprocess.run(
        ["clang", *flags, architecture, *include, "-c", HERE / "renames.bpf.c", "-o", f"{stem}.bpf.o"], check=True
    )
    Renames.parts = (Part("renames of tasks", (str(stem),), (("jl_rename",),), needed=True),)


def rename(times: int) -> None:
    """The calling process gets a new name so often."""
    libc = ctypes.CDLL(None)
    for number in range(times):
        libc.prctl(PR_SET_NAME, b"name%d" % number)


def renames(slot: Slot) -> int | None:
    """What is counted for the slot; None if it is not counted."""
    counted, values = slot.tracer.sensors["renames"].counters(np.array([slot.index]))
    return int(values["renames"][0]) if counted[0] else None


def test_it_is_there_while_a_slot_needs_it_and_counts_that_slot_alone(name: str) -> None:
    with on_ground(name, sensors=SENSORS_AND_OURS, max_jobs={"renames": 2}) as ground:
        tracer, sensor = ground.tracer, ground.tracer.sensors["renames"]
        watched, neighbour, third = (ground.slot(f"condor_slot{number}") for number in (1, 2, 3))
        basic = tracer.attached()
        assert "jl_rename" not in basic and tracer.levels_of_programs()["jl_rename"] == "profile"
        watched.call(lambda: rename(7))

        assert sensor.start(watched.index) and not sensor.missing
        assert set(tracer.attached()) == {*basic, "jl_rename"}
        watched.call(lambda: rename(5))
        neighbour.call(lambda: rename(3))
        assert (renames(watched), renames(neighbour)) == (5, None)
        executed = watched.run("children", 3).said["executed"] + 1  # its own besides
        assert renames(watched) == 5 + executed

        assert sensor.start(neighbour.index) and not sensor.start(third.index)
        assert "JOBLENS_MAX_JOBS_RENAMES = 2" in sensor.why_not()
        last = sensor.stop(watched.index)
        assert last is not None and last["renames"][0] == 5 + executed and sensor.stop(watched.index) is None
        watched.call(lambda: rename(2))
        tracer.settle()
        assert renames(watched) is None and "jl_rename" in tracer.attached()

        pins = tracer.pins()
        assert pins is not None and (pins / "renames" / "complete").is_dir()
        tracer.stop(neighbour.index)  # all sensors let go of it
        tracer.settle()
        assert tracer.attached() == basic and not (pins / "renames").exists()
        assert sensor.start(watched.index) and renames(watched) == 0, "and it can come again"


def test_what_it_could_not_count_is_its_loss_and_nobody_elses(name: str) -> None:
    with on_ground(name, sensors=SENSORS_AND_OURS) as ground:
        sensor, slot = ground.tracer.sensors["renames"], ground.slot()
        assert sensor.start(slot.index)
        slot.call(lambda: rename(130))
        assert (renames(slot), sensor.lost()) == (100, 30)
        assert (ground.tracer.lost(), ground.tracer.sensors["io"].lost()) == (0, 0)
        assert sensor.stop(slot.index) is not None
        ground.tracer.settle()
        assert sensor.lost() == 30, "it is unloaded, and what it lost stays lost"
        ground._lost = 0  # the ground is not to complain: they were lost on purpose


@pytest.mark.parametrize("both", [False, True], ids=["alone", "beside io"])
def test_it_goes_on_without_its_agent_and_the_next_tracer_adopts_it(name: str, both: bool) -> None:
    def live() -> None:
        ground = Ground(name, sensors=SENSORS_AND_OURS)
        slot = ground.slot()
        assert ground.tracer.sensors["renames"].start(slot.index)
        if both:
            slot.start_io()
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitpid(forked(live), 0)[1] == signal.SIGKILL
    cgroup = Cgroup(Ground.place(name) / "condor_slot1")
    cgroup.call(lambda: rename(4))
    with on_ground(name, sensors=SENSORS_AND_OURS) as ground:
        assert ground.tracer.adopted, ground.tracer.warnings
        assert ground.tracer.missing.keys() <= known_to_be_missing()
        slot = Slot(cgroup.path, ground.tracer)
        assert renames(slot) == 4
        slot.call(lambda: rename(6))
        assert renames(slot) == 10
        assert ("jl_switch" in ground.tracer.attached()) == both
        assert ground.tracer.sensors["renames"].stop(slot.index) is not None
        ground.tracer.settle()
        assert "jl_rename" not in ground.tracer.attached()
        assert ("jl_switch" in ground.tracer.attached()) == both


def test_a_tracer_that_does_not_know_it_replaces_what_was_pinned(name: str) -> None:
    def live() -> None:
        ground = Ground(name, sensors=SENSORS_AND_OURS)
        assert ground.tracer.sensors["renames"].start(ground.slot().index)
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitpid(forked(live), 0)[1] == signal.SIGKILL
    with on_ground(name) as ground:
        assert (ground.tracer.adopted, ground.tracer.replaced) == (False, True)
        assert "jl_rename" not in ground.tracer.attached() and not list(ground.pins.glob("*/renames"))


def test_requests_to_servers_that_the_kernel_refuses_to_tell_are_missing_and_nothing_else(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Loaded()
    refused.missing = {"requests of FUSE": "no such tracepoint"}
    sensor = FuseRequests(ground.tracer.basic)
    monkeypatch.setattr(module_types, "is_there", lambda module: True)
    monkeypatch.setattr(sensor, "load", lambda *_: refused)
    sensor.begin(None, ground.tracer.basic.maps)
    assert (sensor.missing, sensor.loaded, sensor.is_attached) == (refused.missing, None, False)
