#!/usr/bin/env python3
"""What policies cost: a decision when a job starts, a round over 1000 running jobs, the child, and a week simulated.

And what one user costs the others: how long their decisions take while his ads kill the child five times a second.

The ad is benchmarks/job.ad: the 109 attributes of a real job's history, filled up to 250 as sites do. The policies
are the eleven that ship. The child is joblensd's own, confined as it is there.

    bench_policies.py [--jobs 100000] [--only-crashes]
"""

from __future__ import annotations

import argparse
import array
import io
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]

from results import Section, verdict  # noqa: E402

from condor_joblens.agent.levels.policy_rounds import CHUNK  # noqa: E402
from condor_joblens.cli.policy_ads import ads  # noqa: E402
from condor_joblens.cli.policy_evaluator import PolicyEvaluator  # noqa: E402
from condor_joblens.cli.policy_simulate import Tally, simulate  # noqa: E402
from condor_joblens.common import readiness  # noqa: E402
from condor_joblens.model.levels import Level  # noqa: E402
from condor_joblens.model.metrics import METRICS  # noqa: E402
from condor_joblens.policy.policy_answers import ActivationRequest, PolicyFailure  # noqa: E402
from condor_joblens.policy.policy_client import PolicyClient  # noqa: E402
from condor_joblens.policy.requests import ChildLimits  # noqa: E402

AD = (CHECKOUT / "benchmarks" / "job.ad").read_bytes()
POLICIES = [
    (path.name, path.read_text())
    for path in sorted((CHECKOUT / "lua_policies").rglob("*.lua"), key=lambda path: path.name)
    if path.parent.name != "triggers"
]
ASKED: dict[str, Any] = {"slot": {"Name": "slot1_1@node"}, "default": "basic", "max": "io"}
SLOT = {
    **ASKED["slot"],
    **{"Activity": "Busy", "Arch": "X86_64", "Cpus": 1, "Disk": 8000000, "DynamicSlot": True, "Machine": "node"},
    **{"Memory": 2048, "OpSysAndVer": "Debian12", "RemoteOwner": "alice@site", "State": "Claimed"},
}
NODE = {"Name": "node", "Cpus": 64, "Kernel": "6.1.0"}
RUNNING = 1000
ROUNDS = 20

KILLS_THE_CHILD = b'Owner = "mallory"\nJobLensLevel = ' + b"1+" * 200_000 + b"1\n"
"""HTCondor's library calls itself for each sum, until its stack is full, or the child's time is over."""

ENDS = ("the job's ad killed", "the job's ad took more than")
"""How the failure of a request begins that was the child's end: by a signal, or by its bound of CPU time."""

CRASHES_A_SECOND, OTHERS_A_SECOND, SECONDS = 5, 10, 20.0


def main() -> int:
    """Measures all of it; exit code 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of the simulated history")
    parser.add_argument("--only-crashes", action="store_true", help="what one user costs the others, and no more")
    options = parser.parse_args()
    missed = beside_crashes()
    if not options.only_crashes:
        missed += policies(options.jobs)
    return verdict(missed)


def policies(jobs: int) -> list[str]:
    """What decisions, rounds and a simulation cost; the targets that are missed."""
    about = "Ten policies and the default, an ad of 250 attributes, the confined child."
    section = Section("policies", "Policies", about)
    with PolicyEvaluator(POLICIES) as evaluator:
        assert not evaluator.errors, evaluator.errors
        activation(evaluator, section)
        section.add("the child, after 1000 decisions", resident(evaluator) / 1e6, "MB", 25)
        a_round(evaluator, section)
        section.add("the child, with 1000 jobs kept", resident(evaluator) / 1e6, "MB", 25)
    history(section, jobs)
    section.write()
    return section.missed


def activation(evaluator: PolicyEvaluator, section: Section) -> None:
    """One decision after the other, each of another job: from the ad's bytes to the answer."""
    wall, cpu = [], []
    for number in range(1000):
        ad = AD + b'GlobalJobId = "ap.example.org#%d.0#1700000000"\n' % number
        start = time.perf_counter()
        answer = evaluator.decide(ad, **ASKED, clock=True)
        wall.append(time.perf_counter() - start)
        cpu.append(answer["cpu_seconds"])
        assert answer["errors"] == []
    for what, values in (("CPU in the child", cpu), ("from the ad's bytes to the answer", wall)):
        cuts = statistics.quantiles(values, n=100)
        target = 5 if values is wall else None
        section.add(f"a decision, {what}: p50", cuts[49] * 1e3, "ms", 0.5)
        section.add(f"a decision, {what}: p99", cuts[98] * 1e3, "ms", target)


