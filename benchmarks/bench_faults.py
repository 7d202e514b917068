#!/usr/bin/env python3
"""Faults for as long as they last in earnest, under 200 jobs at 1 Hz and 5,000 events a second into a real Kafka.

Each must end with nothing lost that is not declared: every event and every (run, sequence) came, or was counted.
  frozen   the broker is stopped (SIGSTOP), and goes on
  killed   the exporter is killed (kill -9) at random moments, and started again
  gone     the broker is gone for longer than the spool's bound allows
  joblensd what joblensd itself uses a round, with four sinks, one that hangs, and no exporter at all, in turns

    bench_faults.py            one and a half minutes
    bench_faults.py --long     a minute frozen, fifty kills, two minutes gone: ten minutes
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "service")]

import faults  # noqa: E402
from bench_agent import Agent, Crowd, ground  # noqa: E402
from exporter import Exporter  # noqa: E402
from faults import Impatient, Run  # noqa: E402
from results import Section, verdict  # noqa: E402
from servers import Kafka  # noqa: E402
from sinks import until  # noqa: E402

from condor_joblens.shm.reader import Reader  # noqa: E402

SPOOL_BYTES = 4 << 20
SETTLE = 1.5  # seconds: an exporter starts

PLUGIN = """
import time
from condor_joblens.sinks import DELIVERED, Sink

class Null(Sink):
    "Takes everything."

    def deliver(self, batch):
        return DELIVERED

class Hung(Null):
    name = "hung"

    def deliver(self, batch):
        time.sleep(1e6)

Null1, Null2, Null3, Null4 = (type(f"Null{n}", (Null,), {"name": f"null{n}"}) for n in range(1, 5))
"""
NULLS = tuple(f"null{number}" for number in range(1, 5))
JOBS, EVENTS = faults.JOBS, faults.EVENTS = 200, 5000
"""A second."""

COMPARED = {"no exporter": (), "four sinks": NULLS, "one sink, which hangs": ("hung",)}


@contextlib.contextmanager
def measured(section: Section, what: str, run: Run, most_events: int | None = 0) -> Iterator[None]:
    """What happens in the block, and the balance after it; `most_events` may be lost, if declared."""
    with run:
        yield
        began = time.monotonic()
        found = run.end(600)
        took = time.monotonic() - began
    note = f"{found['events'] + found['samples']} came, {found['missing']} did not"
    undeclared = max(0, found["missing"] - found["declared"])
    section.add(f"{what}: lost and not declared", undeclared, "records", 0, note)
    section.add(f"{what}: events lost", run.node.events - found["events"], "events", most_events)
    causes = ", ".join(found["causes"])
    section.add(f"{what}: declared as lost", found["declared"], "records", None, causes)
    section.add(f"{what}: until all was settled", took, "s")


def frozen(section: Section, kafka: Kafka, run: Run, seconds: float) -> None:
    """A broker that neither answers nor hangs up."""

    def happen() -> None:
        time.sleep(2)
        kafka.freeze()
        time.sleep(seconds)
        kafka.thaw()

    with measured(section, f"broker stopped for {seconds:g} s", run):
        run.meanwhile(seconds + 4, happen)


def killed(section: Section, run: Run, times: int) -> None:
    """An exporter that never lives long."""
    lives = [random.uniform(0.2, 2) for _ in range(times)]

    def happen() -> None:
        for life in lives:
            time.sleep(life)
            run.exporter.kill()
            run.exporter.start()

    with measured(section, f"exporter killed {times} times", run):
        run.meanwhile(sum(lives) + 2, happen)


def gone(section: Section, kafka: Kafka, run: Run, seconds: float) -> None:
    """More than the spool may hold."""

    def happen() -> None:
        time.sleep(2)
        kafka.kill()
        time.sleep(seconds)
        kafka.start()

    with measured(section, f"broker gone for {seconds:g} s, spool of {SPOOL_BYTES >> 20} MiB", run, None):
        run.meanwhile(seconds + 4, happen)


def joblensds_cost(section: Section, seconds: float) -> None:
    """Each in turn, and each is once the first. The jobs' ads, of which there are many at first, are put off."""
    costs: dict[str, list[float]] = {what: [] for what in COMPARED}
    with ground("basic", {"JOBLENS_AD_PERIOD": "300"}) as place:
        agent = Agent(place)
        crowd = Crowd(place, JOBS)
        until(lambda: agent.known() == JOBS, f"{JOBS} jobs")
        time.sleep(10)
        for turn in range(len(COMPARED)):
            for what in (list(COMPARED) * 2)[turn:][: len(COMPARED)]:
                with exporting(place.run_dir, COMPARED[what]):
                    time.sleep(SETTLE)
                    costs[what].append(a_round(agent, place.run_dir, seconds))
        crowd.end()
        agent.stop()
    for what, found in costs.items():
        spread = f"{min(found):.2f} to {max(found):.2f}"
        section.add(f"joblensd, a round of {JOBS} jobs: {what}", statistics.median(found), "ms of CPU", None, spread)
    for what in list(COMPARED)[1:]:
        ratio = min(costs[what]) / min(costs["no exporter"])  # what others do to this machine's caches only adds
        section.add(f"joblensd, {what} / no exporter, the least of each", ratio, "", 1.1)


