"""The processes that joblensd starts while it is root, because afterwards nobody can: what they do takes another user.

If one ends, joblensd ends too: condor_master starts it again as root, and it takes all counters over.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional

from condor_joblens.agent import configuration, machine
from condor_joblens.agent.node import Node
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.owner_files.client import Helper, open_owner_files
from condor_joblens.owner_files.operations import Operations, OwnerFiles
from condor_joblens.policy import child_process
from condor_joblens.policy.confine import policy_ids

Identity = Optional[tuple[int, int]]
"""Device and inode of a folder; None if it is missing."""


@dataclass
class Helpers:
    """What works as the owners of folders, and what starts the policy child. Without the latter joblensd starts it."""

    owner_files: OwnerFiles
    policy_children: ProcessStarter | None = None
    _confined: dict[str, Identity] | None = None  # folders outside of which owner_files opens nothing

    def watch(self, selector: selectors.BaseSelector) -> None:
        """The loop is told of their ends."""
        if isinstance(self.owner_files, Helper):
            selector.register(self.owner_files, selectors.EVENT_READ, self.owner_files.lost)
        if self.policy_children is not None:
            selector.register(self.policy_children, selectors.EVENT_READ, self.policy_children.receive)

    def raise_priority(self, log: Callable[[str], None]) -> None:
        """What writes a job's last numbers waits for nobody, as joblensd itself."""
        if isinstance(self.owner_files, Helper):
            machine.raise_priority(log, self.owner_files.pid)

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


def start(macros: dict[str, str], log: Callable[[str], None]) -> Helpers:
    """Starts them, if this process is root. What can't be had costs a line in the log, and what it is for."""
    if os.geteuid() != 0:
        return Helpers(Operations())
    owner_files: OwnerFiles = Operations()
    policy_children = None
    try:
        owner_files = open_owner_files(configuration.job_users(macros), log)
    except JobLensError as error:
        log(f"{error}; jobs' ads get no numbers, and their own ads are not read")
    try:
        policy_children = ProcessStarter("policy children", child_process.MODULE, *policy_ids())
    except JobLensError as error:
        log(f"{error}; no policies are in force")
    return Helpers(owner_files, policy_children)
