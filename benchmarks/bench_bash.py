#!/usr/bin/env python3
"""What tracing the commands of a bash script costs it, beside `set -x` by BASH_ENV into a file; and a neighbour.

One script has builtins alone, the other starts a program with each command. The modes take turns in one run: untraced,
traced, and `set -x`. CPU time of the script and of what it starts counts, from when it has been started on. It goes on
when what was told is taken, so that nothing is lost; nothing is switched off here, as fast scripts would be. What it
writes has to be the same in all modes. The neighbour is of another job, and runs the same bash.

    bench_bash.py [--rounds N] [--batches N]        as root, after `make build`
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel"), str(CHECKOUT / "benchmarks")]

from bench_syscalls import Rounds  # noqa: E402
from ground import Cgroup, on_ground  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.model.trace_spec import parse  # noqa: E402
from condor_joblens.profiling.elf import Elf  # noqa: E402
from condor_joblens.tracing import shell_file  # noqa: E402
from condor_joblens.tracing.commands import SIMPLE, CommandHit, Commands  # noqa: E402
from condor_joblens.tracing.lines import Lines  # noqa: E402
from condor_joblens.tracing.probes import COMMANDS, Probes  # noqa: E402
from condor_joblens.tracing.shell_sums import ShellSums  # noqa: E402

BASH = "/bin/bash"
ALL_ALLOWED = 1 << 62

BUILTINS = """
for ((i = 0; i < 250; i++)); do
    name=file$i
    [ "$i" -lt 100 ]
    : "$name" and some more words
    true
done
"""
PROGRAMS = """
for ((i = 0; i < 20; i++)); do
    /bin/true "$i"
done
"""
SCRIPTS = {"builtins": (BUILTINS, 1000), "programs": (PROGRAMS, 20)}
"""What is done in a batch, and how many commands that are."""

ROUND = """
while read -r go; do
%s
    echo done
done
"""
OF_THE_ROUND = 3
"""More commands a batch, at most: its read and its echo, and the next one's read."""

XTRACE = """
exec {BASH_XTRACEFD}>"$TRACE_FILE"
set -x
"""


