#!/usr/bin/env python3
"""How long a command from an access point takes, in two real pools: schedd, door, relay server, relay and joblensd.

The node is behind NAT. A person's command is timed twice: inside a process that has loaded `joblens` already, and as
what a shell starts. The door lets a user ask once a second, after 30 at once: so the commands come at that pace. A job
writes the time into its output, and a process that follows it compares that with when it came; both have one clock.
With more nodes: bench_relay.py.

    bench_afar.py [--commands N] [--lines N]      as root, after `make build`
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
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "pool")]

from results import Section, verdict  # noqa: E402
from two_nodes import HUB, Site, whole_site  # noqa: E402

PACE = 1.1
"""Seconds from one command's end to the next one's begin."""

INSIDE = """
import sys, time
from condor_joblens.cli import ps
from condor_joblens.control import SOCKET
times = []
for _ in range(int(sys.argv[2])):
    begun = time.perf_counter()
    found, _ = ps.ask(f"/run/joblens/{SOCKET}", sys.argv[1])
    times.append(time.perf_counter() - begun)
    assert found
    time.sleep(float(sys.argv[3]))
print(*times)
"""

CLOCK = """
executable = /bin/sh
arguments = "-c 'while :; do date +%s.%N; sleep 0.7; done'"
should_transfer_files = YES
"""

FOLLOWER = """
import subprocess, sys, time
command = "joblens", "tail", sys.argv[1], "-f", "-n", "0"
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
    for _ in range(int(sys.argv[2])):
        line = tail.stdout.readline()
        print(time.time() - float(line))
    tail.terminate()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", type=int, default=200)
    parser.add_argument("--lines", type=int, default=100)
    options = parser.parse_args()
    result = Section(
        "afar",
        "Commands from an access point",
        f"{options.commands} times `joblens ps` of a job on a node behind NAT, {PACE:g} s apart, and {options.lines} "
        "lines of a job's output. It is all of the way: schedd, joblens-door, relay server with TLS, joblens-relay and "
        "joblensd, in two real pools on one machine. Two nodes are connected; below are thousands.",
    )
    with (
        tempfile.TemporaryDirectory(prefix="joblens-bench-afar-") as folder,
        whole_site(f"bench-afar-{os.getpid()}", "newest", Path(folder), HUB) as site,
    ):
        commands(site, options.commands, result)
        lines(site, options.lines, result)
    result.write()
    return verdict(result.missed)


def commands(site: Site, count: int, result: Section) -> None:
    """`joblens ps`, without and with the start of a Python."""
    ap, job = site.access_point, f"{site.cluster}.0"
    python = "/opt/joblens/bin/python"
    said = ap.run(python, "-I", "-c", INSIDE, job, str(count), str(PACE), user="alice").stdout
    tell(result, "a command there and back", sorted(map(float, said.split())), 1000, "ms", (100, 1000))
    whole = []
    for _ in range(max(20, count // 5)):
        begun = time.perf_counter()
        site.asked("ps")
        whole.append(time.perf_counter() - begun)
        time.sleep(PACE)
    tell(result, "`joblens ps` as a shell starts it", sorted(whole), 1000, "ms")
    started = []
    for _ in range(20):
        begun = time.perf_counter()
        ap.run("joblens", "--version", user="alice")
        started.append(time.perf_counter() - begun)
    result.add("`joblens --version`, beside it", 1000 * statistics.median(started), "ms")


def lines(site: Site, count: int, result: Section) -> None:
    """A line of the job's output, from when it was written to when it is read by who follows it."""
    ap = site.access_point
    cluster = ap.submit(f'{CLOCK}requirements = Machine == "{site.host}"\nqueue')
    ap.wait_running(cluster)
    ap.until(lambda: site.joblens("ps", f"{cluster}.0").returncode == 0, "an answer of the job")
    said = ap.run("python3", "-c", FOLLOWER, f"{cluster}.0", str(count), user="alice").stdout
    tell(result, "a line that is followed", sorted(map(float, said.split())), 1, "s", (0.5, 0.5))


def tell(
    result: Section, what: str, seconds: list[float], factor: int, unit: str, targets: tuple[float, float] | None = None
) -> None:
    """Median and 99th percentile of sorted `seconds`."""
    middle, high = targets or (None, None)
    result.add(f"{what}, median", factor * statistics.median(seconds), unit, middle)
    last = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
    result.add(f"{what}, 99th percentile", factor * last, unit, high, f"of {len(seconds)}")


if __name__ == "__main__":
    sys.exit(main())
