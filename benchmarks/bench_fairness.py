#!/usr/bin/env python3
"""Fairness: one job does its worst, one attack after the other, and the promises to all other jobs are looked at.

Real programs in the kernel, the real joblensd, real cgroups. Short jobs follow one another in four slots, every second
one at level io; each does the same (crowd.c), so its numbers are known. Meanwhile one job of another user makes one of
the attacks of attack.c. It has a slot of its own, level io, and two processes for each core. Of the other jobs:

  wrong     their last numbers differ from what they did, and their rows do not say so
  ad        the ad that the starter reads 6 ms after their end, as HTCondor's does, is not the last one
  start     joblensd has not answered within 40 ms of the wrapper's request, so that the wrapper is counted with the job
  events    starts and ends of their programs have no event
  joblensd  its CPU time, with its children

Of the attacker: events of his that are missing, and are not declared for his run by name; and numbers of processes.
`nothing` and `burn` (his processes only count) are there for comparison: what the machine itself does to the others.

With --container he makes all of it in namespaces of his own (users, processes, mounts, network), as in a container.

    bench_fairness.py [--quick] [--seconds S] [--container] [--attack NAME ...]      as root, after `make build`;
                                                                                     five minutes, with --quick one
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]  # not installed: the code of this checkout

from bench_agent import Agent, Ground, _until, ground, knobs  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.model.events import EventKind  # noqa: E402
from condor_joblens.model.metrics import METRICS, text  # noqa: E402
from condor_joblens.shm.reader import Reader  # noqa: E402
from condor_joblens.shm.ring import EventReader  # noqa: E402

ATTACKS = {
    "nothing": "no other job",
    "burn": "processes that only count",
    "exec": "programs that end at once",
    "argv": "the same, with the arguments that redaction takes longest for",
    "fork": "processes that end at once",
    "exit": "processes that fail, by a code and by a signal",
    "thread": "threads that end at once",
    "connect": "connections to one server",
    "endpoints": "connections and datagrams, each to another server",
    "open": "files opened, missing files, unnamed files",
    "mmap": "mappings of 4 MiB, each page written to",
    "mounts": "file systems mounted in a user namespace, written to and unmounted",
    "cgroups": "10,000 cgroups, in which it lives by turns",
    "control": "requests on the control socket, and callers that say nothing",
}
AT_A_TIME, PAUSE_MILLISECONDS = 4, 200
SECONDS, QUICK_SECONDS = 16.0, 3.0
LOOK_EVERY = 0.25
SETTLE = 1.5
"""Seconds after an attack until all of it is in the rows and events."""

EXPLANATION = (
    "One job of another user makes one attack after the other, at level io, with two processes for each core. "
    "`nothing` and `burn` (processes that only count) are there for comparison. Of the other jobs: numbers that are "
    "wrong without saying so, and events that are missing. A last ad is late if it is not there 6 ms after the end, "
    "a start is unanswered after 40 ms. Of 200 jobs one is 0.5 %. With 2 of them the share can be anything from 0.3 to "
    "3.6 % in the long run. joblensd's CPU is that of its children, too. Missed promises are bold."
)

CONTAINER = "The attacker is in namespaces of his own: users, processes, mounts, network."

LATE, SHARE = 1.0, 25.0  # targets: percent of the jobs, percent of a core
FIRST_STRANGER = 1_000_000
"""His jobs' numbers begin here."""

OPENS = [metric.column for metric in METRICS if metric.group == "Fs" and metric.name == "FailedOpens"]
DONE = {"process_forked": 1, "process_executed": 1, "process_exited": 2, "io_call_write_bytes": 10000,
        "io_write_calls": 10, "tcp_connected": 1, "tcp_accepted": 1}  # fmt: skip
"""What each short job does."""

WITH_WRAPPER = {"process_forked": 2, "process_executed": 3, "process_exited": 3, "io_call_write_bytes": 10008,
                "io_write_calls": 11}  # fmt: skip
"""The same, counted from the start of its wrapper."""

