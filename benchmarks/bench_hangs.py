#!/usr/bin/env python3
"""What happens on a node whose jobs all hang at once on one file server.

Real programs in the kernel, real cgroups and a FUSE file system of type cvmfs2, whose daemon is stopped: each job has
a file of it open, and reads. Ten other jobs go on. Timed is from when jobs have made no progress for
JOBLENS_HANG_MINUTES: until of the first one two looks are kept, and until of all. Memory, levels and limits are the
defaults: joblensd may use JOBLENS_MAX_CPU. At the end `joblens hang --all` asks for all jobs.

    bench_hangs.py [--jobs N] [--seconds S]        as root, after `make build`; all 200 jobs take some minutes
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "kernel")]

from bench_agent import Agent, Crowd, Ground, _until, ground  # noqa: E402
from ground import fuse_program  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.common.config import Config  # noqa: E402
from condor_joblens.model.events import EventKind  # noqa: E402
from condor_joblens.shm.reader import Reader  # noqa: E402
from condor_joblens.shm.ring import EventReader  # noqa: E402

OTHERS, STARTS = 10, 20
"""Other jobs, and how many programs each starts a second: they make progress."""

MINUTES = 1.0
AD_PERIOD = 5.0
KNOBS = {
    "JOBLENS_HANG_MINUTES": f"{MINUTES:g}",
    "JOBLENS_AD_PERIOD": f"{AD_PERIOD:g}",
    "JOBLENS_AD_MAX_PERIOD": f"{AD_PERIOD:g}",
}
COMMAND = "import sys; from condor_joblens.cli.main import main; sys.exit(main())"


class Server:
    """A file system of a daemon that can be stopped."""

    def __init__(self, where: Path) -> None:
        where.mkdir()
        self.where = where
        program = shutil.copy(fuse_program(), where.parent / "fuse_fs")
        options = "subtype=cvmfs2,allow_other,attr_timeout=3600,entry_timeout=3600"
        self._process = subprocess.Popen([program, where, "-f", "-o", options])
        _until(where.is_mount, "the file system")

    def hang(self) -> None:
        """From now on nobody has an answer."""
        self._process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        """Who waits has an error."""
        self._process.kill()
        self._process.wait()
        subprocess.run(["umount", "-l", str(self.where)], check=True)


@contextmanager
def server(place: Ground) -> Iterator[Server]:
    """Gone afterwards, before the jobs are ended."""
    found = Server(place.folder / "cvmfs")
    try:
        yield found
    finally:
        found.end()


def hang(place: Ground, agent: Agent, files: Server, jobs: int) -> float:
    """Starts the jobs that hang; time.monotonic() when the first has stood still for the threshold."""
    go = place.folder / "go"
    paths = [place.execute, place.base, place.folder / "ad", place.folder / "activate"]
    command = [place.folder / "crowd", *paths, jobs, "read", files.where / "data", go]
    place.started.append(subprocess.Popen([str(part) for part in command], start_new_session=True))
    _until(lambda: agent.known("basic") == jobs + OTHERS, f"{jobs + OTHERS} jobs at basic")
    files.hang()
    go.touch()
    _until(lambda: bool((rows(place)["hang_seconds"] >= 60 * MINUTES).any()), "the threshold")
    return time.monotonic()


def rows(place: Ground) -> Any:
    """What joblensd publishes."""
    return Reader(str(place.run_dir / "rows")).rows()[0]


def used(agent: Agent) -> float:
    """CPU seconds of joblensd, of its children and of all that they have started."""
    total = 0.0
    for each in [agent.process, *agent.process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            own = times.user + times.system
            total += own if each == agent.process else own + times.children_user + times.children_system
    return total


class Ads:
    """The longest time between two ads of each of some jobs."""

    def __init__(self, paths: list[Path]) -> None:
        self._last = {ad: (ad.stat().st_mtime_ns, time.monotonic()) for ad in paths}
        self.longest = 0.0

    def look(self) -> None:
        """Call it often."""
        now = time.monotonic()
        for ad, (mtime, since) in self._last.items():
            if ad.stat().st_mtime_ns != mtime:
                self._last[ad] = (ad.stat().st_mtime_ns, now)
            self.longest = max(self.longest, now - since)


def told_of(events: EventReader) -> int:
    """How many more jobs seem to hang."""
    new = events.read()
    return int(((new["kind"] == EventKind.HANG) & (new["value"] == 1)).sum()) if len(new) else 0


def measure(place: Ground, agent: Agent, jobs: int, seconds: float, section: Section) -> None:
    """Lets jobs hang, and waits until joblensd has told of all."""
    Crowd(place, OTHERS, STARTS)
    _until(lambda: agent.known("basic") == OTHERS, "the other jobs")
    _until(
        lambda: b"JobLensUsage" in b"".join(ad.read_bytes() for ad in place.execute.glob("*/htcondor/.update.ad")),
        "their ads",
    )
    time.sleep(2 * AD_PERIOD)
    others = list(place.execute.glob("*/htcondor/.update.ad"))
    before = Ads(others)
    end = time.monotonic() + 4 * AD_PERIOD
    while time.monotonic() < end:
        before.look()
        time.sleep(0.1)
    with server(place) as files:
        events = EventReader(str(place.run_dir / "events"))
        began, meanwhile = hang(place, agent, files, jobs), Ads(others)
        cpu, first, found = used(agent), 0.0, told_of(events)
        while found < jobs and time.monotonic() < began + seconds:
            time.sleep(0.1)
            meanwhile.look()
            found += told_of(events)
            first = first or (time.monotonic() - began if found else 0.0)
        took = time.monotonic() - began
        share = (used(agent) - cpu) / took
        section.add(f"{jobs} jobs: two looks at the first are kept after", first or None, "s", 10)
        note = "" if found == jobs else f"then it was ended; {seconds:.0f} s were given"
        section.add("jobs told of", found, "", jobs if seconds > 600 else None, note, is_least=True)
        section.add("until then", took, "s", None, f"{took / max(found, 1):.2f} s a job")
        section.add("joblensd and its children meanwhile", share, "cores", Config().max_cpu)
        known = rows(place)["level"]
        section.add("jobs whose level was lowered", int((known != b"basic").sum()), "", 0)
        most = max(before.longest + 2.0, 1.5 * AD_PERIOD)
        note = f"{before.longest:.1f} s before"
        section.add("longest time between two ads of another job", meanwhile.longest, "s", most, note)
        grouped(place, jobs, section)


def grouped(place: Ground, jobs: int, section: Section) -> None:
    """What `joblens hang --all` prints of them."""
    command = [sys.executable, "-c", COMMAND, "hang", "--all", "--run-dir", str(place.run_dir)]
    began = time.monotonic()
    page = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True).stdout
    took = time.monotonic() - began
    print(page)
    heads = [
        int(count) for count in re.findall(r"^(\d+) jobs?: (?:file|page): .*\(fuse\.cvmfs2\)$", page, re.MULTILINE)
    ]
    section.add("`joblens hang --all`: of them in its first line", max(heads, default=0), "jobs", jobs, is_least=True)
    section.add("`joblens hang --all` takes", took, "s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=200, help="that hang (200)")
    parser.add_argument(
        "--seconds", type=float, default=3600, help="most to wait until joblensd has told of all (3600)"
    )
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("programs in the kernel and cgroups need root")
    section = Section(
        "hangs",
        "Many jobs that hang at once",
        f"{options.jobs} jobs read from one file server that no longer answers, and {OTHERS} others go on. Times are "
        "from when a job has made no progress for `JOBLENS_HANG_MINUTES`. Looks may take half of `JOBLENS_MAX_CPU`.",
    )
    with ground("basic", KNOBS) as place:
        agent = Agent(place)
        measure(place, agent, options.jobs, options.seconds, section)
        agent.stop()
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
