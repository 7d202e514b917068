"""The processes that joblensd starts while it is root, because afterwards nobody can: what they do takes another user.

If one ends, joblensd ends too: condor_master starts it again as root, and it takes all counters over.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Optional

from condor_joblens.agent import configuration, own_calls, priority
from condor_joblens.agent.config_reader import ConfigReader
from condor_joblens.agent.node import Node
from condor_joblens.agent.priority import PriorityLender
from condor_joblens.agent.refused_calls import RefusedCalls, open_refused_calls
from condor_joblens.common import own_process, privilege
from condor_joblens.common.condor_config import COMMAND, arguments
from condor_joblens.common.daemon import Daemon
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost, Watch, unwatched
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.common.user_names import NAMES, nobodys
from condor_joblens.model.levels import Level
from condor_joblens.owner_files.client import Helper, open_owner_files
from condor_joblens.owner_files.operations import Operations, OwnerFiles
from condor_joblens.policy import child_process
from condor_joblens.policy.confine import policy_ids
from condor_joblens.policy.policy_files import Policies, are_readable, read_policies, read_triggers
from condor_joblens.tracer import map_rights
from condor_joblens.tracer.bpf import Tracer

LOOKS = "condor_joblens.profiling.starter"
READS = "condor_joblens.profiling.sample_reader"
TRACES = "condor_joblens.tracing.starter"
LOADS = "condor_joblens.tracer.loader_process"
RECORDER = "condor_joblens.tracing.recorder_reader"

Identity = Optional[tuple[int, int]]
"""Device and inode of a folder; None if it is missing."""


@dataclass
class Helpers:
    """What works as the owners of folders, and what starts the policy child. Without the latter joblensd starts it."""

    owner_files: OwnerFiles
    policy_children: ProcessStarter | None = None
    lookers: ProcessStarter | None = None  # looks at a job as its owner
    readers: ProcessStarter | None = None  # starts the reader of samples
    tracers: ProcessStarter | None = None  # attaches probes to functions of jobs
    loaders: ProcessStarter | None = None  # loads programs into the kernel; None: joblensd does, if it has the right
    recorder_readers: ProcessStarter | None = None  # starts what makes words of a job's last events
    lender: PriorityLender | None = None
    refused_calls: RefusedCalls | None = None
    config: ConfigReader | None = None
    began_as_root: bool = False
    _confined: dict[str, Identity] | None = None  # folders outside of which owner_files opens nothing

    @property
    def are_complete(self) -> bool:
        """Whether nothing that takes another user, or root, is left for joblensd itself."""
        return isinstance(self.owner_files, Helper) and self.policy_children is not None and self.config is not None

    def cpu_seconds(self) -> float:
        """CPU time of all of them, and of what they have started.

        What asks startds is none of them. It has a bound of its own, and no job's level is why it works.
        """
        starters = self.policy_children, self.lookers, self.readers, self.tracers, self.loaders, self.recorder_readers
        others = self.lender, self.refused_calls, self.config
        return (
            self.owner_files.cpu_seconds()
            + sum(each.cpu_seconds() for each in starters if each is not None)
            + sum(own_process.cpu_seconds(each.pid) for each in others if each is not None)
        )

    def read_policies(self, folders: Sequence[str]) -> Policies:
        """The policies in these folders, JOBLENS_POLICY_DIR. Those of root alone root reads. Raises HelperLost."""
        if self.config is None or are_readable(folders):
            return read_policies(folders)
        return self.config.policies()

    def read_triggers(self, folders: Sequence[str]) -> Policies:
        """The same of triggers, JOBLENS_TRIGGERS."""
        if self.config is None or are_readable(folders):
            return read_triggers(folders)
        return self.config.triggers()

    def watch(self, selector: selectors.BaseSelector) -> None:
        """The loop is told of their ends."""
        if isinstance(self.owner_files, Helper):
            selector.register(self.owner_files, selectors.EVENT_READ, self.owner_files.lost)
        if self.policy_children is not None:
            selector.register(self.policy_children, selectors.EVENT_READ, self.policy_children.receive)
        if self.lender is not None:
            selector.register(self.lender, selectors.EVENT_READ, self.lender.lost)
        if self.loaders is not None:
            selector.register(self.loaders, selectors.EVENT_READ, self.loaders.receive)
        if self.refused_calls is not None:
            selector.register(self.refused_calls, selectors.EVENT_READ, self.refused_calls.receive)
        if self.config is not None:
            reader = self.config
            selector.register(reader, selectors.EVENT_READ, lambda: reader.receive_names(NAMES.learn))

    def set_priorities(self, node: Node, watches: int, callers: int) -> None:
        """joblensd and what works in jobs' folders weigh more than jobs; at a start and an end they wait for nobody.

        Nor do they if, soon afterwards, `watches` (inotify) report that the startd has overwritten a last ad, or
        `callers` (epoll) that a job's wrapper calls.
        """
        helper = self.owner_files.pid if isinstance(self.owner_files, Helper) else 0
        for process in {0, helper}:
            priority.weigh(process, node.log)
        urgent = node.tracer.urgent_fileno()
        if self.lender is None:
            return
        if urgent is not None:
            self.lender.lend(urgent, (watches, callers), helper)
        else:  # numbers come from /proc: nobody tells it when
            self.lender.stop()
            self.lender = None

    def load_for(self, node: Node) -> tuple[str, ...]:
        """From now on another process loads programs, if it is there; the capabilities that joblensd still needs."""
        if node.tracer.source != Tracer.source:
            if self.loaders is not None:
                self.loaders.close()
                self.loaders = None
            return ()
        if self.loaders is None:
            return tuple(privilege.NEEDED)
        waited_for = node.tracer.load_by(self.loaders)
        if waited_for:
            priority.weigh(waited_for, node.log)
        return ()

    def confine(self, node: Node, log_folder: str) -> None:
        """What works as the owners of folders opens nothing any more but what is in EXECUTE and in the log's folder."""
        if not isinstance(self.owner_files, Helper) or not node.tracer.is_exact:
            return  # numbers come from /proc: it has to read what the kernel tells of users' processes
        folders = [*node.executes, log_folder]
        try:
            if self.owner_files.confine(folders):
                self._confined = _identities(folders)
        except (OSError, ValueError) as error:
            node.log(f"the process that works in jobs' folders could open all files of users: {error}")

    def refuse_other_calls(self, log: Callable[[str], None]) -> None:
        """joblensd makes no system call any more but its own (own_calls.py). For good."""
        if self.config is None:
            return  # it is not root, and does itself what helpers do for root
        is_filtered, listener = own_calls.allow_only(loads=self.loaders is None)
        if not is_filtered:
            log("this kernel has no filter of system calls: joblensd could make all of them")
        elif listener is None:
            log("this kernel can't tell which system calls our lists refuse: they fail with EPERM, without a line here")
        watch = unwatched if self.refused_calls is None else self.refused_calls.watch
        watch("joblensd", listener)

    def name_refused_calls(self) -> None:
        """Says now what has been refused until now: it can be why a helper is lost."""
        if self.refused_calls is not None:
            with contextlib.suppress(HelperLost):
                self.refused_calls.receive()

    def check(self, executes: list[str], log_folder: str) -> None:
        """Raises HelperLost if one of these is another folder than at the start, or has another file system in it."""
        confined = self._confined
        if confined is None:
            return
        for path, identity in _identities([*executes, log_folder]).items():
            if confined.get(path) != identity:
                what = "the log's folder" if path == log_folder else "EXECUTE"
                raise HelperLost(f"{what} is another folder than at joblensd's start: {path}")