FAILED_OPENS = 20
LATE_IO = b"level io began"
"""In the Note of a job that level io has not counted from its first instruction on."""

EVENTS = {EventKind.EXEC: 3, EventKind.EXIT: 3}
"""Of one job: its wrapper, the wrapper's helper, the job and its child."""


@dataclass
class Entry:
    """How one job went, as its starter saw it."""

    number: int
    ended: float  # CLOCK_MONOTONIC
    waited: float  # seconds that its wrapper took
    looked: float  # seconds from its end to its starter's look
    is_final: bool


@dataclass
class Told:
    """What joblensd tells of all runs, taken as it comes."""

    place: Ground
    rows: dict[str, np.void] = field(default_factory=dict)  # JobId -> last row
    events: dict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))  # run number -> kinds
    lost: Counter[int] = field(default_factory=Counter)  # run number -> declared; 0: the node

    def __post_init__(self) -> None:
        self._events = EventReader(str(self.place.run_dir / "events"))

    def look(self) -> None:
        """Takes all that is new."""
        for row in Reader(str(self.place.run_dir / "ended")).rows()[0]:
            self.rows.setdefault(text(row["job_id"]), row.copy())
        while len(found := self._events.read()):
            pairs, counts = np.unique(found["run_number"] << np.uint64(8) | found["kind"], return_counts=True)
            for pair, count in zip(pairs.tolist(), counts.tolist()):
                self.events[pair >> 8][pair & 255] += count
            losses = found[found["kind"] == EventKind.LOSS]
            for run, value in zip(losses["run_number"].tolist(), losses["value"].tolist()):
                self.lost[run] += value
        if self._events.missed:
            raise SystemExit("bench_fairness: the machine left no time for reading all events: try again")

    def row(self, number: int) -> np.void | None:
        """The last row of that job."""
        return self.rows.get(f"{number}.0")


class Node:
    """joblensd, the short jobs, and the attacks upon them."""

    def __init__(self, place: Ground, in_container: bool) -> None:
        self._place, self._in_container = place, in_container
        self._ads = place.folder / "ad.short"
        self._ads.write_text((place.folder / "ad").read_text().partition("\n")[2])
        compiler = shutil.which("musl-gcc") or "cc"
        attack = ["-o", str(place.folder / "attack"), str(CHECKOUT / "benchmarks" / "attack.c")]
        subprocess.run([compiler, "-O2", "-static", "-pthread", *attack], check=True)
        self.agent = Agent(place)
        self.told = Told(place)
        self._ledger = place.folder / "ledger"
        others = self._crowd(self._ads, 10**6, "short", AT_A_TIME, self._ledger, PAUSE_MILLISECONDS)
        place.started.append(subprocess.Popen(others, start_new_session=True))
        self._strangers = FIRST_STRANGER
        _until(lambda: len(self.entries()) > AT_A_TIME, "the first jobs")

    def _crowd(self, ad: Path, *arguments: object) -> list[str]:
        place = self._place
        paths = [place.folder / "crowd", place.execute, place.base, ad, place.folder / "activate"]
        return [str(part) for part in (*paths, *arguments)]

    def entries(self) -> list[Entry]:
        """All short jobs that have ended so far."""
        found = []
        for line in self._ledger.read_text().splitlines() if self._ledger.exists() else ():
            number, ended, waited, looked, is_final = map(int, line.split())
            found.append(Entry(number, ended / 1e9, waited / 1e9, looked / 1e9, bool(is_final)))
        return found

    def cpu(self) -> float:
        """CPU seconds of joblensd and all of its children."""
        return self.agent.cpu() + self.agent.policy_cpu()

    def attack(self, what: str, seconds: float) -> Attack:
        """One attack, and all that was told of the time in which it went on."""
        self._strangers += 1
        done = self._place.folder / f"done.{what}"
        done.touch()
        done.chmod(0o666)
        began, cpu = time.monotonic(), self.cpu()
        stranger = None if what == "nothing" else self._start(what, seconds, done)
        while time.monotonic() - began < seconds or (stranger is not None and stranger.poll() is None):
            time.sleep(LOOK_EVERY)
            self.told.look()
        until, share = time.monotonic(), 100 * (self.cpu() - cpu) / (time.monotonic() - began)
        time.sleep(SETTLE)
        self.told.look()
        others = [entry for entry in self.entries() if began < entry.ended < until]
        said = [int(word) for word in done.read_text().split()]
        return Attack(others, self.told, self._strangers, said, share)

    def _start(self, what: str, seconds: float, done: Path) -> subprocess.Popen[bytes]:
        slice_name = f"{self._place.execute}_local_slot3_1@bench.slice".replace("/", "_")
        target = {"control": self._place.run_dir / "activate.sock", "cgroups": self._place.base / slice_name}
        program = [self._place.folder / "attack", what, seconds, 2 * (os.cpu_count() or 1), target.get(what, "-"), done]
        program += ["container"] * self._in_container
        job = self._crowd(self._place.folder / "ad", self._strangers, "stranger", slice_name, *program)
        process = subprocess.Popen(job, start_new_session=True)
        self._place.started.append(process)
        return process


