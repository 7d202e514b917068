"""The processes that joblensd starts while it is root, because afterwards nobody can: what they do takes another user.

If one ends, joblensd ends too: condor_master starts it again as root, and it takes all counters over.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.agent import configuration, machine
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.owner_files.client import Helper, open_owner_files
from condor_joblens.owner_files.operations import Operations, OwnerFiles
from condor_joblens.policy import child_process
from condor_joblens.policy.confine import policy_ids


@dataclass(frozen=True)
class Helpers:
    """What works as the owners of folders, and what starts the policy child; None: joblensd does that itself."""

    owner_files: OwnerFiles
    policy_children: ProcessStarter | None = None

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