def _identities(folders: list[str]) -> dict[str, Identity]:
    found: dict[str, Identity] = {}
    for folder in folders:
        try:
            status = os.stat(folder)
        except OSError:
            found[folder] = None
        else:
            found[folder] = status.st_dev, status.st_ino
    return found


def start(daemon: Daemon, max_level: Level, source: str) -> Helpers:
    """Starts them, if this process is root. What can't be had costs a line in the log, and what it is for.

    `max_level` is JOBLENS_MAX_LEVEL: nobody reads samples below profile, or attaches probes below trace. `source` is
    JOBLENS_SOURCE: with procfs nothing is loaded.
    """
    macros, log = daemon.macros, daemon.log
    if os.geteuid() != 0:
        return Helpers(Operations())
    refused_calls = open_refused_calls(log)
    watch = unwatched if refused_calls is None else refused_calls.watch
    owner_files: OwnerFiles = Operations()
    policy_children = None
    try:
        owner_files = open_owner_files(configuration.job_users(macros), log, watch)
    except JobLensError as error:
        log(f"{error}; jobs' ads get no numbers, and their own ads are not read")
    try:
        policy_children = ProcessStarter("policy children", child_process.MODULE, *policy_ids(), watch=watch)
    except JobLensError as error:
        log(f"{error}; no policies are in force")
    lender = priority.open_lender(log, watch)
    lookers = _lookers(macros, log, watch)
    readers = _readers(log, watch) if max_level >= Level.PROFILE else None
    tracers = _tracers(log, watch) if max_level >= Level.TRACE else None
    loaders = _loaders(log, watch) if source != "procfs" else None
    recorder_readers = _recorder_readers(log, watch) if max_level >= Level.TRACE else None
    reader = _config_reader(daemon)
    return Helpers(
        owner_files,
        policy_children,
        lookers,
        readers,
        tracers,
        loaders,
        recorder_readers,
        lender,
        refused_calls,
        reader,
        began_as_root=True,
    )


