"""The ground the kernel's tests stand on: a private part of the cgroup tree, a tracer on it, and jobs that know
what they did."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from condor_joblens.common.config import Config
from condor_joblens.jobs.cgroups import Tree, depths_of
from condor_joblens.jobs.run_table import Runs
from condor_joblens.sample import io_counters as level_io
from condor_joblens.sample import kernel_counters
from condor_joblens.sample.collectors import Collectors
from condor_joblens.tracer.bpf import Tracer

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
JOB = Path()  # see build_job
TRACED_OPTIONS = ("-lstdc++", "-fomit-frame-pointer", "-pthread")
BPFFS = Path("/sys/fs/bpf")
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
"""sched.h, mount.h"""

_libc = ctypes.CDLL(None, use_errno=True)
_stay: list[mmap.mmap] = []

IO_COLUMNS = {
    "rchar": "io_call_read_bytes",
    "wchar": "io_call_write_bytes",
    "syscr": "io_read_calls",
    "syscw": "io_write_calls",
    "read_bytes": "io_storage_read_bytes",
    "write_bytes": "io_storage_write_bytes",
}
"""Of /proc/PID/io, and the metric that counts the same."""

COUNTS = ("forked", "executed", "exited", "failed", "signalled", "core_dumps")


def kernel_node(tracer: Tracer, runs: Runs, config: Config) -> Any:
    """As much of joblensd's node as the collectors of kernel counters need; if one of them fails, the test does."""

    def fails(line: str) -> None:
        raise AssertionError(line)

    node = SimpleNamespace(tracer=tracer, runs=runs, config=config, handles={}, log=fails)
    node.collectors = Collectors(node)
    its = node.collectors
    its.all = [its.kernel, its.endpoints, its.servers, its.io]
    return node


def build_job(folder: Path) -> None:
    """Puts the job program, compiled where its source is newer, into `folder`, and takes it from there from now on."""
    global JOB
    built = job_program()
    JOB = folder / built.name
    shutil.copy(built, JOB)
    stays_in_memory(JOB)


def stays_in_memory(path: Path) -> None:
    """The kernel need not read this file from its disk again, which it would count for a job, while we live.

    Raises OSError.
    """
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    if _libc.mlock(ctypes.c_void_p(np.frombuffer(pages, np.uint8).ctypes.data), ctypes.c_size_t(len(pages))):
        raise OSError(ctypes.get_errno(), "mlock", str(path))
    _stay.append(pages)


def job_program() -> Path:
    """What jobs run."""
    return compiled("test_job", ["job.c", "job_io.c"], "-static", "-pthread", "-luring")


def fuse_program() -> Path:
    """The server of our own FUSE file system."""
    return compiled("test_fuse_fs", ["fuse_fs.c"], "-I/usr/include/fuse3", "-pthread", "-lfuse3")


def preload_library() -> Path:
    """A library for LD_PRELOAD, with work of its own."""
    return compiled("test_preload.so", ["preload.c"], "-shared", "-fPIC", "-pthread", "-ldl")


ACTIVATE_SOCKET = Path("/tmp") / f"joblens-test-{CHECKOUT.name}.sock"
"""Where the wrapper's helper of these tests calls."""


def helper_program() -> Path:
    """The wrapper's helper, with patience for an emulated machine."""
    definitions = [f'-DJOBLENS_SOCKET="{ACTIVATE_SOCKET}"', "-DJOBLENS_BUDGET_MS=60000"]
    return compiled("test_activate", ["../../hooks/joblens_activate.c"], "-static", *definitions)


NODE = Path("/tmp") / f"joblens-node-{CHECKOUT.name}"
"""The folder of a whole joblensd of these tests (whole_node.py)."""


def node_helper_program() -> Path:
    """The wrapper's helper that calls that joblensd, with the same patience."""
    definitions = [f'-DJOBLENS_SOCKET="{NODE}/run/activate.sock"', "-DJOBLENS_BUDGET_MS=60000"]
    return compiled("test_node_activate", ["../../hooks/joblens_activate.c"], "-static", *definitions)


def traced_program() -> Path:
    """traced.cc."""
    return compiled("test_traced", ["traced.cc"], *TRACED_OPTIONS)


def like_go_program() -> Path:
    """The same with a section as Go's linker makes it."""
    return compiled("test_like_go", ["traced.cc"], *TRACED_OPTIONS, "-DSECTION=.go.buildinfo")


def steps_library() -> Path:
    """What steps_program loads."""
    return compiled("libsteps.so", ["steps.c"], "-shared", "-fPIC", "-fomit-frame-pointer")


