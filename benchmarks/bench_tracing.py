#!/usr/bin/env python3
"""What level trace costs a call of a traced function, beside an empty uprobe and bpftrace's count; and a neighbour.

The modes take turns in one run, and what is compared lies close together in time. The functions differ in their first
instruction: the kernel emulates few, and single-steps the others. Nothing is switched off here, as a function that is
called so often would be. That no call is missed is for the tests of the kernel's programs.

    bench_tracing.py [--rounds N]        as root, after `make build`; with bpftrace, if it is installed
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel"), str(CHECKOUT / "benchmarks")]

from bench_syscalls import Rounds  # noqa: E402
from condor_joblens.tracer._bpf import ffi, lib  # noqa: E402
from ground import Cgroup, on_ground, until  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.model.trace_spec import parse  # noqa: E402
from condor_joblens.profiling.elf import Elf  # noqa: E402
from condor_joblens.tracer import loader  # noqa: E402
from condor_joblens.tracing.functions import Function, find  # noqa: E402
from condor_joblens.tracing.probes import Probes  # noqa: E402

FUNCTIONS = {
    "pushes": "function that begins with push, as many do",
    "marks": "function that begins with endbr64 and push, as distributions build them",
    "computes": "function that begins with an instruction that is single-stepped",
}
CALLS, CALLS_UNPROBED = 1000, 1_000_000
BATCHES = 10
ATTACH_UPROBES = 48  # BPF_TRACE_UPROBE_MULTI
PATIENCE = 60.0
ALL_ALLOWED = 1 << 62


class Calls:
    """A process that calls what it is told."""

    def __init__(self, program: Path, cgroup: Cgroup) -> None:
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=cgroup.enter
        )
        self.pid = self._process.pid

    def nanoseconds(self, name: str, count: int) -> float:
        """Of one call, on average of so many."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(name, count, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """It ends."""
        self._process.kill()
        self._process.wait()


class Bench:
    """One traced process of a job and a neighbour of the same program, whose functions are probed in several ways."""

    def __init__(self, folder: Path, cgroup: Cgroup, neighbours: Cgroup) -> None:
        self.program, self.cgroup = folder / "probed_calls", cgroup
        subprocess.run(
            ["gcc", "-O2", "-Wall", "-o", self.program, CHECKOUT / "benchmarks" / "probed_calls.c"], check=True
        )
        self.job, self.neighbour = Calls(self.program, cgroup), Calls(self.program, neighbours)
        self._file = os.open(self.program, os.O_RDONLY | os.O_CLOEXEC)
        self._empty = _empty_program(folder)
        self._probes = self._our_probes()
        self._functions: dict[tuple[str, bool], tuple[int, Function, list[int]]] = {}

    def _our_probes(self) -> Probes:
        cgroup = os.open(self.cgroup.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return Probes(cgroup, os.getuid())
        finally:
            os.close(cgroup)

    def close(self) -> None:
        """Both processes end."""
        self.job.close()
        self.neighbour.close()

    def function(self, name: str) -> Function:
        """As a trace finds it."""
        (found,) = find(Elf(self._file), parse(f"*:{name}")).functions
        return found

    @contextlib.contextmanager
    def empty(self, name: str, *, exits: bool) -> Iterator[None]:
        """Empty programs where ours would be: at the entry, and at exits too."""
        function = self.function(name)
        wanted = [each for each in function.places if exits or each.kind == lib.TRACED_ENTRY]
        offsets = ffi.new("uint64_t[]", [function.offset + each.distance for each in wanted])
        path, cookies = f"/proc/self/fd/{self._file}".encode(), ffi.new("uint64_t[]", len(wanted))
        link = lib.attach_to_functions(self._empty, path, offsets, cookies, len(wanted), self.job.pid)
        assert link >= 0, os.strerror(-link)
        try:
            yield
        finally:
            os.close(link)

    @contextlib.contextmanager
    def ours(self, name: str, *, exits: bool) -> Iterator[None]:
        """As a trace of this process attaches it; without exits, as of a function whose ends nobody looks for."""
        number, function, points = self._known(name, exits)
        self._probes.functions[number].allowed = ALL_ALLOWED
        self._probes.attach(number, self._file, function, points, self.job.pid)
        try:
            yield
        finally:
            self._probes.close()

    def _known(self, name: str, exits: bool) -> tuple[int, Function, list[int]]:
        if (name, exits) not in self._functions:
            function = self.function(name)
            if not exits:
                entries = tuple(each for each in function.places if each.kind == lib.TRACED_ENTRY)
                function = dataclasses.replace(function, places=entries)
            number = self._probes.count
            self._functions[name, exits] = number, function, self._probes.add(function, parse(f"*:{name}"))
        return self._functions[name, exits]

    @contextlib.contextmanager
    def bpftrace(self, name: str) -> Iterator[None]:
        """Its count of entries and of returns."""
        ways = {"uprobe": "entries", "uretprobe": "ends"}
        script = " ".join(f"{way}:{self.program}:{name} {{ @{what} = count(); }}" for way, what in ways.items())
        command = ["bpftrace", "-p", str(self.job.pid), "-e", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            try:
                unprobed = self.job.nanoseconds(name, CALLS)
                # what it says of memory and of attaching comes before it is done
                until(lambda: self.job.nanoseconds(name, CALLS) > unprobed + 500, PATIENCE)
                yield
            finally:
                process.terminate()
                process.communicate()

    def call(self, name: str) -> float:
        """Nanoseconds of one call: of this time's batches the middle one. All hits are taken from the ring."""
        took = []
        for _ in range(BATCHES):
            took.append(self.job.nanoseconds(name, CALLS))
            while self._probes.take():
                pass
        assert self._probes.lost == 0
        return statistics.median(took)

    def neighbours_call(self, name: str) -> float:
        """The same of the process that is not traced; the best, for a clock that others disturb."""
        return min(self.neighbour.nanoseconds(name, CALLS_UNPROBED) for _ in range(BATCHES))