@dataclass
class Attack:
    """What went on during one attack."""

    others: list[Entry]
    told: Told
    stranger: int  # the attacking job's number
    said: list[int]  # processes that it forked, programs it executed, processes that exited, workers that failed
    share: float  # joblensd's, percent of a core

    def is_late(self, entry: Entry) -> bool:
        """Whether joblensd did not answer the job's wrapper in time."""
        row = self.told.row(entry.number)
        return row is None or row["process_executed"] != DONE["process_executed"]

    def wrong(self) -> list[str]:
        """What differs in the last rows of the others from what they did, undeclared."""
        return [line for entry in self.others for line in self._wrong(entry)]

    def _wrong(self, entry: Entry) -> list[str]:
        row = self.told.row(entry.number)
        if row is None:
            return [f"{entry.number}: no last row"]
        truth, wanted = dict(DONE), b"io" if entry.number & 1 else b"basic"
        if self.is_late(entry):
            truth.update(WITH_WRAPPER)
        found = {name: int(row[name]) for name in truth}
        if wanted == b"io" and not self.is_late(entry):
            truth["opens"], found["opens"] = FAILED_OPENS, sum(int(row[name]) for name in OPENS)
        if not row["complete"] or row["lost"] or row["level"] != wanted or LATE_IO in row["note"]:
            return []
        off = {name: (count, truth[name]) for name, count in found.items() if count != truth[name]}
        note = text(row["note"])
        return [f"{entry.number}: {name} is {is_now}, not {was} ({note})" for name, (is_now, was) in off.items()]

    def untold(self) -> list[str]:
        """Events that are missing of the others."""
        missing = []
        for entry in self.others:
            row = self.told.row(entry.number)
            counts: Counter[int] = Counter() if row is None else self.told.events[int(row["run_number"])]
            for kind, wanted in EVENTS.items():
                missing += [f"{entry.number}: {kind.name} {n} of {wanted}" for n in range(counts[kind] + 1, wanted + 1)]
        return missing

    def strangers_untold(self) -> tuple[int, int]:
        """Events of the attacker that are missing and undeclared, and that are declared for his run by name."""
        row = self.told.row(self.stranger)
        if row is None or not self.said:
            return 0, 0
        run = int(row["run_number"])
        missing = self.said[1] + self.said[2] - sum(self.told.events[run][kind] for kind in EVENTS)
        return max(0, missing - self.told.lost[run]), self.told.lost[run]

    def strangers_numbers(self) -> list[str]:
        """What differs in the attacker's own row, undeclared."""
        row = self.told.row(self.stranger)
        if row is None:
            return ["no last row"]
        names = ("process_forked", "process_executed", "process_exited")
        off = [f"{name} is {int(row[name])}, not {said}" for name, said in zip(names, self.said) if row[name] != said]
        return off if row["complete"] and not row["lost"] else []


