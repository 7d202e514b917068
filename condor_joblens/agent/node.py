"""What joblensd holds while it runs: its configuration and the rooms it wires together."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.agent.levels.budgets import OwnCpu
from condor_joblens.common.config import Config
from condor_joblens.common.privilege import as_owner
from condor_joblens.jobs.cgroups import Tree
from condor_joblens.jobs.run_table import Ended, Runs
from condor_joblens.jobs.sandbox import Sandbox
from condor_joblens.jobs.saved_ads import KeptAds
from condor_joblens.jobs.update_ad_watches import Watches
from condor_joblens.policy.client import PolicyChild
from condor_joblens.policy.decision import Decision
from condor_joblens.policy.slot_facts import Fact, SlotFacts
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.sample.endpoint_lists import Listings
from condor_joblens.shm.artifacts import ArtifactWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer
from condor_joblens.tracer.backend import Backend

OWN_CGROUP = "joblens"
"""Where HTCondor makes no cgroups (a machine with v1 and v2 mixed), each job gets one of ours below this one."""


@dataclass
class Handles:
    """What this process has open for one run."""

    path: str  # the cgroup's folder
    files: CgroupFiles
    sandbox: Sandbox | None = None
    ad_version: tuple[int, int] | None = None  # of .update.ad as we left it
    watch: int | None = None  # on the folder of .update.ad
    before: np.void | None = None  # the row with which the same run left its last cgroup
    job_ad: bytes | None = None  # with which the policies were asked about it, until they have answered
    slot_facts: dict[str, Fact] | None = None  # what the slot's ad says; None: not looked at yet
    slot_ad_at: float = 0.0  # CLOCK_MONOTONIC when it was looked at after a change
    of_job: bytes = b""  # and what the startd has of the job
    asked: bool = False  # the policies have been asked about it
    notes: dict[str, str] = field(default_factory=dict)  # why -> sentence, for the row's note

    def close(self) -> None:
        """Closes all of it."""
        self.files.close()
        if self.sandbox is not None:
            self.sandbox.close()
            self.sandbox = None


@dataclass
class LastAd:
    """The last ad of a run that is over, for as long as its starter may look for it.

    By name: an open folder would keep its file system from being unmounted.
    """

    execute: str
    starter: int
    text: str
    version: tuple[int, int] | None  # of .update.ad as we left it
    until: float  # CLOCK_MONOTONIC


@dataclass
class Review:
    """What is on its way between joblensd and the policies (agent/levels/policy_rounds.py)."""

    next_round: float = 0.0  # CLOCK_MONOTONIC
    known: deque[str] = field(default_factory=deque)  # keys of runs that are to be asked about in this round
    unknown: deque[str] = field(default_factory=deque)  # and of those that the child does not know
    of: int = 1  # jobs of this round
    slot_ads: set[int] = field(default_factory=set)  # runs whose slot's ad has been written by the startd
    held: dict[int, Decision] = field(default_factory=dict)  # run -> what is decided and must wait its time
    failed: set[str] = field(default_factory=set)  # keys of runs on which these policies failed: not asked again
    lives: int = 0  # of PolicyChild.lives the one to which all jobs were told
    aside: dict[str, str] | None = None  # files that were set aside when that was noted; None: not yet
    said: set[str] = field(default_factory=set)  # lines about mistakes of these policies

    def over(self, run: int, key: str) -> None:
        """The run is over."""
        self.held.pop(run, None)
        self.slot_ads.discard(run)
        self.failed.discard(key)


SAID = 1000
"""Lines that are remembered as said."""


@dataclass
class Node:
    """One node's state; the functions of this package work on it."""

    config: Config
    log: Callable[[str], None]
    tree: Tree
    bases: list[str]  # cgroups below which slots appear, relative to the mount
    executes: list[str]  # EXECUTE folders of the node's startds
    tracer: Backend
    policy: PolicyChild
    runs: Runs
    ended: Ended
    rows: Writer
    events: EventWriter
    artifacts: ArtifactWriter
    watches: Watches
    handles: dict[int, Handles] = field(default_factory=dict)
    by_watch: dict[int, int] = field(default_factory=dict)  # watch -> run
    last_ads: dict[int, LastAd] = field(default_factory=dict)  # watch -> what must stay there
    lost: int = 0  # events of the kernel's that have been told of as lost
    next_connections: float = 0.0  # CLOCK_MONOTONIC
    unmet: set[int] = field(default_factory=set)  # runs with open connections that the last walk did not meet
    attached: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # programs, missing parts: as was told last
    next_costs: float = 0.0  # CLOCK_MONOTONIC
    said: set[str] = field(default_factory=set)
    review: Review = field(default_factory=Review)
    own_cpu: OwnCpu = field(default_factory=lambda: OwnCpu(time.process_time(), time.monotonic()))
    slot_facts: SlotFacts = field(default_factory=SlotFacts)
    kept: KeptAds = field(init=False)
    endpoints: Listings = field(init=False)

    def __post_init__(self) -> None:
        self.endpoints = Listings(self.tracer, self.config.endpoint_names)
        self.kept = KeptAds(os.path.join(self.config.run_dir, "ads"))

    def key_of(self, run: int) -> str:
        """What the run is called towards the policies."""
        return f"{self.runs.state['cgroup_id'][run]}.{self.runs.rows['run_number'][run]}"

    def run_of(self, key: str) -> int | None:
        """The run that is called so, None where it is over."""
        cgroup_id, _, number = key.partition(".")
        run = self.runs.by_cgroup.get(int(cgroup_id))
        return run if run is not None and int(self.runs.rows["run_number"][run]) == int(number) else None

    def enter(self, run: int, sandbox: Sandbox | None) -> None:
        """The run's folder is known: from now on it is watched for files that others put there."""
        handles = self.handles[run]
        handles.sandbox = sandbox
        if sandbox is not None:
            with as_owner(sandbox.uid, sandbox.gid):
                handles.watch = self.watches.add(sandbox.ads)
            if handles.watch is not None:
                self.by_watch[handles.watch] = run
                # from its checkpoint on a job is in the same folder again, which has the same watch
                self.last_ads.pop(handles.watch, None)

    def leave(self, run: int) -> None:
        """Closes all that is open for the run."""
        handles = self.handles.pop(run)
        self.unmet.discard(run)
        self.policy.forget(self.key_of(run))
        self.kept.forget(int(self.runs.state["cgroup_id"][run]))
        self.review.over(run, self.key_of(run))
        if handles.watch is not None and self.by_watch.get(handles.watch) == run:
            del self.by_watch[handles.watch]
            if handles.watch not in self.last_ads:
                self.watches.remove(handles.watch)
        handles.close()

    def say_once(self, message: str, said: set[str] | None = None) -> None:
        """Logs a line the first time, by `said` where the node's own memory is not meant."""
        said = self.said if said is None else said
        if message in said:
            return
        if len(said) >= SAID:
            said.clear()  # one job after the other can cause lines: the others must still be heard
        said.add(message)
        self.log(message)


def open_files(path: str, cgroup_id: int) -> CgroupFiles:
    """The files of the cgroup at `path`; none of them where it is no longer the one with this id."""
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return CgroupFiles({})
    try:
        return CgroupFiles.open(folder) if os.fstat(folder).st_ino == cgroup_id else CgroupFiles({})
    finally:
        os.close(folder)


def cgroup_id_of(path: str) -> int | None:
    """The id of the cgroup at `path`: the inode of its folder."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_ino
    return None
