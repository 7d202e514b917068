#!/usr/bin/env python3
"""What joblensd's questions cost the startd: 200 jobs that start within ten seconds, asked about and not.

Rounds with and without take turns in one pool. Without, the file with the startd's address is out of the way, so the
questions fail before they reach it. All else is the same. Counted is the CPU time of condor_startd from the first
submission until all jobs run. Last, one question while all jobs run.

    bench_startd.py [--jobs N] [--rounds N]      as root, after `make build`
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
# the code of this checkout, not an installed one; the harness of the pool's tests is no package
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "pool"), str(CHECKOUT / "benchmarks")]

from bench_pool import SLEEPER  # noqa: E402
from harness import Pool, started  # noqa: E402
from results import Section, verdict  # noqa: E402

BATCHES = 10
TARGET = 0.5  # seconds of CPU more for all starts: 5 % of a core over ten seconds
QUESTIONS = 50
TARGET_QUESTION = 50.0  # ms
ADDRESS = "/var/log/condor/.startd_address"
ASK = f"""
for i in $(seq {QUESTIONS}); do
    condor_status -pool "$(head -1 {ADDRESS})" -json -constraint 'JobId isnt undefined' \
        -attributes Name,JobId,GlobalJobId,RemoteUser,StarterPid,Cpus,Memory >/dev/null
done
"""


def startds_cpu(pool: Pool) -> float:
    """Seconds of CPU that the startd has used."""
    fields = pool.shell("cat /proc/$(pgrep -x condor_startd)/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_all(pool: Pool, jobs: int) -> tuple[float, float]:
    """Starts the jobs; the startd's CPU time meanwhile, and how long it took, both in seconds."""
    before, began = startds_cpu(pool), time.monotonic()
    clusters = []
    for _ in range(BATCHES):
        clusters.append(pool.submit(f"{SLEEPER}queue {jobs // BATCHES}\n"))
        time.sleep(0.5)
    for cluster in clusters:
        pool.wait_running(cluster, jobs // BATCHES)
    return startds_cpu(pool) - before, time.monotonic() - began


def one_round(pool: Pool, jobs: int, is_asked: bool) -> float:
    """The startd's CPU time for the starts, in seconds."""
    if not is_asked:
        pool.shell(f"mv {ADDRESS} {ADDRESS}.aside")
    try:
        cpu, took = start_all(pool, jobs)
    finally:
        if not is_asked:
            pool.shell(f"mv {ADDRESS}.aside {ADDRESS}")
    print(f"  {'asked' if is_asked else 'not asked':<12}{cpu:6.2f} s of CPU, {jobs} starts in {took:.0f} s", flush=True)
    return cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=200, help="jobs that start")
    parser.add_argument("--rounds", type=int, default=2, help="with and without, each so often")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("pools need root")
    section = Section("startd", "Questions to the startd", "CPU time of condor_startd while jobs start.")
    asked, alone = [], []
    with tempfile.TemporaryDirectory() as conf:
        cpus = options.jobs + 56
        fast = (CHECKOUT / "tests/pool/conf/fast/30-matchmaking.conf").read_text()
        (Path(conf) / "60-bench.conf").write_text(f"{fast}\nNUM_CPUS = {cpus}\nMEMORY = {128 * cpus}\n")
        with started("bench-startd", conf=Path(conf)) as pool:
            one_round(pool, options.jobs, True)  # the first starts find nothing in any cache
            pool.clean()
            for _ in range(options.rounds):
                alone.append(one_round(pool, options.jobs, False))
                pool.clean()
                asked.append(one_round(pool, options.jobs, True))
                if len(asked) < options.rounds:
                    pool.clean()
            before = startds_cpu(pool)
            pool.shell(ASK)
            question = (startds_cpu(pool) - before) / QUESTIONS * 1000
            pool.clean()
    more = statistics.mean(asked) - statistics.mean(alone)
    section.add(f"{options.jobs} starts, not asked", statistics.mean(alone), "s of CPU")
    section.add(f"{options.jobs} starts, asked", statistics.mean(asked), "s of CPU")
    section.add("more", more, "s of CPU", TARGET)
    section.add(f"one question, {options.jobs} jobs run", question, "ms of CPU", TARGET_QUESTION)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