def a_round(evaluator: PolicyEvaluator, section: Section) -> None:
    """All metrics of 1000 running jobs, which the child keeps: its CPU, and the time until all is answered.

    They are asked about as joblensd does it, CHUNK jobs at a time.
    """
    for number in range(RUNNING):
        ad = AD + b'GlobalJobId = "ap.example.org#%d.0#1700000000"\n' % number
        evaluator.decide(ad, **{**ASKED, "slot": SLOT, "node": NODE}, key=str(number))
    paths = [*(metric.path for metric in METRICS), "IdleSeconds"]
    chance = random.Random(1)
    cpu, wall = [], []
    for turn in range(ROUNDS):
        message = {"verb": "decide_many", "id": turn, "cpu": 10, "now": time.time(), "usage": paths}
        chunks = [
            [str(number) for number in range(RUNNING)][first : first + CHUNK] for first in range(0, RUNNING, CHUNK)
        ]
        numbers = [array.array("d", (chance.random() * 1000 for _ in range(len(keys) * len(paths)))) for keys in chunks]
        before, start = evaluator.cpu_seconds(), time.perf_counter()
        for keys, matrix in zip(chunks, numbers):
            answer = evaluator.ask({**message, "keys": keys}, matrix.tobytes())
            assert answer["unknown"] == []
            while answer["more"]:
                answer = evaluator.answer()
        cpu.append(evaluator.cpu_seconds() - before)
        wall.append(time.perf_counter() - start)
    section.add(f"a round over {RUNNING} jobs, CPU in the child", statistics.median(cpu) * 1e3, "ms", 250)
    section.add(f"a round over {RUNNING} jobs, until all is answered", statistics.median(wall) * 1e3, "ms")


def beside_crashes() -> list[str]:
    """Other users' decisions, from the question to the answer, without and with one user whose ads kill the child.

    Returns the targets that are missed.
    """
    about = (
        f"{OTHERS_A_SECOND} decisions a second of four users, for {SECONDS:g} seconds, while one user submits "
        f"{CRASHES_A_SECOND} ads a second that each kill the child. Some of these wait until nobody else does."
    )
    section = Section("policies_crashes", "Policies, while one user's ads kill the child", about)
    for what, crashes in (("nobody's ads", 0), ("one user's ads", CRASHES_A_SECOND)):
        client = PolicyClient(POLICIES, ChildLimits())
        client.start()
        waits, failed, killed = decisions(client, crashes)
        client.stop()
        cuts = statistics.quantiles(waits, n=100)
        how = f"decisions of others while {what} kill the child"
        section.add(f"{how}: p50", cuts[49] * 1e3, "ms", 50, f"{killed} times")
        section.add(f"{how}: p99", cuts[98] * 1e3, "ms")
        section.add(f"{how}: failed", failed, "", 0, f"of {len(waits)}")
    section.write()
    return section.missed


def decisions(client: PolicyClient, crashes: int) -> tuple[list[float], int, int]:
    """Seconds that each of the others' decisions took; how many of those failed; how many ads killed the child."""
    began = time.monotonic()
    asked: dict[str, float] = {}
    waits, failed, killed, number = [], 0, 0, {"mallory": 0, "other": 0}
    rates = {"mallory": crashes, "other": OTHERS_A_SECOND}
    while (now := time.monotonic()) < began + SECONDS or asked:
        for who, rate in rates.items():
            while now < began + SECONDS and number[who] < (now - began) * rate:
                number[who] += 1
                key = f"{who} {number[who]}"
                owner = "mallory" if who == "mallory" else f"user{number[who] % 4}"
                ad = KILLS_THE_CHILD if who == "mallory" else AD
                asked[key] = time.monotonic()
                client.submit(key, ActivationRequest(ad, ASKED["slot"], Level.BASIC, Level.IO, owner=owner))
        wait = client.timeout(time.monotonic())
        readiness.readable([client], 0.01 if wait is None else min(wait, 0.01))
        client.expire(time.monotonic())
        for key, answer in client.receive():
            waited = time.monotonic() - asked.pop(key)
            if key.startswith("mallory"):
                killed += isinstance(answer, PolicyFailure) and answer.note.startswith(ENDS)
            else:
                waits.append(waited)
                failed += isinstance(answer, PolicyFailure)
    return waits, failed, killed


def resident(evaluator: PolicyEvaluator) -> int:
    """Bytes that the child has in memory."""
    lines = Path(f"/proc/{evaluator.pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


class History(io.RawIOBase):
    """What `condor_history -l` would print of so many jobs."""

    def __init__(self, jobs: int) -> None:
        self._ads = self._write(jobs)

    def _write(self, jobs: int) -> Iterator[bytes]:
        chance = random.Random(1)
        for number in range(jobs):
            own = f'GlobalJobId = "ap.example.org#{number}.0#1700000000"\n'
            own += f'RequestGPUs = {chance.choice([0, 0, 0, 1])}\nOwner = "{chance.choice(["alice", "carol"])}"\n'
            own += f"RemoteWallClockTime = {chance.randint(60, 36000)}.0\n"
            yield AD + own.encode() + b"\n"

    def read(self, size: int = -1) -> bytes:
        """Some ads, about `size` bytes of them."""
        return b"".join(ad for _, ad in zip(range(max(1, size // len(AD))), self._ads))


def history(section: Section, jobs: int) -> None:
    """`joblens policy simulate`, without its tables."""
    evaluators = [PolicyEvaluator(POLICIES) for _ in range(2)]
    tally, start = Tally(), time.perf_counter()
    for result in simulate(evaluators, ads(History(jobs)), {"default": "basic", "max": "io"}):
        tally.add(result)
    seconds = time.perf_counter() - start
    assert tally.jobs == jobs and tally.unusable == 0, tally
    section.add(f"simulate {jobs:,} jobs, two children", seconds, "s", 60 * jobs / 100_000)
    section.add(
        "simulate, CPU in the children a job",
        sum(evaluator.cpu_seconds() for evaluator in evaluators) / jobs * 1e3,
        "ms",
    )
    for evaluator in evaluators:
        evaluator.close()


if __name__ == "__main__":
    sys.exit(main())
