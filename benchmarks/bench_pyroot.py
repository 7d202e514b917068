#!/usr/bin/env python3
"""Level profile on jobs with PyROOT: how many stacks are whole, and how soon after the first sample they are.

The jobs loop in ROOT's libraries, in Python that ROOT calls back, in code that cling makes while they run, and over
the entries of a tree. A stack is whole if its outermost caller is known to have none. ROOT comes from PyPI, 250 MB,
into the cache of this project; `--python` names one that has it.

    bench_pyroot.py [--seconds N] [--python PATH]         as root, after `make build`
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "kernel")]

from bench_profile import OWNER, READER, STARTER, Sampled  # noqa: E402
from ground import Ground, Slot, on_ground, until  # noqa: E402
from results import Section, verdict  # noqa: E402

from condor_joblens.agent.profiles import MODULE  # noqa: E402
from condor_joblens.common.process_starter import ProcessStarter  # noqa: E402
from condor_joblens.owner_files.allowed_ids import AllowedIds  # noqa: E402
from condor_joblens.profiles import pprof  # noqa: E402
from condor_joblens.profiles.profile import Kind, Profile, Stack, merged  # noqa: E402
from condor_joblens.profiling import starter  # noqa: E402
from condor_joblens.tracer.sensors.profile import HZ  # noqa: E402

CACHE = Path(os.environ.get("JOBLENS_CACHE", "/var/cache/condor_joblens"))
ROOT = "root==0.1a12"
"""ROOT 6.40; its wheels are called alpha by those who make them."""

PHASES = {
    "loop": "ROOT's own loops",
    "callback": "fits of a function of Python",
    "jitted": "code that cling makes",
    "tree": "Python over the entries of a tree",
}
STEP = 0.005
"""Seconds: how exactly the time until tables are there is seen."""

TABLES = ("jl_mappings", "jl_pythons")

SETTLES = 2.0
"""Seconds after which names are there, too."""

JOB = CHECKOUT / "benchmarks" / "pyroot_job.py"


class Looked:
    """What joblensd's part told of the jobs, in windows."""

    def __init__(self, ground: Ground, children: tuple[ProcessStarter, ProcessStarter], folder: int) -> None:
        self._ground, self._windows = ground, dict[int, list[Profile]]()
        self.sampled = Sampled(ground, children[0], children[1], folder, self._keep)

    def _keep(self, run: int, _begun: float, _ended: float, data: bytes, is_off_cpu: bool) -> bool:
        if not is_off_cpu:
            self._windows.setdefault(run, []).append(pprof.decode(data))
        return True

    def window(self, run: int) -> Profile:
        """What was sampled since this was last called."""
        self.sampled.profiles.close_window(run)
        until(lambda: (self.sampled.turn(0.1), self._windows.get(run))[1], 60)
        return merged(self._windows.pop(run))


def python_with_root() -> Path:
    """A Python that has ROOT; made where there is none yet."""
    folder = CACHE / "python" / f"pyroot-{ROOT.partition('==')[2]}-{sys.version_info.major}.{sys.version_info.minor}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", "--only-binary", ":all:", ROOT, "numpy"], check=True)
        (folder / "complete").touch()
    return folder / "bin" / "python"


def started(slot: Slot, python: Path, scratch: Path, phase: str) -> int:
    """The job's process. Whatever ROOT loads at its start is loaded."""
    mine, theirs = os.pipe()
    environment = {"HOME": str(scratch), "PATH": os.environ["PATH"]}  # cling looks for a compiler's headers

    def act() -> None:
        os.dup2(theirs, 1)
        os.chdir(scratch)
        os.setgroups([])
        os.setresgid(OWNER, OWNER, OWNER)
        os.setresuid(OWNER, OWNER, OWNER)
        os.execve(python, [str(python), "-W", "ignore", str(scratch.parent / JOB.name), phase], environment)

    pid = slot.fork(act)
    os.close(theirs)
    with open(mine, "rb") as said:
        if said.readline() != b"begun\n":
            raise SystemExit(f"the job {phase} has not begun")
    return pid


