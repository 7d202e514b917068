#!/usr/bin/env python3
"""What the programs at the end of functions (fexit) add to an open, a mapping and a write: in instructions, in guests.

No machine on which we can measure time has such hooks. In an emulated guest the clock can go on by a nanosecond with
each instruction, which is exact and the same on a busy machine. An instruction of the kernel takes a processor of today
a quarter to half a nanosecond. Without the programs and with them in turn; the best of all rounds counts.

    bench_failing.py [SUITE...]        as root, after `make build`; suites as in tests/guest
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel"), str(CHECKOUT / "benchmarks")]

from condor_joblens.tracer._bpf import ffi, lib  # noqa: E402
from ground import Cgroup, Ground, on_ground  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.tracer import loader  # noqa: E402

BUILT = CHECKOUT / "build" / "bench_failing"
SUITES = ("bullseye", "bookworm", "trixie", "sid")
ROUNDS, COUNT, BATCHES = 3, 200, 10
CALLS = {
    "open": "open and close a file of tmpfs",
    "missing": "open a file that is not there",
    "map": "map a page, touch and unmap it",
}
MODES = ("none", "unwatched", "none in the job", "watched")


def build() -> None:
    """On the host: a guest can't write here."""
    BUILT.mkdir(parents=True, exist_ok=True)
    here = CHECKOUT / "benchmarks"
    subprocess.run(["gcc", "-O2", "-Wall", "-static", "-o", BUILT / "calls", here / "calls.c"], check=True)
    options = [
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-mcpu=v2",
        "-D__TARGET_ARCH_x86",
        "-I",
        CHECKOUT / "bpf_programs" / "lib",
    ]
    subprocess.run(["clang", *options, "-c", here / "empty_write.bpf.c", "-o", BUILT / "empty.bpf.o"], check=True)


class Bench:
    """In a guest: a job and a neighbour outside of all slots, with the programs attached or not."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self.sensor = ground.tracer.failing
        self.jobs = {"watched": ground.slot(), "unwatched": Cgroup(ground.base.parent)}
        self.there = folder / "there"
        self.there.touch()

    def one(self, verb: str, mode: str) -> float:
        """Instructions of a call."""
        if self.sensor.is_attached == mode.startswith("none"):
            self.sensor.detach() if self.sensor.is_attached else self.sensor.attach(None)
        cgroup = self.jobs["unwatched" if mode in MODES[:2] else "watched"]
        return self.of_batches(verb, cgroup)

    def of_batches(self, verb: str, cgroup: Cgroup) -> float:
        """The best of some."""
        path = self.there.parent / "nothing" if verb == "missing" else self.there
        command = [BUILT / "calls", "open" if verb == "missing" else verb, str(COUNT), str(BATCHES), path]
        done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=cgroup.enter)
        return min(map(float, done.stdout.split()))


def inside() -> None:
    """Prints a line for each call and mode."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        bench = Bench(ground, Path(path))
        for verb in CALLS:
            took = {mode: min(bench.one(verb, mode) for _ in range(ROUNDS)) for mode in MODES}
            print("took", verb, *(took[mode] for mode in MODES))
        before = min(bench.of_batches("rw", bench.jobs["unwatched"]) for _ in range(ROUNDS))
        empty = lib.open_object(os.fsencode(BUILT / "empty.bpf.o"), b"empty", ffi.NULL)
        assert lib.bpf_object__load(empty) == 0
        links = [lib.bpf_program__attach(program) for _, program in loader.each_program(empty)]
        assert ffi.NULL not in links
        # half of its calls are reads
        after = min(bench.of_batches("rw", bench.jobs["unwatched"]) for _ in range(ROUNDS))
        print("took", "write", before, before + 2 * (after - before))


def in_guest(suite: str, section: Section) -> None:
    """One kernel's numbers."""
    run = CHECKOUT / "tests" / "guest" / "run"
    script = (
        f"uname -r; cd {shlex.quote(str(CHECKOUT))}; PYTHONDONTWRITEBYTECODE=1 {sys.executable} {__file__} --inside"
    )
    environment = {**os.environ, "GUEST_INSTRUCTIONS": "yes", "GUEST_CPUS": "1", "GUEST_SEES": sys.prefix}
    done = subprocess.run([run, suite, script], capture_output=True, text=True, env=environment)
    lines = done.stdout.splitlines()
    found = {words[1]: [float(word) for word in words[2:]] for words in map(str.split, lines) if words[:1] == ["took"]}
    if done.returncode != 0 or len(found) != len(CALLS) + 1:
        raise SystemExit(f"{suite}: {done.stdout}{done.stderr}")
    kernel = ".".join(lines[0].split(".")[:2])
    for verb, what in CALLS.items():
        none, unwatched, none_in_job, watched = found[verb]
        section.add(f"{kernel}, {what}: without our programs", none, "instructions")
        section.add(f"{kernel}, {what}: of no job, more", 100 * (unwatched / none - 1), "%")
        section.add(f"{kernel}, {what}: of a job, more", 100 * (watched / none_in_job - 1), "%")
    none, with_empty = found["write"]
    section.add(f"{kernel}, write a byte to tmpfs: without any program", none, "instructions")
    note = "not done: there is no program of ours"
    section.add(
        f"{kernel}, write a byte to tmpfs: an empty program, more", 100 * (with_empty / none - 1), "%", note=note
    )


def main() -> int:
    """Measures all of it."""
    if sys.argv[1:] == ["--inside"]:
        inside()
        return 0
    build()
    section = Section(
        "failing",
        "Level basic: opens and mappings where the kernel has fexit",
        "Instructions of the kernel and of the caller, counted in an emulated guest, as no machine on which we measure "
        "time has these hooks. They stand for a share of the call's time, and not for more: a cache miss is no "
        "instruction. What other programs ask for at the end of a write is why there is none of ours.",
    )
    for suite in sys.argv[1:] or SUITES:
        in_guest(suite, section)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
