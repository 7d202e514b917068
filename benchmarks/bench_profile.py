#!/usr/bin/env python3
"""What level profile costs: the program for each sample, and joblensd's part and the reader for 20 jobs.

The program's time is what the kernel counts of it (kernel.bpf_stats_enabled). It runs at a higher rate than at work,
with warm caches, so these are its hot times. Those of many jobs are at the rate of work.

    bench_profile.py [--seconds N]         as root, after `make build`
"""

from __future__ import annotations

import argparse
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "kernel")]

import numpy as np  # noqa: E402
from condor_joblens.tracer._bpf import ffi, lib  # noqa: E402
from ground import Ground, Slot, on_ground, profiled_programs, until  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.agent.profiles import MODULE, Profiles  # noqa: E402
from condor_joblens.common.own_process import cpu_seconds  # noqa: E402
from condor_joblens.common.process_starter import ProcessStarter  # noqa: E402
from condor_joblens.owner_files.allowed_ids import AllowedIds  # noqa: E402
from condor_joblens.profiles import pprof  # noqa: E402
from condor_joblens.profiling import starter  # noqa: E402
from condor_joblens.tracer import loader  # noqa: E402
from condor_joblens.tracer.links import DescriptorLink  # noqa: E402
from condor_joblens.tracer.sensors import Profile  # noqa: E402
from condor_joblens.tracer.sensors.profile import HZ, online_cpus  # noqa: E402

OWNER, STARTER, READER = 12345, 64001, 64002
WARM_HZ = 9999
"""So often that nothing else has the caches between two samples."""

RUNS_BUSILY = CHECKOUT / "tests" / "kernel" / "run_busily.py"
JOBS = 20
HOT_HZ = 999
CLOCKS = ((WARM_HZ, "warm caches", 200), (HOT_HZ, "caches that others use as well", 800))
"""Samples a second, what that does to caches, and nanoseconds that an unsampled job may lose then."""

SAMPLES_OF_64_CORES = 6400


