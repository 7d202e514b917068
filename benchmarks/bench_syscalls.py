#!/usr/bin/env python3
"""What level io costs a system call and a context switch, beside programs that do nothing and what people use instead.

Everything is measured in turn, again and again, in one run: no program at all, an empty one on the same hooks, ours
seen from a job that is not watched, ours from one that is. What is compared lies close together in time, and the median
over all rounds counts. `dd bs=1` and whole programs follow, and `strace -c -f`, `perf trace -s` and bpftrace on the
same dd.

    bench_syscalls.py [--rounds N]        as root, after `make build`
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel"), str(CHECKOUT / "benchmarks")]

from condor_joblens.tracer._bpf import ffi, lib  # noqa: E402
from ground import Cgroup, on_ground  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.tracer import loader  # noqa: E402
from condor_joblens.tracer.bpf import Tracer  # noqa: E402
from condor_joblens.tracer.sensors import Io  # noqa: E402

MODES = ("none", "empty", "unwatched", "watched")
LOADS = 6
CALLS = {"getppid": (200, 3000), "rw": (100, 3000), "switch": (20, 1000)}
BYTES_OF_DD = 400_000


class Empty:
    """Programs that do nothing, or those of another file here."""

    def __init__(self, folder: Path, name: str = "empty") -> None:
        built, source = folder / f"{name}.bpf.o", CHECKOUT / "benchmarks" / f"{name}.bpf.c"
        include = ["-I", str(CHECKOUT / "bpf_programs" / "lib")]
        options = ["-O2", "-g", "-target", "bpf", "-mcpu=v2", "-D__TARGET_ARCH_x86", *include]
        subprocess.run(["clang", *options, "-c", source, "-o", built], check=True)
        self._object = lib.open_object(os.fsencode(built), name.encode(), ffi.NULL)
        assert lib.bpf_object__load(self._object) == 0

    def switch_cost(self) -> tuple[float, int]:
        """As Tracer.programs_cost, of the one at the switch."""
        program = dict(loader.each_program(self._object))["empty_switch"]
        runs = ffi.new("uint64_t *")
        return lib.program_run_ns(lib.bpf_program__fd(program), runs) * 1e-9, int(runs[0])

    @contextlib.contextmanager
    def attached(self, hooks: tuple[str, ...]) -> Iterator[None]:
        """While the block runs."""
        programs = dict(loader.each_program(self._object))
        links: list[Any] = [lib.bpf_program__attach(programs[name]) for name in hooks]
        try:
            yield
        finally:
            for link in links:
                lib.bpf_link__destroy(link)


class Rounds(list[dict[str, float]]):
    """What each mode took, round by round: what is compared lies close together in time."""

    def least(self, mode: str) -> float:
        """The best of all rounds."""
        return min(took[mode] for took in self)

    def more(self, mode: str, than: str) -> float:
        """The median of the differences."""
        return statistics.median(took[mode] - took[than] for took in self)

    def times(self, mode: str, than: str) -> float:
        """The median of the ratios."""
        return statistics.median(took[mode] / took[than] for took in self)


class Bench:
    """A tracer with two jobs, of which one is watched at level io, in each of the modes in turn."""

    def __init__(self, tracer: Tracer, watched: Cgroup, neighbour: Cgroup, folder: Path) -> None:
        self.tracer, self.jobs = tracer, {"watched": watched, "unwatched": neighbour}
        self.empty = Empty(folder)
        self.hooks: tuple[str, ...] = ("empty_exit", "empty_switch")
        self.program = folder / "calls"
        source = CHECKOUT / "benchmarks" / "calls.c"
        subprocess.run(["gcc", "-O2", "-Wall", "-o", self.program, source], check=True)

    @contextlib.contextmanager
    def mode(self, name: str) -> Iterator[Cgroup]:
        """The kernel as `name` has it; the cgroup in which to measure."""
        if name == "none":
            yield self.jobs["unwatched"]
        elif name == "empty":
            with self.empty.attached(self.hooks):
                yield self.jobs["unwatched"]
        else:
            slot = self.tracer.slot_of(self.jobs["watched"].cgroup_id)
            assert slot is not None and self.tracer.sensors["io"].start(slot), self.tracer.missing
            try:
                yield self.jobs[name]
            finally:
                self.tracer.sensors["io"].stop(slot)
                self.tracer.settle()

    def calls(self, verb: str) -> float:
        """Nanoseconds of one call: of this time's batches that which only one in twenty undercuts."""
        command = [str(self.program), verb, *map(str, CALLS[verb])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=self.enter)
        return statistics.quantiles(map(float, done.stdout.split()), n=20)[0]

    def inside_switch(self) -> float:
        """Nanoseconds that a run of the present mode's program at the switch takes, by the kernel's own statistics."""
        before = self._switch_cost()
        self.calls("switch")
        seconds, runs = (after - earlier for after, earlier in zip(self._switch_cost(), before))
        return 1e9 * seconds / runs

    def _switch_cost(self) -> tuple[float, int]:
        ours = [cost for name, cost in self.tracer.programs_cost().items() if name.startswith("jl_switch")]
        return ours[0] if ours else self.empty.switch_cost()

    def enter(self) -> None:
        """The child goes into the cgroup of the present mode."""
        self.present.enter()

    def seconds(self, *command: str) -> float:
        """CPU time that a program takes, with its children."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, preexec_fn=self.enter)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def each(self, rounds: int, measure: Callable[[], float], modes: tuple[str, ...] = MODES) -> Rounds:
        """`rounds` of it in each mode, the modes in turn."""
        found: Rounds = Rounds()
        for number in range(rounds):
            took = {}
            for name in modes if number % 2 else modes[::-1]:
                with self.mode(name) as self.present:
                    took[name] = measure()
            found.append(took)
        return found


def typed(tracer: Tracer) -> bool:
    """Whether the kernel has what reading a file's class without helpers takes."""
    return "jl_sys_exit" in tracer.attached()


