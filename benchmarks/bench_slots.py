#!/usr/bin/env python3
"""Starting and ending a per-slot tracer, beside what bcc takes to compile and load the same for one job.

The programs are loaded once for the node, so a slot is an entry in a map. Timed is the agent's own part: `take` and
`begin_at_next_exec` at the start, `stop` and `settle` at the end, of cgroups that are there. And, since the kernel
takes new slots by itself, what that adds to the starter's mkdir and rmdir.

bcc (python3-bpfcc of the distribution, under the system's Python) compiles three programs that count forks, execs
and exits of one cgroup: less than ours do.

    bench_slots.py [--slots N]            as root, after `make build`
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel")]  # not installed: the code of this checkout

from ground import Ground, on_ground  # noqa: E402

TARGET_US = 100
SYSTEM_PYTHON = "/usr/bin/python3"

WITH_BCC = r'''
import time
from bcc import BPF
PROGRAM = """
#include <linux/sched.h>
struct counts { u64 forked, executed, exited; };
BPF_ARRAY(counts, struct counts, 1);
#define COUNT(field) \
    int zero = 0; struct counts *count; \
    if (bpf_get_current_cgroup_id() != 12345) return 0; \
    count = counts.lookup(&zero); if (count) __sync_fetch_and_add(&count->field, 1); return 0;
RAW_TRACEPOINT_PROBE(sched_process_fork) { COUNT(forked) }
RAW_TRACEPOINT_PROBE(sched_process_exec) { COUNT(executed) }
RAW_TRACEPOINT_PROBE(sched_process_exit) { COUNT(exited) }
"""
for _ in range(5):
    began = time.perf_counter()
    program = BPF(text=PROGRAM)
    loaded = time.perf_counter()
    program.cleanup()
    print((loaded - began) * 1e6, (time.perf_counter() - loaded) * 1e6)
'''


def timed(act: Callable[[], object]) -> float:
    """Microseconds that it takes."""
    began = time.perf_counter_ns()
    act()
    return (time.perf_counter_ns() - began) / 1000


def agents_part(ground: Ground, slots: int) -> tuple[list[float], list[float]]:
    """Microseconds of the agent's code a slot: to start, to end."""
    tracer = ground.tracer
    ground.watch()  # the kernel takes none of these by itself
    ids = []
    for number in range(slots):
        path = ground.base / f"condor_slot1_{number}"
        path.mkdir()
        ids.append(path.stat().st_ino)
    ground.watch(ground.base)
    taken: list[int] = []

    def start(cgroup_id: int) -> None:
        slot = tracer.take(cgroup_id, 1)
        assert slot is not None
        tracer.begin_at_next_exec(slot)
        taken.append(slot)

    def end(slot: int) -> None:
        tracer.stop(slot)
        tracer.settle()

    started = [timed(lambda: start(cgroup_id)) for cgroup_id in ids]  # noqa: B023  (called at once)
    ended = [timed(lambda: end(slot)) for slot in taken]  # noqa: B023
    ground.clear()
    return started, ended


def starters_part(ground: Ground, slots: int, watched: bool) -> tuple[list[float], list[float]]:
    """Microseconds of mkdir and of rmdir of a slot's cgroup."""
    ground.watch(*[ground.base] if watched else [])
    made, removed = [], []
    for number in range(slots):
        path = str(ground.base / f"condor_slot2_{number}")
        made.append(timed(lambda: os.mkdir(path)))  # noqa: B023
        removed.append(timed(lambda: os.rmdir(path)))  # noqa: B023
        while len(ground.tracer.events()):
            pass
    ground.watch(ground.base)
    return made, removed


def bcc_part() -> tuple[list[float], list[float]] | str:
    """Microseconds to compile and load, and to unload; or why that can't be measured."""
    have = subprocess.run([SYSTEM_PYTHON, "-c", "import bcc; bcc.BPF"], capture_output=True, text=True)
    if have.returncode != 0:
        return "not installed (apt-get install python3-bpfcc)"
    ran = subprocess.run([SYSTEM_PYTHON, "-c", WITH_BCC], capture_output=True, text=True)
    if ran.returncode != 0:
        return f"fails here: {ran.stderr.strip().splitlines()[-1]}"
    pairs = [tuple(map(float, line.split())) for line in ran.stdout.splitlines()]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def line(title: str, times: list[float], target: float | None = None) -> bool:
    low, median, high = statistics.quantiles(times, n=4)
    met = target is None or median <= target
    verdict = "" if target is None else f"  <= {target} {'met' if met else 'MISSED'}"
    print(f"  {title:<46}{median:>12,.1f}{low:>14,.1f} - {high:<12,.1f}{verdict}")
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--slots", type=int, default=500, help="how many are started and ended (500)")
    slots = parser.parse_args().slots
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    print(f"  {'microseconds':<46}{'median':>12}{'quartiles':>23}  target")
    loading: list[float] = []
    for number in range(5):
        began = time.perf_counter()
        with on_ground(f"joblens-bench-{os.getpid()}-{number}"):
            loading.append((time.perf_counter() - began) * 1e6)
    line("load everything, once a node", loading)
    with on_ground(f"joblens-bench-{os.getpid()}", max_slots=slots) as ground:
        started, ended = agents_part(ground, slots)
        met = line("start a slot's tracer", started, TARGET_US) & line("end a slot's tracer", ended, TARGET_US)
        plain = starters_part(ground, slots, watched=False)
        watched = starters_part(ground, slots, watched=True)
        for title, without, having in zip(("mkdir of a slot's cgroup", "rmdir of a slot's cgroup"), plain, watched):
            line(f"{title}, unwatched", without)
            line(f"{title}, taken by the kernel", having)
    bcc = bcc_part()
    if isinstance(bcc, str):
        print(f"  bcc: {bcc}")
    else:
        line("bcc: compile and load for one job", bcc[0])
        line("bcc: unload", bcc[1])
        print(f"  bcc takes {statistics.median(bcc[0]) / statistics.median(started):,.0f} times as long to start")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