def seconds_until_known(looked: Looked, slot: Slot, run: int, pid: int) -> float:
    """From when the job is sampled until its stacks can be unwound by tables, Python's functions included."""
    sampled, began = looked.sampled, time.monotonic()
    sampled.begin(slot, run)
    until(lambda: (sampled.turn(STEP), all(is_known(sampled, pid, name) for name in TABLES))[1], 60)
    return time.monotonic() - began


def is_known(sampled: Sampled, pid: int, table: str) -> bool:
    """Whether the kernel has the process's entry in that table: its process id comes first in the keys."""
    return any(int.from_bytes(key[:4], "little") == pid for key in sampled.sensor.keys(table, 16))


def share(profile: Profile, is_so: Callable[[Stack], bool]) -> float:
    """Percent of the samples."""
    return 100 * sum(count for stack, count in profile.stacks.items() if is_so(stack)) / max(1, profile.samples)


def has_python(stack: Stack) -> bool:
    """From the module on."""
    return any(frame.kind is Kind.PYTHON and frame.function == "<module>" for frame in stack.frames)


def tell(section: Section, phase: str, took: float, profile: Profile) -> None:
    """Shares of what is missing, so that each target is an upper limit."""
    name = PHASES[phase]
    first = phase == next(iter(PHASES))
    which = "the node's first PyROOT" if first else "a later one"
    section.add(f"{name}: until its tables are there, {which}", took * 1000, "ms", 400 if first else 50)
    section.add(f"{name}: samples", profile.samples, "")
    section.add(f"{name}: stacks that are not whole", 100 * profile.broken / max(1, profile.samples), "%", 3)
    section.add(f"{name}: stacks in part by frame pointers", 100 * profile.guessed / max(1, profile.samples), "%")
    section.add(f"{name}: stacks without their Python functions", 100 - share(profile, has_python), "%", 5)


def measure(section: Section, ground: Ground, looked: Looked, python: Path, scratch: Path, seconds: float) -> None:
    """All phases, one after the other: the first is the first PyROOT that the node has seen.

    Those before stand still meanwhile: tables are kept as long as a job is there that uses them.
    """
    looked.sampled.begin(ground.slot("another"), len(PHASES) + 1)
    jobs = []
    for run, phase in enumerate(PHASES, 1):
        slot = ground.slot(phase)
        pid = started(slot, python, scratch, phase)
        looked.sampled.turn(SETTLES)  # what waited while ROOT began: joblensd is never away for so long
        took = seconds_until_known(looked, slot, run, pid)
        looked.sampled.turn(SETTLES)
        looked.window(run)
        looked.sampled.turn(seconds)
        tell(section, phase, took, looked.window(run))
        os.kill(pid, signal.SIGSTOP)
        jobs.append(pid)
    for pid in jobs:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each job (10)")
    parser.add_argument("--python", type=Path, help="a Python that has ROOT; otherwise one is made, with PyPI's")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("programs are loaded into the kernel: run it as root")
    python = options.python or python_with_root()
    section = Section(
        "pyroot",
        "Level profile: jobs with PyROOT",
        f"ROOT of PyPI ({ROOT}), {HZ} samples a second. A stack is whole if its outermost caller is known to have "
        "none. The sensor is loaded before, by another job.",
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        os.chmod(name, 0o755)
        shutil.copy(JOB, name)
        scratch = Path(name, "scratch")
        scratch.mkdir()
        os.chown(scratch, OWNER, OWNER)
        folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        allowed = AllowedIds(1000, (), 1000, ()).encode()
        children = (
            ProcessStarter("what looks at jobs", allowed, STARTER, STARTER, starter.__name__),
            ProcessStarter("readers of samples", MODULE, READER, READER),
        )
        try:
            with on_ground(f"joblens-bench-{os.getpid()}") as ground:
                looked = Looked(ground, children, folder)
                measure(section, ground, looked, python, scratch, options.seconds)
                looked.sampled.profiles.close()
        finally:
            os.close(folder)
            for each in children:
                each.close()
    section.write()
    return verdict(section.missed)


if __name__ == "__main__":
    sys.exit(main())