def of_calls(loaded: Callable[[], contextlib.AbstractContextManager[Bench]], section: Section, rounds: int) -> None:
    """Single calls. Where the kernel puts a program decides about some nanoseconds: so all are loaded several times."""
    took = {verb: Rounds() for verb in ("getppid", "rw")}
    for _ in range(LOADS):
        with loaded() as bench:
            for verb, all_rounds in took.items():
                all_rounds += bench.each(max(1, rounds // LOADS), lambda verb=verb: bench.calls(verb))
    for verb, what, target in (
        ("getppid", "getppid", 5.0),
        ("rw", "read or write of 1 byte, with its file system", 30.0),
    ):
        section.add(f"{what}: without any program", took[verb].least("none"), "ns")
        section.add(f"{what}: an empty program more", took[verb].more("empty", "none"), "ns")
        section.add(f"{what}: unwatched, above the empty one", took[verb].more("unwatched", "empty"), "ns", 3.0)
        section.add(f"{what}: watched, above the empty one", took[verb].more("watched", "empty"), "ns", target)


@contextlib.contextmanager
def statistics_of_programs() -> Iterator[None]:
    """The kernel measures how long programs run."""
    descriptor = lib.bpf_enable_stats(lib.BPF_STATS_RUN_TIME)
    assert descriptor >= 0, "kernel.bpf_stats_enabled can't be had"
    try:
        yield
    finally:
        os.close(descriptor)


def of_switches(bench: Bench, section: Section, rounds: int) -> None:
    """Context switches, with the program of the switch alone."""
    parts = Io.parts
    Io.parts, bench.hooks = parts[:1], ("empty_switch",)
    try:
        took = bench.each(rounds, lambda: bench.calls("switch"))
        with statistics_of_programs():
            inside = bench.each(rounds, bench.inside_switch, MODES[1:])
    finally:
        Io.parts, bench.hooks = parts, ("empty_exit", "empty_switch")
    section.add("context switch through a pipe, with its calls: no program", took.least("none"), "ns")
    section.add("context switch: an empty program more", took.more("empty", "none"), "ns")
    section.add("context switch: unwatched, more", took.more("unwatched", "none"), "ns")
    section.add("context switch: watched, more", took.more("watched", "none"), "ns", 120.0)
    section.add("context switch: watched, above the empty one", took.more("watched", "empty"), "ns")
    note = "by bpf_stats: without what the kernel takes for calling a program"
    section.add("context switch: unwatched, inside our program", inside.more("unwatched", "empty"), "ns", note=note)
    section.add("context switch: watched, inside our program", inside.more("watched", "empty"), "ns", note=note)


def of_dd(bench: Bench, section: Section, rounds: int) -> None:
    """The worst there is: nothing but calls of a byte. And what else would count them."""
    dd = ("dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={BYTES_OF_DD}")
    took = bench.each(rounds, lambda: bench.seconds(*dd))
    section.add("dd bs=1: watched / empty program", took.times("watched", "empty"), "×", 1.05)
    section.add("dd bs=1: watched / no program", took.times("watched", "none"), "×", 1.6)
    section.add("dd bs=1: unwatched / no program", took.times("unwatched", "none"), "×")
    bpftrace = 'tracepoint:raw_syscalls:sys_exit /comm == "dd"/ { @[args->id] = count(); }'
    for name, rival in (
        ("strace -c -f", ("strace", "-c", "-f", "-o", "/dev/null", *dd)),
        ("perf trace -s", ("perf", "trace", "-s", "-o", "/dev/null", *dd)),
        ("bpftrace", ("bpftrace", "-e", bpftrace, "-c", " ".join(dd))),
    ):
        value, note = None, ""
        if shutil.which(rival[0]) is None:
            note = "not installed"
        else:
            try:
                took_rival = bench.each(2, lambda rival=rival: bench.seconds(*rival), ("none",))
                value = took_rival.least("none") / took.least("none")
            except subprocess.CalledProcessError as error:
                note = f"does not work on this machine (exit code {error.returncode})"
        section.add(f"dd bs=1: {name} / no program", value, "×", note=note)


MODULES = (
    "import sys, pkgutil, importlib\n"
    "names = sorted(m.name for m in pkgutil.iter_modules() if m.module_finder.path.endswith('python3.' + "
    "str(sys.version_info[1])))\n"
    "done = 0\n"
    "for name in names:\n"
    "    if name in ('this', 'antigravity', 'idlelib', '__phello__') or name.startswith('_'): continue\n"
    "    try: importlib.import_module(name); done += 1\n"
    "    except Exception: pass\n"
    "    if done == 200: break\n"
)


SOURCES = ("tests/kernel/job.c", "tests/kernel/job_io.c", "hooks/joblens_activate.c", "benchmarks/crowd.c")


def of_programs(bench: Bench, section: Section, rounds: int, folder: Path) -> None:
    """What jobs do."""
    sources = [f"{CHECKOUT}/{name}" for name in SOURCES]
    compiling = "; ".join(f"gcc -O2 -c -I {CHECKOUT}/bpf_programs/lib {source} -o {folder}/out.o" for source in sources)
    for what, command, target in (
        ("compiling C of this project", ("sh", "-c", compiling), 1.01),
        ("Python importing 200 modules", ("/usr/bin/python3", "-c", MODULES), 1.02),
    ):
        took = bench.each(rounds, lambda command=command: bench.seconds(*command), ("none", "watched"))
        section.add(f"{what}: watched / no program", took.times("watched", "none"), "×", target)


def main() -> int:
    """Measures all of it; 1 where a target is missed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=12)
    arguments.add_argument("--only", choices=("calls", "switches", "dd", "programs"))
    given = arguments.parse_args()
    rounds = given.rounds
    section = Section(
        "syscalls",
        "Level io: system calls and context switches",
        "Beside an empty program on the same hook, in the same run, the modes in turn; the median of the rounds. What "
        "an empty program costs is the kernel's part, and differs from machine to machine.",
    )
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)

        @contextlib.contextmanager
        def loaded() -> Iterator[Bench]:
            with on_ground(f"joblens-bench-{os.getpid()}") as ground:
                yield Bench(ground.tracer, ground.slot("condor_slot1"), ground.slot("condor_slot2"), folder)

        if given.only in (None, "calls"):
            of_calls(loaded, section, rounds)
        with loaded() as bench:
            for part, measure in (
                ("switches", lambda: of_switches(bench, section, rounds)),
                ("dd", lambda: of_dd(bench, section, max(3, rounds // 2))),
                ("programs", lambda: of_programs(bench, section, max(3, rounds // 2), folder)),
            ):
                if given.only in (None, part):
                    measure()
    if given.only is None:
        section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
