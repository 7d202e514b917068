"""The node as joblensd knows it: its configuration, its cgroups, its counters and the runs on it.

All groups of joblensd's state stand on this one (agent/agent.py), so nothing of theirs is here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from condor_joblens.agent.log_once import LogOnce
from condor_joblens.agent.run_guard import Failures, RunGuard
from condor_joblens.common.config import Config
from condor_joblens.jobs.cgroups import Tree
from condor_joblens.jobs.pid_namespace_init import PidNamespaceInit
from condor_joblens.jobs.run_table import Ended, Runs
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.jobs.wrapper_programs import WrapperPrograms
from condor_joblens.model.metrics import cut_words, text
from condor_joblens.owner_files.operations import OwnerFiles
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.sample.collectors import Collectors
from condor_joblens.tracer.backend_protocol import Backend
from condor_joblens.tracer.cgroup_uses import inode_of

OWN_CGROUP = "joblens"
"""If HTCondor makes no cgroups (a machine with v1 and v2 mixed), each job gets one of ours below this one."""

_MICROSECONDS = 1_000_000


@dataclass
class Handles:
    """What this process has open for one run, and what is to be noted about it."""

    path: str  # the cgroup's folder
    files: CgroupFiles
    sandbox: JobSandbox | None = None
    own_name: bytes = b""  # what its own job's ad calls the run, if that is unconfirmed and nobody else is told
    own_owner: str = ""  # and its owner
    notes: dict[str, str] = field(default_factory=dict)  # cause -> sentence, for the row's note
    cpu_before: float = 0.0  # CPU seconds of the cgroup that were an earlier job's
    counted_at_end: bytes = b""  # what the kernel had counted when its slot was found empty; else nothing
    is_counted_to_end: bool = False  # its numbers were taken when its slot was empty, and nobody else was in its cgroup

    def close(self) -> None:
        """Closes all of it."""
        self.files.close()
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None


@dataclass
class Node:
    """The node's configuration, cgroups, counters and runs."""

    config: Config
    log: Callable[[str], None]
    tree: Tree
    bases: list[str]  # cgroups below which slots appear, relative to the mount
    executes: list[str]  # EXECUTE folders of the node's startds
    tracer: Backend
    runs: Runs
    ended: Ended
    files: OwnerFiles  # what is another user's
    wrapper_programs: WrapperPrograms = field(default_factory=WrapperPrograms)
    pid_namespace_init: PidNamespaceInit = field(default_factory=PidNamespaceInit)
    python_hook: str = ""  # the folder that the wrapper puts into PYTHONPATH; empty: unknown
    knobs: dict[str, str] = field(default_factory=dict)  # in force: knob_digests.digests
    handles: dict[int, Handles] = field(default_factory=dict)
    sampling: Any = None  # levels/profile_level.py: Sampling; None: nothing can be sampled
    events_of_unborn: list[np.ndarray] = field(default_factory=list)  # process events ahead of their slot's birth
    events_ahead: list[np.ndarray] = field(default_factory=list)  # process events that are recorded, and not shown
    log_once: LogOnce = field(init=False)
    collectors: Collectors = field(init=False)
    failures: Failures = field(init=False)
    guard: RunGuard = field(init=False)

    def __post_init__(self) -> None:
        self.log_once = LogOnce(self.log)
        self.collectors = Collectors(self)
        self.failures = Failures(self.log)
        self.guard = RunGuard(self, self.failures)

    def key_of(self, run: int) -> str:
        """The run's name in messages to the policy child; unique for as long as joblensd keeps its table."""
        return f"{self.runs.state['cgroup_id'][run]}.{self.runs.rows['run_number'][run]}"

    def run_of(self, key: str) -> int | None:
        """The run of this key, or None if it has ended."""
        cgroup_id, _, number = key.partition(".")
        run = self.runs.by_cgroup.get(int(cgroup_id))
        return run if run is not None and int(self.runs.rows["run_number"][run]) == int(number) else None

    def cgroup_id(self, inode: int) -> int:
        """The id of the cgroup with this inode, for the job that is in it now (tracer/cgroup_uses.py)."""
        counted = self.tracer.counted_id(inode)
        if counted is not None:
            return counted
        return max((known for known in self.runs.by_cgroup if inode_of(known) == inode), default=inode)

    def next_run_number(self) -> int:
        """A number that no run of this node has had: the time in microseconds, or more if the clock went back."""
        living = self.runs.rows["run_number"][self.runs.living()]
        known = max(int(living.max(initial=0)), int(self.ended.rows["run_number"].max(initial=0)))
        return max(int(time.time() * _MICROSECONDS), known + 1)

    def note(self, run: int, without: str = "") -> str:
        """The notes that the run has, as they fit into its row; without that of the cause `without`."""
        notes = self.handles[run].notes.items()
        return text(cut_words("; ".join(note for cause, note in notes if note and cause != without), "note"))

    def update_note(self, run: int) -> None:
        """Writes the row's note from the notes that the run has by cause."""
        self.runs.rows["note"][run] = self.note(run).encode()

    def put_note(self, run: int, cause: str, words: str) -> None:
        """The run's note has these words for the cause from now on; empty: it says nothing of it."""
        notes = self.handles[run].notes
        before, notes[cause] = notes.get(cause, ""), words
        if words != before:
            self.update_note(run)

    def describe(self, run: int) -> str:
        """The run as a line of the log names it: slot and run."""
        row = self.runs.rows[run]
        return f"{text(row['slot'])}: run {text(row['run'])}"


def open_cgroup(path: str, cgroup_id: int) -> int:
    """A descriptor of the cgroup's folder at `path`. Raises OSError if there is none, or if it has another id."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(folder).st_ino == inode_of(cgroup_id):
        return folder
    os.close(folder)
    raise FileNotFoundError(errno.ENOENT, "another cgroup has its name")


def open_files(path: str, cgroup_id: int) -> CgroupFiles:
    """The files of the cgroup at `path`; none if the cgroup there has another id."""
    try:
        folder = open_cgroup(path, cgroup_id)
    except OSError:
        return CgroupFiles({})
    try:
        return CgroupFiles.open(folder)
    finally:
        os.close(folder)


def inode_at(path: str) -> int | None:
    """The inode of the cgroup's folder at `path`; None if there is none."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_ino
    return None