class Sampled:
    """Slots that are sampled, with joblensd's part in this process."""

    def __init__(
        self,
        ground: Ground | Slot,
        lookers: ProcessStarter,
        readers: ProcessStarter,
        folder: int,
        keep: Callable[..., bool] = lambda *_: True,
    ) -> None:
        sensor = ground.tracer.sensors["profile"].sensor
        assert isinstance(sensor, Profile)
        self.tracer, self.sensor = ground.tracer, sensor
        self.selector = selectors.DefaultSelector()

        def open_files(_run: int, channel: socket.socket) -> None:
            lookers.start(channel, folder)

        self.lookers = lookers
        self.profiles = Profiles(sensor, 128 << 20, readers, open_files, keep, lambda *_: None, self.selector, print)

    def begin(self, slot: Slot, run: int) -> None:
        self.sensor.describe(slot.index, run, OWNER)
        assert self.tracer.sensors["profile"].start(slot.index), self.tracer.missing
        self.profiles.begin(run, slot.index)

    def turn(self, seconds: float) -> None:
        """What joblensd's loop does for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for key, _ in self.selector.select(min(1.0, left)):
                key.data()
            self.lookers.receive()
            self.profiles.tick(time.monotonic())

    def known(self) -> int:
        """Processes whose stacks can be unwound by tables."""
        return len(self.sensor.keys("jl_mappings", 16))


def start(slot: Slot, program: Path, argument: str = "plain") -> None:
    """A job that is busy, some twelve frames deep."""

    def act() -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.setgroups([])
        os.setresgid(OWNER, OWNER, OWNER)
        os.setresuid(OWNER, OWNER, OWNER)
        os.execv(program, [str(program), argument])

    slot.fork(act)


@contextmanager
def counted_by_the_kernel() -> Iterator[None]:
    """The kernel counts the time of programs."""
    descriptor = lib.bpf_enable_stats(lib.BPF_STATS_RUN_TIME)
    try:
        yield
    finally:
        os.close(descriptor)


def cost(sampled: Sampled, seconds: float) -> float:
    """Nanoseconds of the program for one sample, over so many seconds."""
    with counted_by_the_kernel():
        took, runs = sampled.tracer.programs_cost()["jl_sample_cpu"]
        sampled.turn(seconds)
        after, more = sampled.tracer.programs_cost()["jl_sample_cpu"]
    return (after - took) / max(1, more - runs) * 1e9


def cost_of_empty(folder: Path, hz: int, seconds: float) -> float:
    """Nanoseconds of a program that does nothing, at so many samples a second, by the same statistics."""
    built = folder / "empty.bpf.o"
    options = ["-O2", "-g", "-target", "bpf", "-mcpu=v2", "-D__TARGET_ARCH_x86"]
    include = ["-I", CHECKOUT / "bpf_programs" / "lib"]
    subprocess.run(
        ["clang", *options, *include, "-c", CHECKOUT / "benchmarks" / "empty.bpf.c", "-o", built], check=True
    )
    loaded = lib.open_object(os.fsencode(built), b"empty", ffi.NULL)
    assert lib.bpf_object__load(loaded) == 0
    program, runs = dict(loader.each_program(loaded))["empty_clock"], ffi.new("uint64_t *")
    clocks = [lib.open_cpu_clock(cpu, hz) for cpu in online_cpus()]
    links = [DescriptorLink(lib.run_at_clock(lib.bpf_program__fd(program), clock)) for clock in clocks]
    with counted_by_the_kernel():
        time.sleep(seconds)
        took = lib.program_run_ns(lib.bpf_program__fd(program), runs)
    for link in links:
        link.close()
    for clock in clocks:
        os.close(clock)
    lib.bpf_object__close(loaded)
    return took / max(1, int(runs[0]))


def unsampled(section: Section, name: str, seconds: float, program: Path, children: tuple[ProcessStarter, ...]) -> None:
    """A job that is not sampled, beside one that is wanted and does nothing."""
    folder, took = os.open(name, os.O_RDONLY | os.O_DIRECTORY), 0.0
    for hz, caches, most in CLOCKS:
        with on_ground(f"joblens-bench-{os.getpid()}-{hz}", profile_hz=hz) as ground:
            watched, other = ground.slot("watched"), ground.slot("other")
            sampled = Sampled(ground, *children, folder)
            sampled.begin(watched, 1)
            for _ in range(os.cpu_count() or 1):
                start(other, program)
            took = cost(sampled, seconds)
            section.add(f"a sample of a job that is not sampled, {caches}", took, "ns", most, f"{hz:,} a second")
            empty = cost_of_empty(program.parent, hz, seconds)
            section.add(
                f"the same with an empty program, {caches}", empty, "ns", None, "as the kernel counts it: its own part"
            )
            sampled.profiles.close()
    section.add(f"that job's loss at {HZ} samples a second", took * HZ / 1e7, "% of a core", 0.01)
    os.close(folder)


def one_sample(
    section: Section, name: str, seconds: float, program: Path, children: tuple[ProcessStarter, ...]
) -> None:
    lookers, readers, folder = children[0], children[1], os.open(name, os.O_RDONLY | os.O_DIRECTORY)
    with on_ground(f"joblens-bench-{os.getpid()}", profile_hz=HOT_HZ) as ground:
        watched = ground.slot("watched")
        sampled = Sampled(ground, lookers, readers, folder)
        sampled.begin(watched, 1)
        for _ in range(os.cpu_count() or 1):
            start(watched, program)
        until(lambda: (sampled.turn(0.1), sampled.known() >= (os.cpu_count() or 1))[1], 60)
        section.add("a sample of 12 frames, by tables", cost(sampled, seconds) / 1000, "µs", 10)
        for pid in watched.pids():
            os.kill(pid, signal.SIGKILL)
        for _ in range(os.cpu_count() or 1):
            start(watched, Path("/usr/bin/python3"), str(shutil.copy(RUNS_BUSILY, program.parent)))
        pythons = sampled.sensor.keys
        until(lambda: (sampled.turn(0.1), len(pythons("jl_pythons", 16)) >= (os.cpu_count() or 1))[1], 60)
        section.add("a sample of Python, some ten functions deep", cost(sampled, seconds) / 1000, "µs", 10)
        sampled.profiles.close()
    os.close(folder)


def own_memory(pid: int | str) -> dict[str, float]:
    """MiB of a process: Rss, and Pss and Uss that leave out what others have of it."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii", errors="replace") as told:
        found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in told if line.endswith(" kB\n")}
    return {**found, "Uss": found["Private_Clean"] + found["Private_Dirty"]}


def many_jobs(section: Section, name: str, seconds: float, program: Path, children: tuple[ProcessStarter, ...]) -> None:
    lookers, readers, folder = children[0], children[1], os.open(name, os.O_RDONLY | os.O_DIRECTORY)
    with on_ground(f"joblens-bench-{os.getpid()}-many") as ground:
        sampled = Sampled(ground, lookers, readers, folder)
        for number in range(JOBS):
            slot = ground.slot(f"slot{number}")
            sampled.begin(slot, number + 1)
            start(slot, program)
        until(lambda: (sampled.turn(0.1), sampled.known() >= JOBS)[1], 120)
        own, reader, began = time.process_time(), cpu_seconds(sampled.profiles.pid), time.monotonic()
        with counted_by_the_kernel():
            spent, runs = sampled.tracer.programs_cost()["jl_sample_cpu"]
            sampled.turn(seconds)
            after, more = sampled.tracer.programs_cost()["jl_sample_cpu"]
        took, count = time.monotonic() - began, max(1, more - runs)
        each = (after - spent) / count
        section.add(f"{JOBS} jobs: a sample, at {HZ} a second", each * 1e6, "µs", 30)
        section.add(f"{JOBS} jobs: the program, of each core that they keep busy", each * HZ * 100, "% of a core", 0.5)
        section.add(f"{JOBS} jobs: joblensd's part", (time.process_time() - own) / took * 100, "% of a core")
        section.add(
            f"{JOBS} jobs: the reader of samples, windows included",
            (cpu_seconds(sampled.profiles.pid) - reader) / took * 100,
            "% of a core",
            2,
        )
        reader_memory = own_memory(sampled.profiles.pid)
        why = "resident; pages of files that other processes have as well are in it"
        section.add("memory of the reader", reader_memory["Rss"], "MiB", 25, why)
        why = "each shared page divided by those that have it (PSS)"
        section.add("memory of the reader, its part of what is shared", reader_memory["Pss"], "MiB", None, why)
        why = "no other process has these pages (USS)"
        section.add("memory of the reader that is its own", reader_memory["Uss"], "MiB", None, why)
        sampled.profiles.close()
    os.close(folder)


