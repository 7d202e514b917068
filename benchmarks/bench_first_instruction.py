#!/usr/bin/env python3
"""How many jobs that ask for level io have what they do in their first millisecond counted, idle and under load.

Real programs in the kernel, the real joblensd with its policy child, and jobs that start as HTCondor starts them, with
the wrapper's helper (crowd.c). Each job fails to open a file twenty times as the first that it does, lives for a
twentieth of a second, and ends. Its last row is compared with that: a start is missed if a single open is missing.

Once jobs follow one another, so that the programs are attached already. Once there is a pause before each, after which
they are not, so that each start attaches them. Load is processes that do nothing but compute, besides the jobs.

    bench_first_instruction.py [--starts N] [--load L ...]      as root, after `make build`; 100 at loads 0 to 20
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]  # not installed: the code of this checkout

from bench_agent import MIB, Agent, Ground, _until, ground, knobs  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.model.metrics import METRICS  # noqa: E402
from condor_joblens.shm.reader import Reader  # noqa: E402

OPENS = 20
"""Failed opens of a job of crowd.c."""

LOADS = (0, 5, 20)
TARGETS = {0: 1, 20: 5}
"""Load -> missed starts of a hundred, at most."""

PAUSE = 3.5
"""Seconds after a job at io in which its programs are detached."""

FRESH_SHARE = 0.1
"""So many of the starts are measured with programs that are not attached: each takes PAUSE."""

FAILED_OPENS = [metric.column for metric in METRICS if metric.group == "Fs" and metric.name == "FailedOpens"]


@dataclass
class Starts:
    """What became of jobs that asked for io."""

    asked: int = 0
    whole: int = 0  # every open is in the row
    declared: int = 0  # not, and the row's level or note says so
    undeclared: int = 0  # not, and nothing says so

    @property
    def missed_of_100(self) -> float:
        """Starts that miss something."""
        return 100 * (self.declared + self.undeclared) / max(1, self.asked)


class Node:
    """joblensd, and the rows of jobs that have ended."""

    def __init__(self, place: Ground) -> None:
        self._place = place
        (place.folder / "ad.short").write_text((place.folder / "ad").read_text().partition("\n")[2])
        self.agent = Agent(place)
        self._seen: set[int] = set()
        self._new()

    def run(self, starts: int) -> Starts:
        """So many jobs at io one after the other, and as many at basic in between."""
        place = self._place
        paths = [place.execute, place.base, place.folder / "ad.short", place.folder / "activate"]
        command = [place.folder / "crowd", *paths, 2 * starts, "short", 1]
        subprocess.run([str(part) for part in command], check=True)
        found = []
        _until(lambda: found.extend(self._new()) or len(found) >= 2 * starts, "the ends of all runs")  # type: ignore[func-returns-value]
        return judge(np.array(found))

    def _new(self) -> list[np.void]:
        """Rows of runs that have ended since the last call."""
        rows = Reader(str(self._place.run_dir / "ended")).rows()[0]
        new = [row for row in rows if int(row["run_number"]) not in self._seen]
        self._seen.update(int(row["run_number"]) for row in new)
        return new

    def is_attached(self) -> bool:
        """Whether level io's programs run at all."""
        pins = Path(f"/proc/{self.agent.process.pid}/root/sys/fs/bpf/joblens")
        return any(pins.glob("*/io/links/*"))

    def kernel_bytes(self) -> int:
        """What the kernel keeps for the maps that joblensd holds, each once."""
        sizes = {}
        for path in Path(f"/proc/{self.agent.process.pid}/fdinfo").iterdir():
            facts = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
            if "map_id" in facts:
                sizes[facts["map_id"]] = int(facts["memlock"])
        return sum(sizes.values())


def judge(rows: np.ndarray) -> Starts:
    """What the last rows of jobs say of their first millisecond."""
    starts = Starts()
    for row in rows:
        if row["requested"] == b'"basic"':
            continue
        starts.asked += 1
        if row["level"] == b"io" and sum(int(row[column]) for column in FAILED_OPENS) == OPENS:
            starts.whole += 1
        elif row["level"] != b"io" or b"level io began" in row["note"] or not row["complete"]:
            starts.declared += 1
        else:
            starts.undeclared += 1
    return starts


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that compute, besides."""
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True) for _ in range(processes)]
    try:
        time.sleep(0.5 if busy else 0)
        yield
    finally:
        for process in busy:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def curve(node: Node, loads: list[int], starts: int, section: Section) -> None:
    """The share of starts that miss something, by load."""
    undeclared = 0
    for processes in loads:
        with load(processes):
            found = node.run(starts)
            fresh = Starts()
            for _ in range(round(starts * FRESH_SHARE)):
                time.sleep(PAUSE)
                one = node.run(1)
                for name in vars(fresh):
                    setattr(fresh, name, getattr(fresh, name) + getattr(one, name))
        name = "on an idle node" if not processes else f"at load {processes}"
        section.add(
            f"starts that miss an open {name}, of 100",
            found.missed_of_100,
            "",
            TARGETS.get(processes),
            f"{found.asked} jobs",
        )
        section.add(
            f"the same, programs not attached before, {name}", fresh.missed_of_100, "", None, f"{fresh.asked} jobs"
        )
        undeclared += found.undeclared + fresh.undeclared
    section.add("starts that miss an open and do not say so", undeclared, "", 0)


def neighbours(node: Node, section: Section) -> None:
    """What is left of level io when no job has it."""
    time.sleep(PAUSE)
    section.add("programs of io are attached while no job is at io", float(node.is_attached()), "", 0)


def preloading(section: Section) -> None:
    """What it takes to keep the programs loaded, and what jobs miss without that."""
    kernel, resident = {}, {}
    for preloads in ("false", "true"):
        with ground("io", {**knobs(64, "io"), "JOBLENS_PRELOAD_IO": preloads}) as place:
            node = Node(place)
            time.sleep(PAUSE)
            kernel[preloads], resident[preloads] = node.kernel_bytes(), node.agent.memory()[0]
            if preloads == "false":
                found = node.run(1)
                name = "the first start on an idle node without JOBLENS_PRELOAD_IO misses an open, of 1"
                section.add(name, found.declared + found.undeclared, "")
            node.agent.stop()
    section.add("memory of the kernel for loaded programs' maps", (kernel["true"] - kernel["false"]) / MIB, "MB")
    section.add("joblensd's resident memory with them, more", resident["true"] - resident["false"], "MB")


def main() -> int:
    """Measures all of it; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--starts", type=int, default=100, help="jobs at io for each load (default: 100)")
    parser.add_argument("--load", type=int, nargs="+", default=list(LOADS), help="processes that compute, besides")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("programs in the kernel and cgroups need root")
    section = Section(
        "first_instruction",
        "Level io from the first instruction",
        f"{options.starts} jobs that ask for `io`, for each load; each fails to open a file {OPENS} times as the first "
        f"that it does. A start is missed if one of these is not in its last row. {round(options.starts * FRESH_SHARE)}"
        " more begin while the programs are not attached.",
    )
    with ground("io", knobs(64, "io")) as place:
        node = Node(place)
        time.sleep(PAUSE)
        curve(node, options.load, options.starts, section)
        neighbours(node, section)
        node.agent.stop()
    preloading(section)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