def a_round(agent: Agent, run_dir: Path, seconds: float) -> float:
    """Milliseconds of CPU that joblensd uses from one publication to the next."""
    reader = Reader(str(run_dir / "rows"))
    cpu, number = agent.cpu(), reader.version()[1]
    time.sleep(seconds)
    return 1000 * (agent.cpu() - cpu) / (reader.version()[1] - number)


@contextlib.contextmanager
def exporting(run_dir: Path, sinks: tuple[str, ...]) -> Iterator[None]:
    """An exporter of what joblensd publishes there; none where there are no sinks."""
    if not sinks:
        yield
        return
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        exporter = Exporter(folder, SimpleNamespace(folder=run_dir), JOBLENS_SINKS=", ".join(sinks))
        info = folder / "site" / "null_sink-1.dist-info"
        info.mkdir()
        names = "".join(f"{name} = null_sink:{name.capitalize()}\n" for name in (*NULLS, "hung"))
        (info / "entry_points.txt").write_text(f"[condor_joblens.sinks]\n{names}")
        (info / "METADATA").write_text("Name: null_sink\nVersion: 1\n")
        (folder / "site" / "null_sink.py").write_text(PLUGIN)
        with exporter:
            yield


def main() -> int:
    """Measures; 1 where something was lost without a word, or costs joblensd more than it should."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--long", action="store_true", help="60 s, 50 kills, 120 s, and turns of 20 s")
    arguments.add_argument("--frozen", type=float, help="seconds (default: 10)")
    arguments.add_argument("--kills", type=int, help="how many (default: 10)")
    arguments.add_argument("--gone", type=float, help="seconds (default: 12)")
    arguments.add_argument("--only", choices=("frozen", "killed", "gone", "joblensd"))
    given = arguments.parse_args()
    os.chdir(CHECKOUT)
    section = Section(
        "faults",
        "Faults",
        f"{JOBS} jobs at 1 Hz and {EVENTS} events per second into a real Kafka beside the exporter. Nothing may be "
        "missing at the end that was not declared as lost. A declared count may be too great by a batch, never too "
        "small. Then what sinks cost joblensd itself, in turns.",
    )
    kind = Exporter if given.long else Impatient
    with tempfile.TemporaryDirectory() as path, contextlib.ExitStack() as stack:
        folder = Path(path)

        def run(name: str, **macros: str) -> Run:
            (folder / name).mkdir()
            return Run(kafka, folder / name, kind, **macros)

        parts: dict[str, Callable[[], None]] = {
            "frozen": lambda: frozen(section, kafka, run("frozen"), given.frozen or (60 if given.long else 10)),
            "killed": lambda: killed(section, run("killed"), given.kills or (50 if given.long else 10)),
            "gone": lambda: gone(
                section, kafka, run("gone", JOBLENS_SPOOL_BYTES=str(SPOOL_BYTES)),
                given.gone or (120 if given.long else 12),
            ),
            "joblensd": lambda: joblensds_cost(section, 20 if given.long else 3),
        }  # fmt: skip
        if given.only != "joblensd":
            kafka = stack.enter_context(Kafka(folder / "kafka"))
        for name, measure in parts.items():
            if given.only in (None, name):
                measure()
    if given.only is None:
        section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