class Windows:
    """What is in the windows that were kept: samples, those that were left alone or lost included."""

    def __init__(self) -> None:
        self.told = self.lost = 0

    def keep(self, _run: int, _begun: float, _ended: float, data: bytes, is_off_cpu: bool) -> bool:
        if not is_off_cpu:
            window = pprof.decode(data)
            self.told += window.samples + window.not_ours
            self.lost += window.lost
        return True


def many_samples(
    section: Section, name: str, seconds: float, program: Path, children: tuple[ProcessStarter, ...]
) -> None:
    """As many samples as a node of 64 cores has, of jobs on the CPUs that are here."""
    cpus = os.cpu_count() or 1
    hz, windows = SAMPLES_OF_64_CORES // cpus, Windows()
    lookers, readers, folder = children[0], children[1], os.open(name, os.O_RDONLY | os.O_DIRECTORY)
    with on_ground(f"joblens-bench-{os.getpid()}-samples", profile_hz=hz) as ground:
        sampled = Sampled(ground, lookers, readers, folder, windows.keep)
        slots = {number: ground.slot(f"slot{number}") for number in range(cpus)}
        for number, slot in slots.items():
            sampled.begin(slot, number + 1)
            start(slot, program)
        until(lambda: (sampled.turn(0.1), sampled.known() >= cpus)[1], 120)
        own, reader, began = time.process_time(), cpu_seconds(sampled.profiles.pid), time.monotonic()
        before = hits(sampled, slots)
        sampled.turn(seconds)
        took, count = time.monotonic() - began, hits(sampled, slots) - before
        spent = time.process_time() - own + cpu_seconds(sampled.profiles.pid) - reader
        section.add("a node of 64 cores: samples of its jobs, as many as came", count / took, "a second")
        share = spent / max(1, count) * SAMPLES_OF_64_CORES * 100
        what = f"a node of 64 cores: joblensd's part and the reader, for {SAMPLES_OF_64_CORES} a second"
        section.add(what, share, "% of a core", 6)
        for slot in slots.values():
            for pid in slot.pids():
                os.kill(pid, signal.SIGKILL)
        counted = hits(sampled, slots)
        for number in slots:
            sampled.profiles.close_window(number + 1)
        until(lambda: (sampled.turn(0.1), windows.told + windows.lost >= counted)[1], 120)
        section.add("a node of 64 cores: samples lost, and declared", windows.lost / counted * 100, "%")
        sampled.profiles.close()
    os.close(folder)


def hits(sampled: Sampled, slots: dict[int, Slot]) -> int:
    """Samples that the kernel has counted of the slots."""
    _, counted = sampled.sensor.counters(np.array([slot.index for slot in slots.values()]))
    return int(counted["samples"].sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (20)")
    seconds = parser.parse_args().seconds
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    section = Section(
        "profile",
        "Samples at level profile",
        f"C++ without frame pointers, busy. The program's times are at {HOT_HZ} samples a second and CPU; those of "
        f"{JOBS} jobs at 99, the first windows included. A node of 64 cores is one with fewer, sampled more often.",
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        program = Path(shutil.copy(profiled_programs()["shared"], name))
        scratch = f"{name}/scratch"
        os.mkdir(scratch)
        os.chown(scratch, OWNER, OWNER)
        allowed = AllowedIds(1000, (), 1000, ()).encode()
        children = (
            ProcessStarter("what looks at jobs", allowed, STARTER, STARTER, starter.__name__),
            ProcessStarter("readers of samples", MODULE, READER, READER),
        )
        try:
            unsampled(section, scratch, seconds, program, children)
            one_sample(section, scratch, seconds, program, children)
            many_jobs(section, scratch, seconds, program, children)
            many_samples(section, scratch, seconds, program, children)
        finally:
            for each in children:
                each.close()
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