def percent(count: int, of: int) -> float:
    """A share; everything where there was nothing."""
    return 100.0 * count / of if of else 100.0


def counted(count: int, of: int) -> str:
    """The counts behind a share, and between which shares the true one is in 19 of 20 such runs (Wilson's interval)."""
    jobs, z = max(1, of), 1.96
    share = count / jobs
    middle, half = share + z * z / (2 * jobs), z * math.sqrt(share * (1 - share) / jobs + (z / (2 * jobs)) ** 2)
    low, high = (100 * each / (1 + z * z / jobs) for each in (max(0.0, middle - half), middle + half))
    return f"{count} of {of}: {low:.1f} to {high:.1f} % in the long run"


def report(section: Section, what: str, attack: Attack) -> None:
    """One row of the matrix."""
    jobs = len(attack.others)
    unread = [entry for entry in attack.others if not entry.is_final]
    late = [entry for entry in attack.others if attack.is_late(entry)]
    waits, looks = ([getattr(entry, name) for entry in attack.others] or [0.0] for name in ("waited", "looked"))
    wrong, (undeclared, declared) = attack.wrong(), attack.strangers_untold()
    section.add(f"{what}: other jobs", jobs, "")
    section.add(f"{what}: numbers wrong", len(wrong), "", 0)
    for name, missed, took in (
        ("last ad late", unread, f"starters look after {looked(looks)}"),
        ("start unanswered", late, f"wrappers take {looked(waits)}"),
    ):
        note = f"{counted(len(missed), jobs)}; {took}"
        section.add(f"{what}: {name}", percent(len(missed), jobs), "%", LATE, note)
    untold, of_all = attack.untold(), attack.told.lost.pop(0, 0)
    section.add(f"{what}: events missing", len(untold) + of_all, "", 0, f"declared for the node: {of_all}")
    section.add(f"{what}: joblensd", attack.share, "% of a core", SHARE)
    if what != "nothing":
        if not attack.said or attack.said[3]:
            section.add(f"{what}: not possible on this machine", None, "")
        numbers = attack.strangers_numbers()
        note = f"{declared} declared; he forked, executed, exited: {attack.said[:3]}"
        section.add(f"{what}: attacker's events, undeclared", undeclared, "", 0, note)
        section.add(f"{what}: attacker's numbers wrong", len(numbers), "", 0)
        wrong += [f"the attacker: {line}" for line in numbers]
    for line in wrong[:10] + untold[:10]:
        print(f"  {line}")


def looked(seconds: list[float]) -> str:
    """Median and 99th percentile in milliseconds."""
    return "{:.1f} ms, p99 {:.1f}".format(*(1000 * np.quantile(seconds, [0.5, 0.99])))


def main() -> int:
    """Makes all attacks; exit code 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of each attack ({SECONDS:g})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SECONDS:g} seconds of each; nothing is kept")
    parser.add_argument("--container", action="store_true", help="the attacks in namespaces of their own")
    parser.add_argument(
        "--attack", nargs="+", choices=ATTACKS, default=list(ATTACKS), help="these alone; nothing is kept"
    )
    given = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("programs in the kernel and cgroups need root")
    name, title, about = "fairness", "Fairness: one job does its worst", EXPLANATION
    if given.container:
        name, title, about = f"{name}_container", f"{title}, in a container", f"{EXPLANATION} {CONTAINER}"
    section = Section(name, title, about, is_matrix=True)
    with ground("io", {**knobs(64, "io"), "JOBLENS_SINKS": "prometheus, file"}) as place:
        node = Node(place, given.container)
        time.sleep(SETTLE)
        for what in given.attack:
            print(f"{what}: {ATTACKS[what]}")
            report(section, what, node.attack(what, QUICK_SECONDS if given.quick else given.seconds))
        problems = [line for line in node.agent.log().splitlines() if "Traceback" in line or "ERROR" in line]
        section.add("errors in joblensd's log", len(problems), "", 0)
        print("".join(f"  {line}\n" for line in problems[:10]), end="")
    if not given.quick and given.attack == list(ATTACKS):
        section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
