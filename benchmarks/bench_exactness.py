#!/usr/bin/env python3
"""How exact the numbers are for the jobs that are hardest to watch, beside a poller that reads the same once a second.

Jobs whose work is all done in 2 ms children, in double-forked orphans, in processes of eight threads that end at one
moment, and in a child that has 256 MiB for 50 ms. The job counts what it does, and the kernel adds up in its rusage
and /proc/PID/io what all of its descendants used: that is the truth. The poller is psutil, looking at every process
of the job's cgroup each second, as tools without a hook in the kernel do.

No rusage has what a thread uses on its way off the CPU, after the kernel has closed its account; the cgroup has it.
So JobLens may be above the truth by some microseconds a thread, and never below it.

    bench_exactness.py [--times N]            as root, after `make build`
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import threading
from pathlib import Path

import psutil

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "kernel")]  # not installed; the job that knows what it did

from ground import Cgroup, Slot, build_job, on_ground  # noqa: E402

from condor_joblens.sample.cgroup_files import CgroupFiles, read_cpu  # noqa: E402

TARGET = 0.001
WAY_OFF = 20e-6  # CPU seconds a thread
COLUMNS = {
    "read bytes": "io_call_read_bytes",
    "written bytes": "io_call_write_bytes",
    "forks": "process_forked",
    "execs": "process_executed",
    "exits": "process_exited",
    "peak bytes": "memory_largest_process_peak_bytes",
}


class Poller(threading.Thread):
    """What psutil sees of a cgroup, once a second: each process's last reading."""

    def __init__(self, cgroup: Cgroup) -> None:
        super().__init__()
        self._cgroup = cgroup
        self._over = threading.Event()
        self._seen: dict[int, tuple[float, int, int, int]] = {}

    def run(self) -> None:
        while not self._over.wait(1):
            for pid in self._cgroup.pids():
                try:
                    process = psutil.Process(pid)
                    cpu, io, memory = process.cpu_times(), process.io_counters(), process.memory_info()
                except psutil.Error:
                    continue
                self._seen[pid] = (cpu.user + cpu.system, io.read_chars, io.write_chars, memory.rss)

    def stop(self) -> dict[str, float]:
        self._over.set()
        self.join()
        seen = list(self._seen.values()) or [(0, 0, 0, 0)]
        cpu, read, written, resident = zip(*seen)
        return {
            "CPU seconds": sum(cpu), "read bytes": sum(read), "written bytes": sum(written),
            "forks": max(0, len(self._seen) - 1), "peak bytes": max(resident),
        }  # fmt: skip


def cpu_seconds(cgroup: Cgroup) -> float:
    directory = os.open(cgroup.path, os.O_RDONLY)
    files = CgroupFiles.open(directory)
    os.close(directory)
    seconds = float(read_cpu([files])["cpu_seconds"][0])
    files.close()
    return seconds


def measure(slot: Slot, verb: list[object]) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """The truth, what we have, and what the poller has."""
    before_from, before_to = os.pipe()

    def begin() -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        os.write(before_to, f"{cpu_seconds(slot)} {usage.ru_utime + usage.ru_stime}".encode())

    poller = Poller(slot)
    poller.start()
    ended = slot.start(*verb, before_exec=begin).wait()
    polled = poller.stop()
    ours_before, true_before = map(float, os.read(before_from, 64).split())
    totals = slot.totals()
    truth = {
        "CPU seconds": ended.usage.ru_utime + ended.usage.ru_stime - true_before,
        "read bytes": ended.io["rchar"],
        "written bytes": ended.io["wchar"],
        "forks": ended.said["forked"],
        "execs": ended.said["executed"] + 1,  # its own
        "exits": ended.said["exited"] + 1,
        "peak bytes": ended.usage.ru_maxrss * 1024,
    }
    ours = {"CPU seconds": cpu_seconds(slot) - ours_before}
    return truth, {**ours, **{name: totals[column] for name, column in COLUMNS.items()}}, polled


def report(title: str, threads: int, truth: dict[str, float], ours: dict[str, float], polled: dict[str, float]) -> bool:
    print(f"\n{title}\n  {'':<15}{'truth':>16}{'JobLens':>16}{'off by':>9}{'psutil, 1 Hz':>16}{'off by':>9}")
    met = True
    for name, true in truth.items():
        form = ",.3f" if name == "CPU seconds" else ",.0f"
        off = abs(ours[name] - true) / true
        reached = off <= TARGET
        if name == "CPU seconds":
            reached = true * (1 - TARGET) <= ours[name] <= true * (1 + TARGET) + threads * WAY_OFF
        met &= reached
        line = f"  {name:<15}{true:>16{form}}{ours[name]:>16{form}}{off:>9.2%}"
        if name in polled:
            line += f"{polled[name]:>16{form}}{abs(polled[name] - true) / true:>9.1%}"
        print(line + ("" if reached else "  MISSED"))
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--times", type=int, default=1000, help="children, orphans and threads of each job (1000)")
    times = parser.parse_args().times
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    groups = times // 8
    jobs: dict[str, tuple[int, list[object]]] = {  # title: how many threads, what job.c is told
        f"{times} children of 2 ms": (times + 1, ["children", times]),
        f"{times} double-forked orphans": (2 * times + 1, ["orphans", times]),
        f"{groups} processes of 8 threads that end at one moment": (
            8 * groups + 1,
            ["threads", groups, 8, "group", 2000],
        ),
        "a child with 256 MiB for 50 ms": (2, ["peak", 256, 50, "freed"]),
    }
    print(f"Each number may be off by {TARGET:.1%}.")
    met = True
    with tempfile.TemporaryDirectory() as folder, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        build_job(Path(folder))
        for number, (title, (threads, verb)) in enumerate(jobs.items()):
            met &= report(title, threads, *measure(ground.slot(f"condor_slot{number}"), verb))
        lost = ground.tracer.lost()
        print(f"\nEvents that the tracer says were lost: {lost}")
    return 0 if met and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