def steps_program() -> Path:
    """It forks, and its children load a library."""
    return compiled("test_steps", ["steps.c"], "-DPROGRAM")


def init_program() -> Path:
    """What HTCondor runs as the first process of a pid namespace."""
    return compiled("test_pid_ns_init", ["pid_ns_init.c"], "-static", "-pthread")


def hang_program() -> Path:
    """What stands still; with the distribution's C++ library, as jobs have it."""
    return compiled("test_hang", ["hang.cc"], "-lstdc++", "-fomit-frame-pointer", "-pthread")


def profiled_programs() -> dict[str, Path]:
    """What is sampled, by how it is compiled: none has a frame pointer."""
    ways = {
        "shared": (),
        "static": ("-static",),
        "stripped": ("-s",),
        "realigned": ("-mstackrealign",),
    }
    common = ("-lstdc++", "-fomit-frame-pointer", "-pthread", "-fno-optimize-sibling-calls")
    return {way: compiled(f"test_profiled_{way}", ["profiled.cc"], *common, *options) for way, options in ways.items()}


def guessed_programs() -> dict[str, Path]:
    """With frame pointers in functions of their own, for kernels that have no other way to callers."""
    options = ("-lstdc++", "-pthread", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
    names = ("profiled", "waiting", "crashed")
    return {name: compiled(f"test_guessed_{name}", [f"{name}.cc"], *options) for name in names}


def waiting_program() -> Path:
    """waiting.cc."""
    return compiled("test_waiting", ["waiting.cc"], "-lstdc++", "-fomit-frame-pointer", "-pthread")


def crashed_program() -> Path:
    """What a signal kills; without frame pointers, and with the distribution's C++ library."""
    return compiled("test_crashed", ["crashed.cc"], "-lstdc++", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")


def compiled(name: str, sources: list[str], *options: str) -> Path:
    """The program `name`, compiled where one of its sources is newer."""
    paths, built = [HERE / source for source in sources], CHECKOUT / "build" / name
    if not built.exists() or built.stat().st_mtime < max(path.stat().st_mtime for path in paths):
        built.parent.mkdir(exist_ok=True)
        part = built.with_name(f"{built.name}.{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-Wall", "-o", part, *paths, *options], check=True)
        part.rename(built)
    return built


@dataclass
class Ended:
    """What a job knows after its end: all of it and its descendants, from its exec on."""

    status: int  # as wait(2) has it
    usage: resource.struct_rusage
    io: dict[str, int]  # by the fields of /proc/PID/io
    said: dict[str, int]  # what it printed


class Job:
    """A process in a slot, started as a starter does it: fork, enter the cgroup, exec."""

    def __init__(self, cgroup: Cgroup, arguments: list[str], before_exec: Callable[[], object]) -> None:
        self._cgroup = cgroup
        self._out, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                cgroup.enter()
                os.dup2(out, 1)
                before_exec()
                os.execv(JOB, ["job", *arguments])
            finally:
                os._exit(97)
        os.close(out)

    def has_begun(self) -> bool:
        """Whether it runs its program already."""
        return os.readlink(f"/proc/{self.pid}/exe") == str(JOB)

    def kill(self) -> None:
        """By SIGKILL, with all that is in its cgroup."""
        for pid in self._cgroup.pids():
            with suppress(ProcessLookupError):  # one that ended by itself since it was listed
                os.kill(pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Its end, and what it and the kernel know about it."""
        with open(self._out, encoding="ascii") as out:
            lines = out.read().splitlines()
        said = {name: int(value) for name, value in (line.split(":") for line in lines)}
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        # of the zombie: everything that it and all whom it reaped have used
        io = {name: value - said.get(name, 0) for name, value in proc_io(self.pid).items()}
        _, status, usage = os.wait4(self.pid, 0)
        return Ended(status, usage, io, said)


@dataclass
class Cgroup:
    """A cgroup in which jobs run."""

    path: Path

    @property
    def cgroup_id(self) -> int:
        return self.path.stat().st_ino

    def pids(self) -> list[int]:
        """Who is in it, sub-cgroups apart."""
        return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]

    def enter(self) -> None:
        """Moves the calling process."""
        (self.path / "cgroup.procs").write_text("0")

    def start(self, *arguments: object, before_exec: Callable[[], object] = lambda: None) -> Job:
        """A job with these arguments for job.c."""
        return Job(self, [str(argument) for argument in arguments], before_exec)

    def run(self, *arguments: object) -> Ended:
        """A job to its end."""
        return self.start(*arguments).wait()

    def fork(self, act: Callable[[], object]) -> int:
        """A child of ours in here that does this and execs nothing; its process id."""
        return forked(lambda: (self.enter(), act()))

    def call(self, act: Callable[[], object]) -> None:
        """As `fork`, and waits for its good end."""
        _, status = os.waitpid(self.fork(act), 0)
        assert status == 0


@dataclass
class Slot(Cgroup):
    """A slot's cgroup and what is counted for it."""

    tracer: Tracer

    @property
    def index(self) -> int:
        index = self.tracer.slot_of(self.cgroup_id)
        assert index is not None, f"{self.path} is not counted"
        return index

    def totals(self, connections: bool = False) -> dict[str, float]:
        """The columns that are measured for the slot, in the order that agent and kernel have agreed on."""
        at = slice(self.index, self.index + 1)
        ended = self.tracer.counters[at].copy()
        self.tracer.count_living()
        open_ones = np.zeros(1, self.tracer.connections.dtype)
        if connections:
            self.tracer.count_connections()
            open_ones = self.tracer.connections[at]
        columns = kernel_counters.columns(ended, self.tracer.living[at], open_ones)
        return {name: values[0].item() for name, values in columns.items()}

    def start_io(self) -> None:
        """Level io from now on."""
        assert self.tracer.sensors["io"].start(self.index), self.tracer.missing

    def io_totals(self) -> dict[str, float]:
        """The columns of level io that are not 0."""
        at_io, counted = self.tracer.sensors["io"].counters(np.array([self.index]))
        assert at_io.all()
        return {name: values[0].item() for name, values in level_io.columns(counted).items() if values[0]}

    def io(self) -> dict[str, int]:
        """Its I/O by the names of /proc/PID/io."""
        totals = self.totals()
        return {name: int(totals[column]) for name, column in IO_COLUMNS.items()}


def assert_io_of(slot: Slot, ended: Ended) -> None:
    """The slot has what its job knows of itself.

    The kernel may have to read the job's program from its disk. That is the slot's from the exec on. The job can look
    from its main on.
    """
    counted, known = slot.io(), dict(ended.io)
    program = counted.pop("read_bytes") - known.pop("read_bytes")
    assert counted == known
    assert 0 <= program <= ended.said["read_bytes"]


class Ground:
    """A base of our own in the cgroup tree, and a tracer that watches below it."""

    _latest: Callable[[], Ground | None] = staticmethod(lambda: None)

    def __init__(self, name: str, max_slots: int = 64, **options: Any) -> None:
        Ground._latest = weakref.ref(self)
        self._lost: int | None = None
        self.name = name
        self.tree = Tree.find()
        self.pins = BPFFS / name
        self.base = self.place(name)
        self.base.mkdir(exist_ok=True)
        if not self.tree.hybrid:
            self.delegate(self.base)
        self.tracer = Tracer(max_slots, self.pins, **options)
        self.watch(self.base)

    @staticmethod
    def place(name: str) -> Path:
        """Where the base of a ground of this name is."""
        return Path(Tree.find().mount) / name

    @staticmethod
    def delegate(cgroup: Path) -> None:
        """What is made below the cgroup gets every controller that it has."""
        for controller in (cgroup / "cgroup.controllers").read_text().split():
            (cgroup / "cgroup.subtree_control").write_text(f"+{controller}")

    def watch(self, *bases: Path) -> None:
        """Slots appear directly below these from now on."""
        names = [str(base.relative_to(self.tree.mount)) for base in bases]
        self.tracer.watch_below([base.stat().st_ino for base in bases], depths_of(names))

    def slot(self, name: str = "condor_slot1") -> Slot:
        """A new slot, as the starter makes one."""
        path = self.base / name
        path.mkdir()
        return Slot(path, self.tracer)

    @staticmethod
    def latest() -> Ground | None:
        """The one that was made last, if it is still there."""
        return Ground._latest()

    def lost(self) -> int:
        """Events that its tracer says were lost, also after its end."""
        if self._lost is not None:
            return self._lost
        return self.tracer.lost() + sum(sensor.lost() for sensor in self.tracer.sensors.values())

    def clear(self) -> None:
        """No slot is left, and nothing that a test has set or has not taken."""
        for path in self.base.iterdir():
            if path.is_dir():
                remove_cgroup(path)
        self.tracer.settle()
        for index in np.flatnonzero(self.tracer.counters["cgroup_id"]).tolist():
            self.tracer.stop(index)
        self.tracer.settle()
        self.watch(self.base)
        while len(self.tracer.events()) or len(self.tracer.processes.take()):
            pass

    def clean(self) -> None:
        """Nothing of ours stays."""
        remove_cgroup(self.base)
        self._lost = self.lost()
        self.tracer.close()


def forked(act: Callable[[], object]) -> int:
    """A child of ours that does this and ends, with code 1 where it fails; its process id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def leave_the_cpu() -> None:
    """Back on it a thread of a slot is watched, from a moment that the scheduler tells.

    Of one that is unknown at its exec each tracer takes the moment by itself; the machine can stand still in between.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    while resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw == before:  # a sleep can be over before it has left
        time.sleep(0.001)


def in_child(act: Callable[[], object]) -> None:
    """Does it in a process of its own, which can give up what we need later."""
    assert os.waitpid(forked(act), 0)[1] == 0


def kernel_version() -> tuple[int, int]:
    """Of the kernel that runs, e.g. (6, 12)."""
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int(minor)


def tells_types_of_modules() -> bool:
    """Whether programs can look at the structures of this kernel's modules."""
    return kernel_version() >= (5, 11)


def hooks_functions() -> bool:
    """Whether it is certain that the kernel runs programs at the end of its functions: what it says may be refused."""
    return not is_native() and os.uname().machine == "x86_64"


def known_to_be_missing() -> set[str]:
    """Parts that this kernel does not have."""
    uring = {"io_uring"} if kernel_version() < (5, 19) else set()
    return uring | (set() if tells_types_of_modules() else {"requests to FUSE", "requests to NFS"})


def is_native() -> bool:
    """Whether this is no emulated guest, in which a million calls take minutes."""
    return "guest_command=" not in Path("/proc/cmdline").read_text()


PATIENCE = 1 if is_native() else 10
"""How many times as long as natively something may take that is on its way: CPUs are emulated in a guest."""


def proc_io(pid: int | str) -> dict[str, int]:
    """/proc/PID/io, without what was taken back."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(":") for line in lines) if name in IO_COLUMNS}


def remove_cgroup(path: Path) -> None:
    """A cgroup with all below it, and whoever is in there: one that is listed may have ended by itself since."""
    if not path.exists():
        return
    for folder, _, _ in os.walk(path, topdown=False):
        procs = Path(folder) / "cgroup.procs"
        for _ in range(int(6000 * PATIENCE)):
            pids = procs.read_text().split()
            for pid in pids:
                if int(pid):
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
            try:
                os.rmdir(folder)
            except OSError:
                time.sleep(0.01)
            else:
                break
        else:
            raise AssertionError(f"{folder} can't be removed: {procs.read_text()}")


def until(what: Callable[[], object], seconds: float = 60.0 * PATIENCE) -> None:
    """Waits until it is true; for as long as something is on its way, not for how fast it is."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.005)


CALLS = {
    "x86_64": {
        "read": 0, "recvfrom": 45, "wait4": 61, "fcntl": 72, "flock": 73, "clock_nanosleep": 230, "openat": 257,
    },
    "aarch64": {
        "fcntl": 25, "flock": 32, "openat": 56, "read": 63, "clock_nanosleep": 115, "recvfrom": 207, "wait4": 260,
    },
}  # fmt: skip
"""Numbers of system calls, by what uname(2) calls the machine."""


def until_asleep(pid: int, call: str = "") -> None:
    """Waits until a process has left its CPU, in that system call if one is named."""
    number = CALLS[os.uname().machine].get(call)

    def is_asleep() -> bool:
        words = Path(f"/proc/{pid}/syscall").read_text().split()
        return words[0] != "running" and (number is None or int(words[0]) == number)

    until(is_asleep)


@contextmanager
def on_ground(name: str, max_slots: int = 64, **options: Any) -> Iterator[Ground]:
    """A ground, removed at the end."""
    with bpffs():
        ground = Ground(name, max_slots, **options)
        try:
            yield ground
        finally:
            ground.clean()


def own_mounts() -> None:
    """From now on what this process mounts is seen by it and its children alone, and goes with them."""
    if _libc.unshare(CLONE_NEWNS) or _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "this process can't have mounts of its own")


@contextmanager
def bpffs() -> Iterator[None]:
    """A place for pins; on a machine that has none, as one that was never used for this, it goes again at the end."""
    there = BPFFS.is_mount()
    if not there:
        subprocess.run(["mount", "-t", "bpf", "-o", "mode=700", "bpf", BPFFS], check=True)
    try:
        yield
    finally:
        if not there:
            subprocess.run(["umount", BPFFS], check=True)


if __name__ == "__main__":
    # for guests, which can't write in the checkout
    job_program()
    fuse_program()
    preload_library()
    hang_program()
    profiled_programs()
    guessed_programs()
    waiting_program()
    crashed_program()
    helper_program()
    node_helper_program()
    init_program()
    if os.uname().machine == "x86_64":
        traced_program()
        like_go_program()
        steps_library()
        steps_program()
