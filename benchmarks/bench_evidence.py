#!/usr/bin/env python3
"""What a look at a job takes: `joblens hang` and `joblens stacks` without joblensd and the command.

A job of two processes with 102 threads in all stands still, in C++ without frame pointers. Timed is what joblensd
starts: from its request to the last word of the child. The first look loads what looks need. Every later one is a new
process, which has to make the unwind tables anew.

    bench_evidence.py [--looks N]         as root, after `make build`
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "kernel")]

from ground import Slot, hang_program, on_ground, until  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.common import descriptors  # noqa: E402
from condor_joblens.common.process_starter import ProcessStarter  # noqa: E402
from condor_joblens.owner_files.allowed_ids import AllowedIds  # noqa: E402
from condor_joblens.profiles import evidence  # noqa: E402
from condor_joblens.profiling import starter  # noqa: E402

OWNER, STARTER = 12345, 64001
THREADS = 102


def start(slot: Slot, program: Path) -> None:
    """A process of 51 threads, which all wait."""

    def act() -> None:
        os.setgroups([])
        os.setresgid(OWNER, OWNER, OWNER)
        os.setresuid(OWNER, OWNER, OWNER)
        os.execv(program, ["hang", "sleep", "-", "idle"])

    slot.fork(act)


def look(slot: Slot, children: ProcessStarter, folder: int) -> tuple[float, evidence.Evidence]:
    """Seconds that a look takes, and what it saw."""
    children.receive()
    began = time.perf_counter()
    channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    threads = slot.tracer.open_threads(slot.index, OWNER)
    with channel:
        with theirs:
            children.start(theirs, folder)
        descriptors.send(channel, json.dumps({"jobs": {}}).encode(), [threads])
        os.close(threads)
        said = b"".join(iter(lambda: channel.recv(65536), b""))
    took = time.perf_counter() - began
    return took, evidence.parse(said)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--looks", type=int, default=30, help="how many are timed (30)")
    looks = parser.parse_args().looks
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    section = Section(
        "evidence",
        "A look at a job that stands still",
        "`joblens hang` and `joblens stacks` of a job with 102 threads, in C++ without frame pointers: from joblensd's "
        "request to the end of the answer. Nothing of it runs before somebody asks.",
    )
    allowed = AllowedIds(1000, (), 1000, ()).encode()
    with tempfile.TemporaryDirectory(dir="/tmp") as name, on_ground(f"joblens-bench-{os.getpid()}") as ground:
        os.chmod(name, 0o755)
        program = Path(shutil.copy(hang_program(), f"{name}/hang"))
        os.mkdir(f"{name}/scratch")
        os.chown(f"{name}/scratch", OWNER, OWNER)
        folder = os.open(f"{name}/scratch", os.O_RDONLY | os.O_DIRECTORY)
        slot = ground.slot()
        for _ in range(2):
            start(slot, program)
        until(lambda: sum(len(os.listdir(f"/proc/{pid}/task")) for pid in slot.pids()) == THREADS, 60)
        children = ProcessStarter("what looks at jobs", allowed, STARTER, STARTER, starter.__name__)
        took, seen = look(slot, children, folder)
        assert len(seen.threads) == THREADS and seen.is_whole, seen.sentence
        section.add("the first look", took * 1e3, "ms", 400)
        times = [look(slot, children, folder)[0] for _ in range(looks)]
        section.add("every later look, median", statistics.median(times) * 1e3, "ms", 50)
        section.add("the longest of them", max(times) * 1e3, "ms")
        with open(f"/proc/{children.pid}/status", encoding="ascii", errors="replace") as status:
            kib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
        section.add("memory of what starts looks, after the first", kib / 1024, "MiB")
        children.close()
        for pid in slot.pids():
            os.kill(pid, signal.SIGKILL)
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