def _empty_program(folder: Path) -> int:
    """The descriptor of a program that does nothing."""
    built = folder / "empty_uprobe.bpf.o"
    include = ["-I", str(CHECKOUT / "bpf_programs" / "lib")]
    options = ["-O2", "-g", "-target", "bpf", "-mcpu=v2", "-D__TARGET_ARCH_x86", *include]
    source = CHECKOUT / "benchmarks" / "empty_uprobe.bpf.c"
    subprocess.run(["clang", *options, "-c", source, "-o", built], check=True)
    loaded = lib.open_object(os.fsencode(built), b"empty_uprobe", ffi.NULL)
    ((_, program),) = loader.each_program(loaded)
    lib.bpf_program__set_expected_attach_type(program, ATTACH_UPROBES)
    assert lib.bpf_object__load(loaded) == 0
    return int(lib.bpf_program__fd(program))


def of_job(bench: Bench, section: Section, rounds: int) -> None:
    """Calls of the traced process, in each of the modes in turn."""
    for name, what in FUNCTIONS.items():
        modes = {
            "none": contextlib.nullcontext,
            "empty entry": lambda name=name: bench.empty(name, exits=False),
            "entry": lambda name=name: bench.ours(name, exits=False),
            "empty": lambda name=name: bench.empty(name, exits=True),
            "both": lambda name=name: bench.ours(name, exits=True),
        }
        if shutil.which("bpftrace"):
            modes["bpftrace"] = lambda name=name: bench.bpftrace(name)
        found = Rounds()
        for number in range(rounds):
            took = {}
            for mode in list(modes) if number % 2 else list(modes)[::-1]:
                with modes[mode]():
                    took[mode] = bench.call(name)
            found.append(took)
        section.add(f"{what}: entry, empty uprobe", found.more("empty entry", "none"), "ns")
        section.add(f"{what}: entry, traced", found.more("entry", "none"), "ns")
        section.add(f"{what}: entry, traced / empty uprobe", found.times("entry", "empty entry"), "×", 1.2)
        section.add(f"{what}: entry and exit, empty uprobes", found.more("empty", "none"), "ns")
        section.add(f"{what}: entry and exit, traced", found.more("both", "none"), "ns")
        has_rival = "bpftrace" in modes
        value = found.more("bpftrace", "none") if has_rival else None
        note = "" if has_rival else "not installed"
        section.add(f"{what}: entry and exit, counted by bpftrace", value, "ns", note=note)
        value = found.times("both", "bpftrace") if has_rival else None
        section.add(f"{what}: entry and exit, traced / bpftrace", value, "×", 1.5, note)


def of_neighbour(bench: Bench, section: Section, rounds: int) -> None:
    """Calls of the process that is not traced, with and without a trace of the other one."""
    name = next(iter(FUNCTIONS))
    found = Rounds()
    for number in range(rounds):
        took = {}
        for mode in ("none", "traced") if number % 2 else ("traced", "none"):
            with bench.ours(name, exits=True) if mode == "traced" else contextlib.nullcontext():
                took[mode] = bench.neighbours_call(name)
        found.append(took)
    section.add("neighbour of the same program: its call", found.least("none"), "ns")
    section.add(
        "neighbour of the same program: its call while the other is traced, more",
        found.more("traced", "none"),
        "ns",
        1.0,
    )


def main() -> int:
    """Measures all of it; 1 where a target is missed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    given = arguments.parse_args()
    section = Section(
        "tracing",
        "Level trace: calls of functions",
        "Beside empty uprobes at the same places, and bpftrace's count of a uprobe and a uretprobe. The modes take "
        "turns in one run, and the median of the rounds counts. The kernel single-steps each `ret`, where an exit's "
        "probe lies. A return probe is cheaper, and ends programs that throw. Nothing is switched off here: a trace "
        "may cost a job 4 % of a core.",
    )
    with tempfile.TemporaryDirectory() as path, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        bench = Bench(Path(path), ground.slot("condor_slot1"), ground.slot("condor_slot2"))
        try:
            of_job(bench, section, given.rounds)
            of_neighbour(bench, section, given.rounds)
        finally:
            bench.close()
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
