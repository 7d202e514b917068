#!/usr/bin/env python3
"""What JobLens costs HTCondor itself: two pools side by side that differ in JobLens alone, 200 sleeping jobs in each.

Both have HTCondor's stock intervals; the one with JobLens has its two snippets besides. Measured at the same time, so
that the machine's noise meets both alike: CPU time of each daemon, updates to the collector (as it counts them in each
ad) and to the job queue (transactions in its log). First with young jobs, whose ads are refreshed most often, then with
the pace that ads have in old age. Last, the time from the start of a job to its first numbers in condor_q, of jobs
submitted one after the other.

Without JobLens a shadow tells the queue every 900 s, all of them at about the same time here: shorter measurements may
see none of that, or all.

    bench_pool.py [--jobs N] [--seconds S] [--settle S] [--first N]      as root, after `make build`
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

CHECKOUT = Path(__file__).resolve().parents[1]
# the code of this checkout, not an installed one; the harness of the pool's tests is no package
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "pool")]

from harness import Pool, started  # noqa: E402

from condor_joblens.common.config import Config  # noqa: E402

WINDOWS = 6
TARGET = 1.0  # percent of a core more
TARGET_FIRST = 30.0  # seconds
FIRST = "JobLensUsage.UpdateTime=!=undefined"

SLEEPER = """
executable = /bin/sleep
arguments = 86400
transfer_executable = false
should_transfer_files = no
request_memory = 32
request_disk = 1
"""

# Whose CPU time is shown, by the name of the process; joblensd and its like are Python.
DAEMONS = ("condor_startd", "condor_schedd", "condor_collector", "condor_negotiator", "condor_shadow", "condor_starter")
OURS = {
    "condor_joblens.agent": "joblensd",
    "condor_joblens.policy.child": "its policy child",
    "condor_joblens.publish.slotads": "joblens_publish",
    "condor_joblens.export": "joblens-export",
}
HELD = ("condor_startd", "condor_schedd", "condor_collector")  # to the target


@dataclass(frozen=True)
class Reading:
    """What has been used and counted up to a moment."""

    time: float
    cpu: dict[str, float]  # seconds, by daemon
    collector: int  # updates
    queue: Counter[str]  # of the job queue's log: transactions, attributes, JobLensUsage, bytes


def members(pool: Pool) -> dict[psutil.Process, str]:
    """The processes of a pool that are accounted for, with what they are called."""
    found = {}
    for process in psutil.process_iter():
        try:
            with open(f"/proc/{process.pid}/cgroup", encoding="utf-8") as file:
                if f"/joblens-pool-{pool.name}/" not in file.read():
                    continue
            name, command = process.name(), process.cmdline()
        except (OSError, psutil.Error):
            continue
        ours = [called for module, called in OURS.items() if module in command]
        if ours or name in DAEMONS:
            found[process] = ours[0] if ours else name
    return found


def read(pool: Pool) -> Reading:
    """Everything, now. What counts comes before what asks, so that the asking is in both ends of a window alike."""
    cpu: dict[str, float] = {}
    for process, name in members(pool).items():
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        cpu[name] = cpu.get(name, 0.0) + used.user + used.system
    return Reading(time.monotonic(), cpu, collector_updates(pool), queue_log(pool))


def collector_updates(pool: Pool) -> int:
    """Updates that the collector has got for the ads it has now; its own ad tells it every 15 minutes only."""
    said = pool.run("condor_status", "-any", "-af", "UpdatesTotal").stdout
    return sum(int(word) for word in said.split() if word.isdigit())


def queue_log(pool: Pool) -> Counter[str]:
    """What the schedd has written into its log of the job queue."""
    log = (pool.root / "var/spool/condor/job_queue.log").read_bytes()
    lines = log.split(b"\n")
    return Counter(
        {
            "transactions": sum(line.startswith(b"105") for line in lines),
            "attributes": sum(line.startswith(b"103 ") for line in lines),
            "JobLensUsage": sum(b" JobLensUsage " in line for line in lines),
            "bytes": len(log),
        }
    )


@dataclass(frozen=True)
class Use:
    """What one pool used between two readings."""

    percent: dict[str, float]  # of a core, by daemon
    collector: float  # updates an hour
    queue: dict[str, float]  # an hour


def between(before: Reading, after: Reading) -> Use:
    seconds = after.time - before.time
    percent = {name: 100 * (used - before.cpu.get(name, 0.0)) / seconds for name, used in after.cpu.items()}
    hourly = 3600 / seconds
    queue = {name: (count - before.queue[name]) * hourly for name, count in after.queue.items()}
    return Use(percent, (after.collector - before.collector) * hourly, queue)


def watch(pools: list[Pool], seconds: float) -> list[list[Reading]]:
    """For each pool the readings at the ends of WINDOWS windows."""
    readings: list[list[Reading]] = [[read(pool)] for pool in pools]
    for _ in range(WINDOWS):
        time.sleep(seconds / WINDOWS)
        for pool, own in zip(pools, readings):
            own.append(read(pool))
    return readings


def report(jobs: int, plain: list[Reading], with_us: list[Reading]) -> bool:
    """Prints what differs; whether every target was met."""
    met = True
    whole = [between(own[0], own[-1]) for own in (plain, with_us)]
    parts = [[between(*pair) for pair in zip(own, own[1:])] for own in (plain, with_us)]
    print(f"\n  {'% of a core':<22}{'without':>9}{'with':>9}{'more':>8}   quartiles of {WINDOWS} windows, with")
    for name in (*DAEMONS, *OURS.values()):
        without, used = (use.percent.get(name, 0.0) for use in whole)
        low, _, high = statistics.quantiles([use.percent.get(name, 0.0) for use in parts[1]], n=4)
        verdict = ""
        if name in HELD:
            reached = used - without <= TARGET
            met &= reached
            verdict = f"at most {TARGET:g} more: {'met' if reached else 'MISSED'}"
        print(f"  {name:<22}{without:9.2f}{used:9.2f}{used - without:8.2f}   {low:.2f} - {high:.2f}  {verdict}")
    print(f"\n  {'a job and hour':<35}{'without':>9}{'with':>9}")
    print(f"  {'updates to the collector':<35}{whole[0].collector / jobs:9.1f}{whole[1].collector / jobs:9.1f}")
    for what in whole[0].queue:
        values = [use.queue[what] / jobs for use in whole]
        print(f"  {'job queue: ' + what:<35}{values[0]:9.1f}{values[1]:9.1f}")
    return met


def first_numbers(pool: Pool, count: int) -> list[float]:
    """Seconds from a job's start, as the starter tells it, to its first numbers in condor_q; the jobs start in turn."""
    clusters = []
    for _ in range(count):
        clusters.append(pool.submit(SLEEPER + "queue\n"))
        time.sleep(1)
    constraint = f"ClusterId >= {clusters[0]}"
    waited: dict[str, float] = {}

    def all_seen() -> bool:
        said = pool.run("condor_q", "-all", "-constraint", constraint, "-af", "ClusterId", FIRST, "JobCurrentStartDate")
        for cluster, is_there, start in map(str.split, said.stdout.splitlines()):
            if is_there == "true":
                waited.setdefault(cluster, time.time() - float(start))
        return len(waited) == count

    pool.until(all_seen, "the first numbers")
    return list(waited.values())


