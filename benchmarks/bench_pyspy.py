#!/usr/bin/env python3
"""Level profile beside py-spy on one job in Python: what each costs the job and the node, and whether they agree.

The job computes for a while in three functions and knows how long in each. It runs alone, at level profile, and under
`py-spy record --nonblocking`, in turn, each with as many samples a second.

    bench_pyspy.py [--rounds N] [--runs N]         as root, after `make build`
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "kernel")]

from bench_profile import OWNER, READER, STARTER, Sampled, counted_by_the_kernel  # noqa: E402
from ground import Slot, on_ground  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.agent.profiles import MODULE  # noqa: E402
from condor_joblens.common.own_process import cpu_seconds  # noqa: E402
from condor_joblens.common.process_starter import ProcessStarter  # noqa: E402
from condor_joblens.owner_files.allowed_ids import AllowedIds  # noqa: E402
from condor_joblens.profiles import pprof  # noqa: E402
from condor_joblens.profiling import starter  # noqa: E402
from condor_joblens.tracer.sensors.profile import HZ  # noqa: E402

FUNCTIONS = ("often", "sometimes", "rarely")
RUN = 1


@dataclass
class Ran:
    """One run of the job."""

    seconds: float  # of CPU that it has used
    shares: Mapping[str, float]  # of its time in each function, by its own clock
    told: Mapping[str, float]  # the same by samples; empty if it ran alone
    observer: float = 0.0  # CPU seconds of who looked on
    kernel: float = 0.0  # seconds of programs in the kernel


def shares(found: Mapping[str, float]) -> dict[str, float]:
    total = sum(found.values()) or 1.0
    return {name: found.get(name, 0.0) / total for name in FUNCTIONS}


def run_job(slot: Slot, script: Path, rounds: int, meanwhile: Callable[[int], None]) -> tuple[float, dict[str, float]]:
    """CPU seconds of the job, and its own shares; `meanwhile` has its process id, and ends with the job."""
    mine, theirs = os.pipe()

    def act() -> None:
        os.dup2(theirs, 1)
        os.setgroups([])
        os.setresgid(OWNER, OWNER, OWNER)
        os.setresuid(OWNER, OWNER, OWNER)
        os.execv("/usr/bin/python3", ["python3", str(script), str(rounds)])

    pid = slot.fork(act)
    os.close(theirs)
    meanwhile(pid)
    with open(mine, encoding="ascii") as said:
        own = json.loads(said.read())
    _, status, usage = os.wait4(pid, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime, shares(own)


def has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def alone(slot: Slot, script: Path, rounds: int) -> Ran:
    seconds, own = run_job(slot, script, rounds, lambda pid: None)
    return Ran(seconds, own, {})


def under_pyspy(slot: Slot, script: Path, rounds: int) -> Ran:
    command = Path(sys.executable).with_name("py-spy")
    out = script.with_name("recorded")
    used = [0.0]

    def record(pid: int) -> None:
        options = ["--nonblocking", "--rate", str(HZ), "--format", "raw", "--output", str(out), "--pid", str(pid)]
        with subprocess.Popen(
            [command, "record", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as ran:
            _, _, usage = os.wait4(ran.pid, 0)
            ran.returncode = 0
        used[0] = usage.ru_utime + usage.ru_stime

    seconds, own = run_job(slot, script, rounds, record)
    told: dict[str, float] = {}
    for line in out.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        for name in FUNCTIONS:
            if f";{name} (" in stack:
                told[name] = told.get(name, 0.0) + int(count)
    return Ran(seconds, own, shares(told), used[0])


def at_level_profile(slot: Slot, script: Path, rounds: int, children: tuple[ProcessStarter, ProcessStarter]) -> Ran:
    folder = os.open(script.parent / "scratch", os.O_RDONLY | os.O_DIRECTORY)
    kept: list[bytes] = []

    def keep(*window: Any) -> bool:
        kept.append(window[3])
        return True

    sampled = Sampled(slot, children[0], children[1], folder, keep)
    sampled.begin(slot, RUN)

    def turn(pid: int) -> None:
        while not has_ended(pid):
            sampled.turn(0.1)

    with counted_by_the_kernel():
        before = sum(sampled.tracer.programs_cost()["jl_sample_cpu"][:1])
        seconds, own = run_job(slot, script, rounds, turn)
        spent = sum(sampled.tracer.programs_cost()["jl_sample_cpu"][:1]) - before
    observer = cpu_seconds(sampled.profiles.pid)
    sampled.tracer.sensors["profile"].stop(slot.index)
    sampled.profiles.end(RUN)
    sampled.turn(1.0)
    observer = max(observer, cpu_seconds(sampled.profiles.pid))
    sampled.profiles.close()
    os.close(folder)
    told: dict[str, float] = {}
    for data in kept:
        for stack, count in pprof.decode(data).stacks.items():
            for frame in stack.frames:
                if frame.kind.value == "python" and frame.function in FUNCTIONS:
                    told[frame.function] = told.get(frame.function, 0.0) + count
    return Ran(seconds, own, shares(told), observer, spent)


def apart(runs: list[Ran]) -> float:
    """Percent of the job's time by which the worst function of a run is told wrongly; the median of the runs."""
    return statistics.median(100 * max(abs(ran.told[name] - ran.shares[name]) for name in FUNCTIONS) for ran in runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1200, help="of the job's work, some 5 ms each (1200)")
    parser.add_argument("--runs", type=int, default=5, help="of each kind (5)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    found: dict[str, list[Ran]] = {"alone": [], "profile": [], "py-spy": []}
    with tempfile.TemporaryDirectory(dir="/tmp") as name, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        os.chmod(name, 0o755)
        script = Path(shutil.copy(CHECKOUT / "benchmarks" / "known_shares.py", name))
        (script.parent / "scratch").mkdir()
        os.chown(script.parent / "scratch", OWNER, OWNER)
        allowed = AllowedIds(1000, (), 1000, ()).encode()
        children = (
            ProcessStarter("what looks at jobs", allowed, STARTER, STARTER, starter.__name__),
            ProcessStarter("readers of samples", MODULE, READER, READER),
        )
        slot = ground.slot()
        try:
            for _ in range(options.runs):
                found["alone"].append(alone(slot, script, options.rounds))
                found["profile"].append(at_level_profile(slot, script, options.rounds, children))
                found["py-spy"].append(under_pyspy(slot, script, options.rounds))
        finally:
            for each in children:
                each.close()
    return told(found, options.runs)


def told(found: Mapping[str, list[Ran]], runs: int) -> int:
    """The lines; the exit code."""
    section = Section(
        "pyspy",
        "Samples of a job in Python, beside py-spy",
        f"A job that computes in three functions, {runs} times alone, at level profile and under py-spy in turn. Both "
        f"take {HZ} samples a second; py-spy does not stop the job. What "
        "the job uses more says something only if it is above the first line.",
    )
    usual = statistics.median(ran.seconds for ran in found["alone"])
    spread = 100 * (max(ran.seconds for ran in found["alone"]) / min(ran.seconds for ran in found["alone"]) - 1)
    section.add("the job alone: from the quickest run to the slowest", spread, "% of its CPU time")
    for name in ("profile", "py-spy"):
        ran = found[name]
        lost = 100 * (statistics.median(each.seconds for each in ran) / usual - 1)
        section.add(f"{name}: what the job has used more", lost, "% of its CPU time")
        observer = statistics.median(100 * each.observer / each.seconds for each in ran)
        section.add(f"{name}: the process that reads", observer, "% of the job's CPU time")
        section.add(f"{name}: time of a function, apart from the job's own clock", apart(ran), "% of the job's time")
    kernel = statistics.median(100 * each.kernel / each.seconds for each in found["profile"])
    section.add("profile: the program in the kernel", kernel, "% of the job's CPU time", 0.5)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
