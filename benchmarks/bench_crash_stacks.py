#!/usr/bin/env python3
"""What it would cost to know at level basic where a job crashed, as level profile does.

The kernel's program runs at each signal that any process of the node takes. It needs the mappings of a process, and
tables of its files, before that process dies. So at basic each process that begins would have to be looked at: here
processes begin one after another in a job that is sampled, and what that takes is counted. No sample is in it.

    bench_crash_stacks.py [--rounds N] [--processes N]         as root, after `make build`
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "kernel")]

from bench_profile import OWNER, READER, RUNS_BUSILY, STARTER, Sampled, counted_by_the_kernel, memory  # noqa: E402
from ground import Slot, crashed_program, on_ground, until  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.agent.profiles import MODULE  # noqa: E402
from condor_joblens.common.own_process import cpu_seconds, cpu_seconds_of_family  # noqa: E402
from condor_joblens.common.process_starter import ProcessStarter  # noqa: E402
from condor_joblens.owner_files.allowed_ids import AllowedIds  # noqa: E402
from condor_joblens.profiling import starter  # noqa: E402
from condor_joblens.tracer.sensors import Profile  # noqa: E402

COUNT, BATCHES = 200, 1000
CRASHES = 20
BEGINS = 100
"""Processes that begin in a second, on a node with jobs that start programs: for a sense of what one comes to."""


def one_signal(slot: Slot, program: Path) -> float:
    """Nanoseconds of one that is handled: of this time's batches that which only one in twenty undercuts."""
    command = [str(program), "signal", str(COUNT), str(BATCHES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=slot.enter)
    return statistics.quantiles(map(float, done.stdout.split()), n=20)[0]


def signals(section: Section, slot: Slot, sensor: Profile, folder: Path, rounds: int) -> None:
    """With the program of crashes and without it in turn; no clock of samples runs meanwhile."""
    program = folder / "calls"
    subprocess.run(["gcc", "-O2", "-Wall", "-o", program, CHECKOUT / "benchmarks" / "calls.c"], check=True)
    assert sensor.loaded is not None
    without, more = [], []
    for _ in range(rounds):
        without.append(one_signal(slot, program))
        link = sensor.loaded.attached("jl_crash")
        more.append(one_signal(slot, program) - without[-1])
        link.close()
    section.add("a signal that a program handles: at basic", min(without), "ns")
    what = "a signal that a program handles: with the program, in any process of the node, more"
    section.add(what, statistics.median(more), "ns", note="each signal: alarms and ends of children, too")


def memory_of_maps(sensor: Profile) -> float:
    """MiB of the kernel's memory for the sensor's maps, before any process is known."""
    found = 0
    for descriptor in sensor.maps.values():
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        found += next(int(line.split()[1]) for line in lines if line.startswith("memlock:"))
    return found / (1 << 20)


class Begun:
    """Programs that begin in a job, and are known some time later."""

    def __init__(self, slot: Slot, sampled: Sampled, folder: Path) -> None:
        self.slot, self.sampled, self.folder = slot, sampled, folder

    def start(self, command: list[str]) -> int:
        def act() -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.setgroups([])
            os.setresgid(OWNER, OWNER, OWNER)
            os.setresuid(OWNER, OWNER, OWNER)
            os.execv(command[0], command)

        return self.slot.fork(act)

    def knows(self, pid: int, key: str) -> bool:
        return any(int.from_bytes(each[:4], "little") == pid for each in self.sampled.sensor.keys(key, 16))

    def until_known(self, pid: int, key: str) -> None:
        until(lambda: (self.sampled.turn(0.02), self.knows(pid, key))[1], 60)

    def spent(self) -> float:
        """CPU seconds of the reader, the children that are the job's owner, and what starts those."""
        return cpu_seconds(self.sampled.profiles.pid) + cpu_seconds_of_family(self.sampled.lookers.pid)

    def one(self, command: list[str], key: str) -> float:
        """CPU seconds until one is known; it is killed then."""
        before = self.spent()
        pid = self.start(command)
        self.until_known(pid, key)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return self.spent() - before

    def kernels(self) -> float:
        """MiB of tables that the kernel has."""
        return self.sampled.profiles._bytes / (1 << 20)


def processes(section: Section, begun: Begun, what: str, command: list[str], key: str, count: int) -> None:
    before = begun.kernels()
    section.add(f"{what}: the first of its kind is known", begun.one(command, key) * 1000, "ms of CPU")
    section.add(f"{what}: tables of its files", begun.kernels() - before, "MiB")
    spent, began = begun.spent(), time.monotonic()
    for _ in range(count):
        begun.one(command, key)
    each = (begun.spent() - spent) / count
    when = (time.monotonic() - began) / count * 1000
    section.add(f"{what}: each further one is known", each * 1000, "ms of CPU", note=f"{when:.0f} ms after it began")
    section.add(f"{what}: {BEGINS} that begin in a second", each * BEGINS * 100, "% of a core")


def crashes(section: Section, begun: Begun) -> None:
    """The kernel's own time for one stack, by bpf_stats; processes that are not killed are not in it."""
    with counted_by_the_kernel():
        took, runs = begun.sampled.tracer.programs_cost()["jl_crash"]
        for number in range(CRASHES):
            file = begun.folder / f"begun{number}"
            pid = begun.start([str(begun.folder / "crashed"), "null", str(file)])
            until(file.exists)
            begun.until_known(pid, "jl_mappings")
            os.kill(pid, signal.SIGUSR1)
            os.waitpid(pid, 0)
        after, more = begun.sampled.tracer.programs_cost()["jl_crash"]
    # each takes two signals: the one that tells it to crash costs next to nothing
    section.add("a crash: its stack, taken in the kernel", (after - took) / CRASHES * 1e6, "µs")
    assert more - runs >= CRASHES


def measure(section: Section, slot: Slot, sampled: Sampled, folder: Path, rounds: int, count: int) -> None:
    sampled.begin(slot, 1)
    sampled.sensor.detach()
    signals(section, slot, sampled.sensor, folder, rounds)
    section.add("memory of the kernel for its maps", memory_of_maps(sampled.sensor), "MiB")
    assert sampled.tracer.sensors["profile"].start(slot.index)
    begun = Begun(slot, sampled, folder)
    program = str(shutil.copy(crashed_program(), folder))
    os.rename(program, folder / "crashed")
    of_cpp = [str(folder / "crashed"), "null", str(folder / "begun")]
    processes(section, begun, "C++", of_cpp, "jl_mappings", count)
    of_python = [os.path.realpath("/usr/bin/python3"), str(shutil.copy(RUNS_BUSILY, folder))]
    processes(section, begun, "Python", of_python, "jl_pythons", count)
    section.add("memory of the reader of samples", memory(sampled.profiles.pid, "VmRSS"), "MiB")
    crashes(section, begun)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15, help="of signals, with and without the program (15)")
    parser.add_argument("--processes", type=int, default=40, help="of each kind, that begin and are known (40)")
    given = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    section = Section(
        "crash_stacks",
        "Where a job crashed: why level basic does not say it",
        "What it would cost every job to have the stacks of crashes that level profile has. A stack is unwound by the "
        "mappings of its process, and by tables of its files, which have to be there before the process dies.",
    )
    allowed = AllowedIds(1000, (), 1000, ()).encode()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o777)
        children = (
            ProcessStarter("what looks at jobs", allowed, STARTER, STARTER, starter.__name__),
            ProcessStarter("readers of samples", MODULE, READER, READER),
        )
        scratch = Path(name) / "scratch"
        scratch.mkdir()
        os.chown(scratch, OWNER, OWNER)
        descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with on_ground(f"joblens-bench-{os.getpid()}") as ground:
                sampled = Sampled(ground, children[0], children[1], descriptor)
                measure(section, ground.slot(), sampled, Path(name), given.rounds, given.processes)
                sampled.profiles.close()
        finally:
            os.close(descriptor)
            for each in children:
                each.close()
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