def report_first(waited: list[float]) -> bool:
    """Prints how long the first numbers took; whether the target was met."""
    low, median, high = statistics.quantiles(waited, n=4)
    met = max(waited) <= TARGET_FIRST
    print(
        f"\n  start of a job to its first numbers in condor_q, {len(waited)} jobs: {min(waited):.0f} to "
        f"{max(waited):.0f} s, quartiles {low:.0f} {median:.0f} {high:.0f}; "
        f"at most {TARGET_FIRST:.0f}: {'met' if met else 'MISSED'}"
    )
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=200, help="running jobs in each pool")
    parser.add_argument("--seconds", type=float, default=300, help="how long to measure")
    parser.add_argument("--settle", type=float, default=90, help="how long the jobs have run before")
    parser.add_argument("--first", type=int, default=20, help="jobs whose first numbers are waited for")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("pools need root")
    with ExitStack() as stack:
        conf = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cpus = options.jobs + max(10, options.jobs // 4)
        (conf / "60-bench.conf").write_text(f"NUM_CPUS = {cpus}\nMEMORY = {128 * cpus}\n")
        plain = stack.enter_context(started("bench-plain", conf=conf, install=False))
        with_us = stack.enter_context(started("bench-joblens", conf=conf))
        pools = [plain, with_us]
        version = plain.shell("condor_version | sed -n 1p").strip()
        print(f"{version}\n{os.cpu_count()} CPUs, kernel {os.uname().release}, load {os.getloadavg()[0]:.1f}")
        clusters = [pool.submit(f"{SLEEPER}queue {options.jobs}\n") for pool in pools]
        for pool, cluster in zip(pools, clusters):
            pool.wait_running(cluster, options.jobs)
        print(f"{options.jobs} jobs run in each; {options.settle:.0f} s later, for {options.seconds:.0f} s:")
        time.sleep(options.settle)
        met = report(options.jobs, *watch(pools, options.seconds))
        with with_us.config(f"JOBLENS_AD_PERIOD = {Config().ad_max_period:g}"):
            print(f"\nwith the pace of old jobs, an ad every {Config().ad_max_period:g} s:")
            time.sleep(options.settle)
            met &= report(options.jobs, *watch(pools, options.seconds))
        if options.first:
            met &= report_first(first_numbers(with_us, options.first))
        for pool in pools:
            pool.clean()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
