#!/usr/bin/env python3
"""What it costs that a process of its own writes job ads: one ad at a job's end, and 200 in one exchange.

Folders of an ordinary user on the file system of --folder. Both processes have the priority of a job's end.

    bench_owner_files.py [--folder /var/tmp]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]

from results import Section, verdict  # noqa: E402

from condor_joblens.common import privilege  # noqa: E402
from condor_joblens.common.lender import set_priority  # noqa: E402
from condor_joblens.owner_files.allowed_ids import AllowedIds  # noqa: E402
from condor_joblens.owner_files.client import Helper  # noqa: E402
from condor_joblens.owner_files.messages import MAX_ADS  # noqa: E402
from condor_joblens.owner_files.operations import AdWrite, Operations, OwnerFiles  # noqa: E402

USER, OWN, AGENT = 12345, 64001, 64003
AD = f"[{'Counter=123456789;' * 110}]"
"""As long as an ad of level basic can be."""

TIMES, BATCHES = 4000, 50
PAUSE = 0.0005  # seconds between two writes: each finds both processes asleep, as the end of a job does


def main() -> int:
    """Measures all of it; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default="/var/tmp", help="where the jobs' folders are made")
    where = parser.parse_args().folder
    about = f"{TIMES} ads of {len(AD)} bytes, one after the other, and {BATCHES} batches of {MAX_ADS}; {_kind(where)}."
    section = Section("owner_files", "Writing in jobs' folders as their owners", about)
    helper = Helper(AllowedIds(1000, (), 1000, ()), OWN, OWN)
    set_priority([0, helper.pid], is_lent=True)
    with folders(Path(where)) as opened:
        for name, files, measured in (
            ("by the helper", helper, as_own_user),
            ("by the helper, for root", helper, writes),
            ("by joblensd itself, as before", Operations(), writes),
        ):
            ones, many = measured(files, opened)
            section.add(f"one ad, {name}: median", statistics.median(ones), "ms")
            section.add(f"one ad, {name}: 99 %", _share(ones, 0.99), "ms", 2 if files is helper else None)
            section.add(f"{MAX_ADS} ads in one call, {name}: median", statistics.median(many), "ms")
        began = cpu(helper)
        for _ in range(TIMES):
            helper.versions(opened[:1])
        section.add("CPU time of an exchange about one folder, both sides", (cpu(helper) - began) / TIMES * 1e6, "µs")
    section.add("the helper's own memory", _own_memory(helper.pid) / 1e6, "MB", 12)
    helper.stop()
    section.write()
    return verdict(section.missed)


@contextmanager
def folders(where: Path) -> Iterator[list[int]]:
    """The folders of MAX_ADS jobs of a user, open."""
    with tempfile.TemporaryDirectory(dir=where) as name, ExitStack() as stack:
        place, opened = Path(name), []
        place.chmod(0o755)
        for number in range(MAX_ADS):
            folder = place / f"dir_{number}"
            folder.mkdir(0o700)
            os.chown(folder, USER, USER)
            opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
            stack.callback(os.close, opened[-1])
        yield opened


def writes(files: OwnerFiles, opened: list[int]) -> tuple[list[float], list[float]]:
    """Milliseconds of each single ad, and of each batch."""
    ones = [one(files, opened[number % MAX_ADS]) * 1e3 for number in range(TIMES)]
    return ones, [batch(files, opened) * 1e3 for _ in range(BATCHES)]


def as_own_user(files: OwnerFiles, opened: list[int]) -> tuple[list[float], list[float]]:
    """The same in a process that is a user of its own, with joblensd's capabilities, as joblensd is."""
    mine, its = os.pipe()
    child = os.fork()
    if child == 0:
        set_priority([0], is_lent=True)  # which is not inherited
        privilege.become_with(AGENT, AGENT, tuple(privilege.NEEDED))
        with open(its, "w", encoding="ascii") as pipe:
            json.dump(writes(files, opened), pipe)
        os._exit(0)
    os.close(its)
    with open(mine, encoding="ascii") as pipe:
        ones, many = json.load(pipe)
    os.waitpid(child, 0)
    return ones, many


def one(files: OwnerFiles, folder: int) -> float:
    """Seconds of one ad."""
    time.sleep(PAUSE)
    return _seconds(lambda: files.write_ads([AdWrite(folder, AD, False)]))


def batch(files: OwnerFiles, opened: list[int]) -> float:
    """Seconds of all of them."""
    writes = [AdWrite(folder, AD, False) for folder in opened]
    return _seconds(lambda: files.write_ads(writes))


def cpu(helper: Helper) -> float:
    """CPU seconds of both processes so far."""
    return time.process_time() + helper.cpu_seconds()


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _share(values: list[float], share: float) -> float:
    return sorted(values)[int(share * len(values))]


def _own_memory(pid: int) -> float:
    """Bytes that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024.0 for line in lines if line.startswith("Private_"))


def _kind(folder: str) -> str:
    """The type of the file system there."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [(len(fields[1]), fields[2]) for fields in mounts if os.path.realpath(folder).startswith(fields[1])]
    return max(above)[1]


if __name__ == "__main__":
    sys.exit(main())
