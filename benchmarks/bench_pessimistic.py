#!/usr/bin/env python3
"""The worst node there can be: jobs at level io that make a million system calls a second and start ten thousand
programs, on all cores.

The jobs' programs (storm.c) write and read a file of their own on a tmpfs, start programs that do the same, and count
what they do. joblensd is the real one, and its rows are compared with that: each number is exact, or the row says that
something was lost. Starts and ends of processes are counted too: each has its event, or a LOSS event declares it.

A machine too small for such rates does what it can, in the same proportion; what was reached is a line of its own.

    bench_pessimistic.py [--seconds S]        as root, after `make build`; 20 s, for the whole measure 60
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]  # not installed: the code of this checkout

from bench_agent import MIB, Agent, Crowd, Ground, _until, ground  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.model.events import EventKind  # noqa: E402
from condor_joblens.model.levels import Level  # noqa: E402
from condor_joblens.model.metrics import text  # noqa: E402
from condor_joblens.shm.reader import Reader  # noqa: E402
from condor_joblens.shm.ring import EventReader  # noqa: E402

CALLS, EXECS = 1_000_000, 10_000  # a second, of all jobs together
JOBS = 8
SHARE, GROWTH = 25.0, 1.0  # targets: percent of a core, MB
WARM = 0.25  # of the time, after which memory is to stay where it is
LOOK_EVERY = 0.2
SAID = ("process_forked", "process_executed", "process_exited", "fs_tmpfs_write_calls", "fs_tmpfs_read_calls")
"""What a storm says that it did, in its order."""


@dataclass
class Storm:
    """What happens in one job."""

    job: str  # its cgroup, as in the row
    process: subprocess.Popen[bytes]
    done: Path

    def truth(self) -> dict[str, int]:
        """What it did."""
        said = dict(zip(SAID, map(int, self.done.read_text().split())))
        said["fs_tmpfs_write_bytes"], said["fs_tmpfs_read_bytes"] = said[SAID[3]], said[SAID[4]]
        return said


@contextlib.contextmanager
def storms(place: Ground, seconds: float) -> Iterator[list[Storm]]:
    """One in each job, ready to begin when the FIFO `go` is opened for writing; killed in the end."""
    program, go = place.folder / "storm", place.folder / "go"
    compiler = shutil.which("musl-gcc") or "cc"
    subprocess.run([compiler, "-O2", "-static", "-o", program, CHECKOUT / "benchmarks" / "storm.c"], check=True)
    os.mkfifo(go)
    started = []
    try:
        for scope in sorted(place.base.glob("*/job.scope")):
            data = place.run_dir / scope.parent.name
            started.append(_storm(place, scope, [str(program), str(data), str(go)], seconds))
        yield started
    finally:
        for storm in started:
            storm.process.kill()
            storm.process.wait()


def _storm(place: Ground, scope: Path, command: list[str], seconds: float) -> Storm:
    done = place.folder / f"{scope.parent.name}.done"
    rates = [str(rate // JOBS) for rate in (CALLS, EXECS)]
    process = subprocess.Popen(
        [*command, str(done), str(round(1000 * seconds)), *rates],
        preexec_fn=lambda: (scope / "cgroup.procs").write_text("0"),
    )
    return Storm(scope.parent.name, process, done)


class Told:
    """The events that joblensd tells of, by kind."""

    def __init__(self, place: Ground) -> None:
        self._reader = EventReader(str(place.run_dir / "events"))
        self.events: Counter[int] = Counter()
        self.lost = 0  # declared
        self.look()
        self.events.clear()

    def look(self) -> None:
        """Takes all that is new."""
        while len(found := self._reader.read()):
            self.events.update(found["kind"].tolist())
            self.lost += int(found["value"][found["kind"] == EventKind.LOSS].sum())
        if self._reader.missed:
            raise SystemExit("bench_pessimistic: the machine left no time for reading all events: try again")


def rows(place: Ground) -> dict[str, np.void]:
    """Those of the jobs, by their cgroups' names."""
    found, _ = Reader(str(place.run_dir / "rows")).rows()
    return {Path(text(row["cgroup"])).name: row for row in found}


def own_memory(agent: Agent) -> float:
    """Megabytes that are joblensd's alone: without the shared memory, which fills up to its size."""
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024 / MIB


def compare(section: Section, storm: list[Storm], before: dict[str, np.void], after: dict[str, np.void]) -> None:
    """Numbers against the truth."""
    wrong, declared, of = [], 0, 0
    for one in storm:
        row, was, truth = after[one.job], before[one.job], one.truth()
        says = row["lost"] > was["lost"] or row["level_number"] < Level.IO or row["uncounted"] != was["uncounted"]
        for name, value in truth.items():
            counted = int(row[name]) - max(0, int(was[name]))
            of += 1
            if counted != value and says:
                declared += 1
            elif counted != value:
                wrong.append(f"{one.job}: {name} is {counted}, not {value}")
    section.add("numbers that differ from what the job did, undeclared", len(wrong), "", 0, f"of {of}")
    section.add("numbers that differ, and the row says that there was a loss", declared, "")
    print("".join(f"  {line}\n" for line in wrong), end="")


def measure(section: Section, seconds: float) -> None:
    """One storm."""
    with ground("io", {"JOBLENS_MAX_CPU": "1"}) as place:
        agent = Agent(place)
        crowd = Crowd(place, JOBS)
        try:
            _until(lambda: agent.known("io") == JOBS, "level io")
            with storms(place, seconds) as started:
                _blow(section, place, agent, started, seconds)
        finally:
            crowd.end()
        agent.stop()


def _blow(section: Section, place: Ground, agent: Agent, started: list[Storm], seconds: float) -> None:
    time.sleep(3)  # they wait, and the rows have all that they did on their way there
    before, told, cpu, began = rows(place), Told(place), agent.cpu(), time.monotonic()
    warm = 0.0
    with open(place.folder / "go", "wb"):
        pass
    while not all(one.done.exists() for one in started):
        time.sleep(LOOK_EVERY)
        told.look()
        if not warm and time.monotonic() - began > WARM * seconds:
            warm = own_memory(agent)
    took = time.monotonic() - began
    share, memory = 100 * (agent.cpu() - cpu) / took, own_memory(agent)
    time.sleep(3)
    told.look()
    after = rows(place)
    truth = Counter[str]()
    for one in started:
        truth.update(one.truth())
    starts, ends = truth["process_executed"], truth["process_exited"]
    calls = sum(int(after[one.job][f"syscall_{name}_calls"]) for one in started for name in ("read", "write"))
    section.add("programs started a second", starts / took, "", note=f"asked for: {EXECS:,}; {JOBS} jobs, {took:.0f} s")
    section.add("reads and writes a second", calls / took, "", note=f"asked for: {CALLS:,}")
    compare(section, started, before, after)
    untold = starts + ends - told.events[EventKind.EXEC] - told.events[EventKind.EXIT]
    section.add(
        "starts and ends without an event, undeclared", max(0, untold - told.lost), "", 0, f"of {starts + ends}"
    )
    section.add("starts and ends without an event, declared by LOSS", min(untold, told.lost), "")
    section.add("joblensd", share, "% of a core", SHARE)
    section.add("joblensd's memory grew in the last three quarters by", memory - warm, "MB", GROWTH)


def main() -> int:
    """Measures it; 1 where a target is missed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=20)
    given = arguments.parse_args()
    section = Section(
        "pessimistic",
        "The pessimistic node: a million calls and ten thousand programs a second at level io",
        "All in jobs at level io, with joblensd and its rows compared with what the jobs themselves counted.",
    )
    measure(section, given.seconds)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
