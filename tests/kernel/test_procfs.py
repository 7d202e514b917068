"""The tracer without BPF over this machine's own /proc and cgroups, of version 2 and of version 1."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from condor_joblens.common import readiness
from condor_joblens.owner_files.operations import Operations
from condor_joblens.sample.cgroup_files import CgroupFiles, read_cpu, read_slow
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.procfs import ProcfsTracer

NAME = "condor_var_lib_condor_execute_slot1_1@host"
WRITTEN = 3 << 20
JOB = f"""
import os, sys, tempfile, time
sys.stdin.readline()
began = time.process_time()
with tempfile.TemporaryFile() as file:
    os.write(file.fileno(), b"x" * {WRITTEN})
while time.process_time() < began + 0.4:
    sum(range(10000))
memory = bytearray({64 << 20})
print(time.process_time() - began, flush=True)
sys.stdin.readline()
"""


def mounts(kind: str) -> dict[str, Path]:
    """Controller -> mount point; of version 2 the one without a controller."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    trees = [line for line in lines if line[2] == kind]
    if kind == "cgroup2":
        return {"": Path(trees[0][1])}
    return {controller: Path(line[1]) for line in trees for controller in line[3].split(",")}


@dataclass
class Tree:
    """A base of our own in each tree that matters, the first of which is the one that is watched."""

    bases: list[Path]

    def slot(self) -> Path:
        for base in self.bases:
            (base / NAME).mkdir()
        return self.bases[0] / NAME

    def enter(self, pid: int) -> None:
        for base in self.bases:
            (base / NAME / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        for base in self.bases:
            with contextlib.suppress(FileNotFoundError):
                (base / NAME).rmdir()


@pytest.fixture(params=["version 2", "version 1"])
def tree(request: pytest.FixtureRequest) -> Iterator[Tree]:
    if request.param == "version 2":
        points = list(mounts("cgroup2").values())
    else:
        found = mounts("cgroup")
        points = [found[controller] for controller in ("cpuacct", "memory") if controller in found]
        if len(points) < 2:
            pytest.skip("this machine has no cgroups of version 1")
    tree = Tree([point / f"joblens-test-{os.getpid()}" for point in points])
    for base in tree.bases:
        base.mkdir()
    yield tree
    tree.remove()
    for base in tree.bases:
        base.rmdir()


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    job = subprocess.Popen([sys.executable, "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield job
    job.kill()
    job.communicate()


def step(job: subprocess.Popen[str]) -> None:
    assert job.stdin
    job.stdin.write("\n")
    job.stdin.flush()


def wait_for(tracer: ProcfsTracer, kind: int) -> list[int]:
    """Kinds of events until one of this kind has come."""
    kinds: list[int] = []
    while kind not in kinds:
        assert readiness.readable([tracer.fileno()], 30), f"no event of kind {kind} in 30 s, only {kinds}"
        kinds += tracer.events()["kind"].tolist()
    return kinds


def test_a_job_from_its_birth_to_its_end(tree: Tree, job: subprocess.Popen[str]) -> None:
    tracer = ProcfsTracer(8, [str(tree.bases[0])], "a test", Operations())
    folder = tree.slot()
    tree.enter(job.pid)
    (event,) = tracer.events()
    assert (event["kind"], event["pid"], event["cgroup_id"]) == (map_layout.BORN, job.pid, folder.stat().st_ino)
    slot = int(event["slot"])
    tracer.begin_at_next_exec(slot)
    step(job)
    assert job.stdout
    seconds = float(job.stdout.readline())
    tracer.count_living()
    living = tracer.living[slot]
    assert WRITTEN <= living["call_write_bytes"] < WRITTEN + 1000
    assert (living["processes"], living["threads"]) == (1, 1)
    assert living["anon_pages"] * os.sysconf("SC_PAGE_SIZE") >= 64 << 20
    check_files(folder, seconds, len(tree.bases) > 1)
    step(job)
    kinds = wait_for(tracer, map_layout.MAIN_EXITED)
    assert map_layout.CGROUP_GONE not in kinds
    job.wait()
    tracer.count_living()
    assert tracer.counters["call_write_bytes"][slot] >= WRITTEN, "what it had stays its slot's"
    tree.remove()
    assert map_layout.CGROUP_GONE in wait_for(tracer, map_layout.CGROUP_GONE)
    tracer.close()


def check_files(folder: Path, seconds: float, version_1: bool) -> None:
    directory = os.open(folder, os.O_RDONLY)
    files = CgroupFiles.open(directory)
    os.close(directory)
    assert files.is_version_1 == version_1
    # it was in the cgroup before it looked, and a machine that stands still then is in one of the two alone
    assert seconds - 0.02 < read_cpu([files])["cpu_seconds"][0] < seconds + 1
    if version_1:
        memory = read_slow([files])
        assert memory["memory_cgroup_bytes"][0] >= 64 << 20
        assert memory["memory_cgroup_peak_bytes"][0] >= memory["memory_cgroup_bytes"][0]
        assert memory["memory_limit_bytes"][0] == -1
    files.close()


def test_numbers_of_another_user_s_process_are_read_as_that_user(tree: Tree) -> None:
    """Root without CAP_SYS_PTRACE may not read /proc/PID/io of others: their owner may."""
    script = """
import os, sys
import condor_joblens.common.privilege as privilege
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.owner_files.client import Helper
from condor_joblens.tracer.process_stat import FIELDS, Process
helper = Helper(AllowedIds(1000, (), 1000, ()), 999, 999)
privilege.keep_only(tuple(privilege.NEEDED))
numbers = Process(int(sys.argv[1]), helper).look()
try:
    open(f"/proc/{sys.argv[1]}/io").read()
except PermissionError:
    print(numbers[FIELDS.index("call_read_bytes")])
"""
    job = subprocess.Popen(["setpriv", "--reuid=12345", "--regid=12346", "--clear-groups", "sleep", "60"])
    try:
        while Path(f"/proc/{job.pid}/comm").read_text() != "sleep\n":
            pass
        done = subprocess.run([sys.executable, "-c", script, str(job.pid)], capture_output=True, text=True, check=True)
        assert int(done.stdout) > 0
    finally:
        job.kill()
        job.wait()


def test_a_slot_that_was_there_before_is_taken(tree: Tree, job: subprocess.Popen[str]) -> None:
    folder = tree.slot()
    tree.enter(job.pid)
    tracer = ProcfsTracer(8, [str(tree.bases[0])], "a test", Operations())
    slot = tracer.take(folder.stat().st_ino, 1)
    assert slot is not None and tracer.living["processes"][slot] == 1
    assert np.array_equal(np.flatnonzero(tracer.counters["cgroup_id"]), [slot])
    job.kill()
    job.wait()
    wait_for(tracer, map_layout.MAIN_EXITED)
    tracer.close()