class Script:
    """A bash in a job's cgroup that does a batch each time it is told to."""

    def __init__(self, path: Path, cgroup: Cgroup, environment: Mapping[str, str]) -> None:
        self._cgroup, self.out = cgroup, ""
        self._process = subprocess.Popen(
            [BASH, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={"PATH": os.environ["PATH"], **environment}, preexec_fn=cgroup.enter,
        )  # fmt: skip
        self.pid = self._process.pid

    def batch(self) -> None:
        """One of them."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print("go", file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line == "done\n", f"the script says {line!r}"
        self.out += line

    def seconds(self) -> float:
        """CPU time of all that was in its cgroup."""
        for line in (self._cgroup.path / "cpu.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "usage_usec":
                return int(value) / 1e6
        raise AssertionError("the kernel does not say what a cgroup used")

    def close(self) -> None:
        """It ends."""
        self._process.communicate()
        assert self._process.returncode == 0


class Bench:
    """Scripts of a job and of its neighbour, and probes on their bash."""

    def __init__(self, folder: Path, cgroup: Cgroup, neighbours: Cgroup, batches: int) -> None:
        self.folder, self.cgroup, self.neighbours, self.batches = folder, cgroup, neighbours, batches
        self._file = os.open(BASH, os.O_RDONLY | os.O_CLOEXEC)
        (self._function,) = shell_file.find(Elf(self._file)).functions
        self._probes = {is_for_all: self._made(is_for_all) for is_for_all in (False, True)}
        self.reading: list[float] = []  # seconds a command
        self.written: set[str] = set()
        for name, (text, _) in SCRIPTS.items():
            (folder / name).write_text(ROUND % text)
        (folder / "xtrace").write_text(XTRACE)

    def _made(self, is_for_all: bool) -> tuple[Probes, list[int]]:
        cgroup = os.open(self.cgroup.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            probes = Probes(cgroup, os.getuid(), of=COMMANDS, is_for_all=is_for_all)
        finally:
            os.close(cgroup)
        points = probes.add(self._function, parse("bash"))
        probes.functions[0].allowed = ALL_ALLOWED
        return probes, points

    @contextlib.contextmanager
    def probed(self, pid: int, *, is_for_all: bool = False) -> Iterator[Probes]:
        """The process, or with `is_for_all` all that run this bash."""
        probes, points = self._probes[is_for_all]
        probes.attach(0, self._file, self._function, points, pid)
        try:
            yield probes
        finally:
            probes.close()
            probes.take_commands()  # how it ended

    def command(self, name: str, mode: str) -> float:
        """Microseconds of one command of a script, by CPU time."""
        environment = {}
        if mode == "set -x":
            environment = {"BASH_ENV": str(self.folder / "xtrace"), "TRACE_FILE": str(self.folder / "trace")}
        script = Script(self.folder / name, self.cgroup, environment)
        script.batch()  # what is done once
        with self.probed(script.pid) if mode == "traced" else contextlib.nullcontext() as probes:
            took = self._timed(script, name, (lambda: self._take(probes, name)) if probes is not None else None)
        script.close()
        self.written.add(script.out)
        if mode == "set -x":
            lines = (self.folder / "trace").read_text().count("\n")
            assert lines >= self.batches * SCRIPTS[name][1], "set -x has told too little"
        return took

    def _timed(self, script: Script, name: str, after_each: Callable[[], None] | None) -> float:
        began = script.seconds()
        for _ in range(self.batches):
            script.batch()
            if after_each is not None:
                after_each()
        return 1e6 * (script.seconds() - began) / self.batches / SCRIPTS[name][1]

    def _take(self, probes: Probes, name: str) -> None:
        """As a trace takes it; each command has been told."""
        began, hits = time.thread_time(), list[CommandHit]()
        while taken := probes.take_commands():
            hits += taken
        commands, sums, lines = Commands(), ShellSums(), Lines()
        ended = [command for hit in hits for command in commands.take(hit)]
        for command in ended:
            sums.add(command)
        lines.of((command.hit.text, command.is_cut) for command in ended)
        self.reading.append((time.thread_time() - began) / SCRIPTS[name][1])
        count = sum(hit.type == SIMPLE for hit in hits)
        most = SCRIPTS[name][1] + OF_THE_ROUND
        assert probes.lost == 0 and SCRIPTS[name][1] <= count <= most, f"{count} of {most} commands were told"

    def neighbours_command(self, mode: str) -> float:
        """The same of a builtin of the neighbour's."""
        own = Script(self.folder / "builtins", self.cgroup, {})
        script = Script(self.folder / "builtins", self.neighbours, {})
        script.batch()
        with self.probed(own.pid, is_for_all=mode == "node") if mode != "untraced" else contextlib.nullcontext():
            took = self._timed(script, "builtins", None)
        own.close()
        script.close()
        return took


def add_times(
    section: Section, what: str, found: Rounds, modes: tuple[str, str], target: float | None = None, note: str = ""
) -> None:
    """How many times as long the first mode took, with the noise."""
    low, _, high = statistics.quantiles([took[modes[0]] / took[modes[1]] for took in found], n=4)
    note = "; ".join([*([note] if note else []), f"half of the rounds lie between {low:.3g} and {high:.3g}"])
    section.add(what, found.times(*modes), "times as long", target, note)


def of_job(bench: Bench, section: Section, rounds: int) -> None:
    """Commands of a traced script, in each of the modes in turn."""
    modes = ["untraced", "traced", "set -x"]
    for name in SCRIPTS:
        found = Rounds()
        bench.reading.clear()
        for number in range(rounds):
            found.append({mode: bench.command(name, mode) for mode in (modes if number % 2 else modes[::-1])})
        alone = statistics.median(took["untraced"] for took in found)
        section.add(f"{name}: a command, untraced", alone, "µs")
        for mode in modes[1:]:
            section.add(f"{name}: a command, {mode}: more", found.more(mode, "untraced"), "µs")
            add_times(section, f"{name}: {mode}, beside untraced", found, (mode, "untraced"))
        # what starts programs takes so long that the difference is less than the noise
        add_times(
            section, f"{name}: traced, beside set -x", found, ("traced", "set -x"), 1.0 if name == "builtins" else None
        )
        if name == "builtins":
            note = "CPU time of the process that reads it"
            section.add(f"{name}: a command, told", 1e6 * statistics.median(bench.reading), "µs", note=note)


def of_neighbour(bench: Bench, section: Section, rounds: int) -> None:
    """Builtins of a job that is not traced."""
    modes = {"process": "the other job's own are probed", "node": "all that run this bash are probed"}
    order, found = ["untraced", *modes], Rounds()
    for number in range(rounds):
        found.append({mode: bench.neighbours_command(mode) for mode in (order if number % 2 else order[::-1])})
    for mode, what in modes.items():
        note = f"JOBLENS_TRACE_SHELL = {mode}"
        section.add(f"neighbour's builtin, {what}: more", found.more(mode, "untraced"), "µs", note=note)
        add_times(section, f"neighbour's builtin, {what}", found, (mode, "untraced"), note=note)


def main() -> int:
    """Measures all of it; 1 where a target is missed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--batches", type=int, default=50)
    given = arguments.parse_args()
    section = Section(
        "bash",
        "Level trace: commands of bash scripts",
        "Beside `set -x` by BASH_ENV into a file. The modes take turns in one run, and the median of the rounds "
        "counts. It is CPU time of the script and of what it starts. What it writes was the same in all modes, and "
        "each command was told. Nothing is switched off here: a trace may cost a job 4 % of a core.",
    )
    with tempfile.TemporaryDirectory() as path, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        bench = Bench(Path(path), ground.slot("condor_slot1"), ground.slot("condor_slot2"), given.batches)
        of_job(bench, section, given.rounds)
        of_neighbour(bench, section, given.rounds)
    assert len(bench.written) == 1, "a script wrote something else when it was traced"
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
