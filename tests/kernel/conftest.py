"""Real programs in this machine's kernel: each module has a tracer and a part of the cgroup tree of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import ground as grounds
import nfs
import pytest
from traced_jobs import ALICE, Traces

from condor_joblens.common import own_process
from condor_joblens.common.kernel_limits import WHOLE_STACKS
from condor_joblens.jobs.cgroups import Tree
from condor_joblens.tracer import map_rights

_numbers = itertools.count()
LEFT_OUT = pytest.StashKey[list[pytest.Item]]()


@pytest.fixture(scope="session", autouse=True)
def job_program(tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.geteuid() != 0:
        pytest.fail("these tests load programs into the kernel: run them as root")
    grounds.build_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="session", autouse=True)
def bpffs(job_program: None) -> Iterator[None]:
    """Of this process alone, with all mounts: tests mount, and give the folder of pins to other users."""
    grounds.own_mounts()
    subprocess.run(["mount", "-t", "bpf", "-o", "mode=700", "bpf", grounds.BPFFS], check=True)
    yield
    left = sorted(path.name for path in grounds.BPFFS.glob("joblens*"))
    assert not left, f"tests have left these below {grounds.BPFFS}: {left}"


def _prefix() -> str:
    return f"joblens-test-{os.getpid()}-"


def new_name() -> str:
    return f"{_prefix()}{next(_numbers)}"


@pytest.fixture
def name() -> str:
    """A name that nothing else has, for a cgroup and a folder of pins."""
    return new_name()


@pytest.fixture(scope="module")
def lasting_ground() -> Iterator[grounds.Ground]:
    with grounds.on_ground(new_name()) as ground:
        yield ground


@pytest.fixture
def ground(lasting_ground: grounds.Ground) -> Iterator[grounds.Ground]:
    """A tracer and its base. The tracer serves a whole module, so each test has slot indices that others had before."""
    yield lasting_ground
    lasting_ground.clear()


@pytest.fixture
def slot(ground: grounds.Ground) -> grounds.Slot:
    return ground.slot()


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A file on a tmpfs of its own."""
    where = tmp_path / "mounted"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", where], check=True)
    yield where / "data"
    subprocess.run(["umount", "-l", where], check=True)


own_process.START_SECONDS *= grounds.PATIENCE

TRACES_SINCE = (6, 6)
"""Kernels that put probes into many places at once, of one process."""

RECORDER_SINCE = (5, 12)
"""Kernels whose programs can exchange a number in one step."""

TOO_SLOW_SINCE = (7, 0)
"""Kernels whose guests take too long for stacks of programs."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "guest: run under other kernels as well, see tests/guest")
    config.addinivalue_line("markers", "disk: needs a file system with storage behind it")
    config.addinivalue_line("markers", "controllers: needs the controllers of cgroup v2")
    config.addinivalue_line("markers", "requests: needs the types of the kernel's modules")
    config.addinivalue_line("markers", "fexit: needs programs at the end of the kernel's functions")
    config.addinivalue_line("markers", "free_maps: needs a kernel that lets everybody use maps that he was handed")
    config.addinivalue_line("markers", "samples: needs whole stacks, in a guest that is quick enough for it")
    config.addinivalue_line("markers", "guesses: for kernels that take stacks by frame pointers alone; natively forced")
    config.addinivalue_line("markers", "traces: of level trace, for kernels that can trace functions and shells")
    config.addinivalue_line("markers", "recorder: of the flight recorder, for kernels that have atomic exchanges")
    config.addinivalue_line("markers", "nfs: needs an NFS server and client in the kernel")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Left out by name, not skipped: the guests have what this machine may not have, and run these there.
    has = {
        "controllers": not Tree.find().hybrid,
        "nfs": nfs.is_there(),
        "requests": grounds.tells_types_of_modules(),
        "fexit": grounds.hooks_functions(),
        "samples": WHOLE_STACKS <= grounds.kernel_version() < TOO_SLOW_SINCE or grounds.is_native(),
        "guesses": grounds.kernel_version() < WHOLE_STACKS or grounds.is_native(),
        "traces": grounds.kernel_version() >= TRACES_SINCE,
        "recorder": grounds.kernel_version() >= RECORDER_SINCE,
        "free_maps": grounds.kernel_version() >= map_rights.FREE_SINCE,
    }
    lacking = [marker for marker, there in has.items() if not there]
    left_out = [item for item in items if any(item.get_closest_marker(marker) for marker in lacking)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    config.stash[LEFT_OUT] = left_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for item in config.stash.get(LEFT_OUT, []):
        terminalreporter.write_line(f"left to the guests, for want of what it needs here: {item.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A number is exact, or the tracer says that events were lost.

    From 7.0 on a program at a tracepoint can be preempted, and the kernel then leaves out the same program for another
    task on that CPU. On emulated CPUs, where the time between two ticks is that of a few programs, it does so in many
    tests. On these kernels, and only there, a loss that is declared is no failure. What probes of a trace see is exact:
    they are no tracepoints.
    """
    before = grounds.Ground.latest()
    lost_before = before.lost() if before else 0
    try:
        return (yield)
    except AssertionError:
        ground = grounds.Ground.latest()
        lost = 0 if ground is None else ground.lost() - (lost_before if ground is before else 0)
        is_exact = int(os.uname().release.split(".")[0]) < 7 or pyfuncitem.get_closest_marker("traces")
        if not lost or is_exact:
            raise
        warnings.warn(f"inexact, and {lost} events are declared lost", stacklevel=1)
        return True


@pytest.fixture
def traces(slot: grounds.Slot) -> Iterator[Traces]:
    is_native = os.access("/var/tmp", os.W_OK)  # a guest can write in /tmp alone
    folder = Path(tempfile.mkdtemp(dir="/var/tmp" if is_native else None))
    os.chown(folder, ALICE, ALICE)
    found = Traces(slot, folder)
    yield found
    found.close()
    shutil.rmtree(folder)
