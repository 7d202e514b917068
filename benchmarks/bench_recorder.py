#!/usr/bin/env python3
"""What the flight recorder costs a call of a job at level trace, and joblensd; how soon last events are safe and out.

Calls are measured in turn in one run: without programs, with an empty one at the end of calls, recorded ones, and those
of a neighbour. Opens also with a program that only asks the kernel what no record can lack: who, when, and the path.
What is compared lies close together in time, and the median over all rounds counts. joblensd's part is CPU time of this
process, with the node of the unit tests: rings, rows and copies are real.

    bench_recorder.py [--rounds N]        as root, after `make build`
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDERS = (CHECKOUT, CHECKOUT / "tests" / "kernel", CHECKOUT / "tests" / "unit", CHECKOUT / "benchmarks")
sys.path[:0] = [str(folder) for folder in FOLDERS]

import pytest  # noqa: E402
from agent_node import Made, make  # noqa: E402
from bench_syscalls import MODES, Bench, Empty, Rounds  # noqa: E402
from ground import Cgroup, Slot, on_ground, until  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.agent.flight_recorder import FOLDER  # noqa: E402
from condor_joblens.agent.levels import recorder_level  # noqa: E402
from condor_joblens.common import descriptors, own_process  # noqa: E402
from condor_joblens.model.levels import Level  # noqa: E402
from condor_joblens.tracer import map_layout  # noqa: E402
from condor_joblens.tracer.bpf import Tracer  # noqa: E402
from condor_joblens.tracer.sensors import Recorder  # noqa: E402
from condor_joblens.tracing import recorder_reader  # noqa: E402

LOADS = 4
JOBS, EVENTS_A_SECOND = 100, 10_000
ROUNDS_OF_JOBLENSD = 200
TAGS = 100
COPIES = 3
CALLS = (
    ("getppid, which is no event", ("getppid", "200", "3000"), None),
    ("failed fsync, an event without a text", ("badsync", "100", "3000"), 120.0),
    ("failed open, an event with its path", ("open", "100", "3000", "/nowhere/at all"), 120.0),
    ("open and close of a file, one event with its path", ("open", "100", "3000", "/etc/hostname"), 120.0),
)
ASKING = "asking"
STORM = (
    "import os, sys, time\n"
    "events, pause = int(sys.argv[1]), float(sys.argv[2])\n"
    "while True:\n"
    "    for i in range(events): os.access(f'/nowhere/{os.getpid()}/{i}', 0)\n"
    "    time.sleep(pause)\n"
)


class RecorderBench(Bench):
    """A tracer with two jobs, of which one is recorded, in each of the modes in turn."""

    def __init__(self, tracer: Tracer, recorded: Cgroup, neighbour: Cgroup, folder: Path) -> None:
        super().__init__(tracer, recorded, neighbour, folder)
        self.hooks = ("empty_exit",)
        self.asking = Empty(folder, "asking")

    @contextlib.contextmanager
    def mode(self, name: str) -> Iterator[Cgroup]:
        """The kernel as `name` has it; the cgroup in which to measure."""
        if name == ASKING:
            with self.asking.attached(("asking_exit",)):
                yield self.jobs["unwatched"]
            return
        if name not in self.jobs:
            with super().mode(name) as present:
                yield present
            return
        slot = self.tracer.slot_of(self.jobs["watched"].cgroup_id)
        assert slot is not None
        record(Slot(self.jobs["watched"].path, self.tracer))
        try:
            yield self.jobs[name]
        finally:
            self.tracer.sensors["recorder"].stop(slot)
            self.tracer.settle()

    def nanoseconds(self, arguments: tuple[str, ...]) -> float:
        """Of one call: of this time's batches that which only one in twenty undercuts."""
        command = [str(self.program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=self.enter)
        times = sorted(map(float, done.stdout.split()))
        return times[len(times) // 20]


def record(slot: Slot) -> None:
    """The slot's job is recorded from now on, as root's."""
    demand = slot.tracer.sensors["recorder"]
    assert isinstance(demand.sensor, Recorder)
    demand.sensor.describe(slot.index, os.getuid())
    assert demand.start(slot.index), demand.missing
    slot.tracer.counters["awaits_exec"][slot.index] = map_layout.AWAITS_NOTHING


def of_calls(section: Section, rounds: int, folder: Path) -> None:
    """Single calls. Where the kernel puts a program decides about some nanoseconds: so all are loaded several times."""
    took = {what: Rounds() for what, *_ in CALLS}
    for _ in range(LOADS):
        with on_ground(f"joblens-bench-{os.getpid()}") as ground:
            bench = RecorderBench(ground.tracer, ground.slot("condor_slot1"), ground.slot("condor_slot2"), folder)
            for what, arguments, _target in CALLS:
                modes = (*MODES, ASKING) if arguments[0] == "open" else MODES
                nanoseconds = functools.partial(bench.nanoseconds, arguments)
                took[what] += bench.each(max(1, rounds // LOADS), nanoseconds, modes)
    for what, arguments, target in CALLS:
        found = took[what]
        section.add(f"{what}: without any program", found.least("none"), "ns")
        section.add(f"{what}: an empty program more", found.more("empty", "none"), "ns")
        section.add(f"{what}: a neighbour's, above the empty one", found.more("unwatched", "empty"), "ns")
        if arguments[0] == "open":
            section.add(f"{what}: who, when and the path alone, above the empty one", found.more(ASKING, "empty"), "ns")
        section.add(f"{what}: recorded, above the empty one", found.more("watched", "empty"), "ns", target)


def memory(tracer: Tracer) -> int:
    """Bytes that the kernel says it has taken for the recorder's maps."""
    sensor = tracer.sensors["recorder"].sensor
    said = [Path(f"/proc/self/fdinfo/{descriptor}").read_text() for descriptor in sensor.maps.values()]
    return sum(int(found[1]) for text in said if (found := re.search(r"^memlock:\s*(\d+)", text, re.M)))


def of_joblensd(section: Section, folder: Path) -> None:
    """Rounds of joblensd while 100 jobs are recorded, whose events keep coming; then their last events are wanted."""
    bytes_a_job = 512 << 10
    options = {"max_slots": 2 * JOBS, "max_jobs": {"recorder": JOBS}, "recorder_bytes": bytes_a_job}
    with on_ground(f"joblens-bench-{os.getpid()}", **options) as ground, pytest.MonkeyPatch.context() as patch:
        made = make(folder, patch)
        made.node.tracer.sensors = ground.tracer.sensors  # type: ignore[misc]
        slots = [ground.slot(f"condor_slot{number}") for number in range(JOBS)]
        for slot in slots:
            run = made.begin(f"{slot.index}.0", Level.TRACE)
            made.node.runs.state["kernel_slot"][run] = slot.index
            record(slot)
        section.add(f"memory of the kernel for {JOBS} jobs of 512 KiB", memory(ground.tracer) / (1 << 20), "MiB", 64.0)
        storm = ["python3", "-S", "-c", STORM, str(EVENTS_A_SECOND // JOBS), "1"]
        pids = [slot.fork(lambda: os.execv(sys.executable, storm)) for slot in slots]
        try:
            sensor = ground.tracer.sensors["recorder"].sensor
            assert isinstance(sensor, Recorder)
            until(lambda: all(len(found.records) for slot in slots if (found := sensor.recording(slot.index))))
            rounds_while_it_storms(section, made, sensor)
            tags(section, made, ground.tracer)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def rounds_while_it_storms(section: Section, made: Made, sensor: Recorder) -> None:
    """What joblensd does once a second."""
    before, began = int(sensor._heads["heads"].sum()), time.monotonic()
    cpu = 0.0
    for _ in range(ROUNDS_OF_JOBLENSD):
        at = time.process_time()
        recorder_level.retry(made.levels)
        made.agent.recorder.tick(time.monotonic())
        cpu += time.process_time() - at
        time.sleep(0.02)
    events = (int(sensor._heads["heads"].sum()) - before) / (time.monotonic() - began)
    section.add(f"events of {JOBS} jobs together while joblensd is measured", events, "/s")
    share = 100 * cpu / ROUNDS_OF_JOBLENSD / made.node.config.period
    section.add(f"joblensd's part of {JOBS} recorded jobs", share, "% of a core", 0.1)


def tags(section: Section, made: Made, tracer: Tracer) -> None:
    """How long a job's rings take to be safe, from the moment that joblensd wants them."""
    took: list[float] = []
    copies = Path(made.node.config.run_dir) / FOLDER
    for number in range(TAGS):
        run = int(made.node.runs.living()[number % JOBS])
        began = time.monotonic()
        made.agent.recorder.tag(run, "owner")
        took.append(1e3 * (time.monotonic() - began))
        made.agent.recorder._waiting.clear()
        for copy in copies.iterdir():
            copy.unlink()
    section.add("a copy of 512 KiB is safe, from the tag: median", sorted(took)[TAGS // 2], "ms")
    section.add("a copy of 512 KiB is safe, from the tag: p99", sorted(took)[TAGS * 99 // 100], "ms", 50.0)


def of_a_full_ring(section: Section, folder: Path) -> None:
    """One job with rings of 1 MiB that are full: how long a copy of them takes, and what makes words of it."""
    with on_ground(f"joblens-bench-{os.getpid()}") as ground, pytest.MonkeyPatch.context() as patch:
        made, slot = make(folder, patch), ground.slot()
        made.node.tracer.sensors = ground.tracer.sensors  # type: ignore[misc]
        run = made.begin("1.0", Level.TRACE)
        made.node.runs.state["kernel_slot"][run] = slot.index
        record(slot)
        section.add("memory of the kernel for 64 jobs of 1 MiB", memory(ground.tracer) / (1 << 20), "MiB", 66.0)
        text = "import os\nfor i in range(9000):\n os.access(f'/{i:0150}', 0)\n os.close(os.open('/etc/hostname', 0))"
        os.waitpid(slot.fork(lambda: os.execv(sys.executable, ["python3", "-S", "-c", text])), 0)
        took: list[float] = []
        words: list[float] = []
        for _ in range(COPIES):
            began = time.monotonic()
            made.agent.recorder.tag(run, "death")
            took.append(1e3 * (time.monotonic() - began))
        for copy in (Path(made.node.config.run_dir) / FOLDER).iterdir():
            began = time.monotonic()
            made_of(copy)
            words.append(time.monotonic() - began)
        section.add("a copy of 1 MiB that is full is safe, from the tag", max(took), "ms", 50.0)
        section.add("words of 1 MiB of paths that all differ, from the tag", max(words), "s", 5.0)


def made_of(copy: Path) -> bytes:
    """The artifact of a copy, by a process as joblensd has it started."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, copy.open("rb") as file:
        process = own_process.start(own_process.command(recorder_reader.MODULE), theirs)
        theirs.close()
        descriptors.send(ours, b"copy", [file.fileno()])
        length, made = int(ours.recv(64)), b""
        while packet := ours.recv(1 << 16):
            made += packet
        assert (process.wait(), len(made)) == (0, length)
    return made


def main() -> int:
    """Measures all of it; 1 where a target is missed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=12)
    section = Section(
        "recorder",
        "Level trace: the flight recorder",
        "Beside an empty program on the same hook, in the same run, the modes in turn; the median of the rounds. Level "
        "trace has the programs of levels io and profile as well: they are not in it. Who, when and the path are three "
        "helpers of the kernel, without which there is no record of an open. Until somebody wants the last "
        "events, joblensd only looks who is recorded.",
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:  # as /run, where copies lie
        folder = Path(path)
        of_calls(section, arguments.parse_args().rounds, folder)
        for number, measure in enumerate((of_joblensd, of_a_full_ring)):
            (folder / str(number)).mkdir()
            measure(section, folder / str(number))
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