def _readers(log: Callable[[str], None], watch: Watch) -> ProcessStarter | None:
    try:
        return ProcessStarter("readers of samples", READS, *policy_ids(), watch=watch, have_children=True)
    except JobLensError as error:
        log(f"{error}; no job is sampled")
        return None


def _recorder_readers(log: Callable[[str], None], watch: Watch) -> ProcessStarter | None:
    try:
        return ProcessStarter("readers of last events", RECORDER, *policy_ids(), watch=watch)
    except JobLensError as error:
        log(f"{error}; no job's last events are kept")
        return None


def _tracers(log: Callable[[str], None], watch: Watch) -> ProcessStarter | None:
    user = privilege.unprivileged_user()
    if user is None:
        return None
    try:
        return ProcessStarter("traces", "1", user.pw_uid, user.pw_gid, TRACES, watch, have_children=True)
    except JobLensError as error:
        log(f"{error}; no function is traced")
        return None


def _loaders(log: Callable[[str], None], watch: Watch) -> ProcessStarter | None:
    user = privilege.unprivileged_user()
    if user is None:
        return None
    keeps = f"joblensd keeps {' and '.join(privilege.NEEDED)}"
    are_free = map_rights.are_free()
    if are_free is None:
        return None  # nothing can be loaded, and whoever tries says why
    if not are_free:
        log(f"{keeps}: before Linux 5.19 whoever looks into a map of the kernel needs them")
        return None
    try:
        return ProcessStarter("what loads programs", "-", user.pw_uid, user.pw_gid, LOADS, watch)
    except JobLensError as error:
        log(f"{error}; {keeps}")
        return None


def _lookers(macros: dict[str, str], log: Callable[[str], None], watch: Watch) -> ProcessStarter | None:
    user = privilege.unprivileged_user()
    if user is None:
        return None  # nobody works in jobs' folders either, which was said
    try:
        allowed = configuration.job_users(macros).encode()
        return ProcessStarter("what looks at jobs", allowed, user.pw_uid, user.pw_gid, LOOKS, watch)
    except JobLensError as error:
        log(f"{error}; what jobs wait for is not told")
        return None


def _config_reader(daemon: Daemon) -> ConfigReader | None:
    """It, which from now on reads the configuration for `daemon`, and looks users up."""
    try:
        reader = ConfigReader([COMMAND, *arguments(daemon.pattern)])
    except OSError as error:
        daemon.log(f"what reads HTCondor's configuration can't be started ({error.strerror}): restart after changes")
        return None
    daemon.dump = reader.read
    nobodys()  # from here on joblensd asks no directory service itself
    NAMES.ask = reader.ask_name
    return reader
