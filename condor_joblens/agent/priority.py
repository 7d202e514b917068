"""joblensd's priority: a weight above that of jobs. Real-time priority is lent, at the start and the end of a job.

While joblensd reads command lines, answers requests or takes numbers it is a process like any other. So what users can
make it do keeps no core from them. The kernel bounds what is lent: who works for LONGEST_AT_A_TIME without a pause is
ended.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Sequence
from typing import NoReturn

from condor_joblens.common import descriptors, own_process, privilege
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.lender import BORROWERS

MODULE = "condor_joblens.common.lender"

NICE = -20
"""Nothing that happens on the node waits for long for joblensd: it sleeps nearly always, and works for milliseconds."""

LONGEST_AT_A_TIME = 5_000_000
"""Microseconds of work without a pause, with real-time priority, after which the kernel ends a process of ours. Then it
hangs, and what lends the priority is gone. condor_master starts joblensd again, and no number is lost."""


def bound_real_time() -> None:
    """The kernel's bound, for this process and for those that it starts from now on."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_RTTIME, (LONGEST_AT_A_TIME, LONGEST_AT_A_TIME))


def weigh(process: int, log: Callable[[str], None]) -> None:
    """Gives a process of ours more weight than jobs have; what it starts does not inherit that. 0: this process."""
    try:
        os.sched_setscheduler(process, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, process, NICE)
    except OSError as error:
        log(f"no more weight than a job has ({error.strerror}): on a full node some jobs' last numbers come too late")


class PriorityLender:
    """The process that lends it. It is started while joblensd is root, and lends when it knows to whom."""

    def __init__(self, uid: int, gid: int, watch: own_process.Watch = own_process.unwatched) -> None:
        """Starts it as this user; `watch` is told who answers what its list of system calls refuses.

        Raises JobLensError if it does not come up.
        """
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        said, reason = b"", ""
        try:
            with theirs:
                self._process = own_process.start(own_process.command(MODULE, str(uid), str(gid)), theirs)
            said = own_process.hear_ready(self._channel, "the process that lends priority", watch)
        except OSError as error:
            reason = f" ({error.strerror or error})"
        if not said:
            self._channel.close()
            raise JobLensError(f"no real-time priority at a job's start and end{reason}: is there CAP_SYS_NICE?")
        self.pid = self._process.pid

    def lend(self, ring: int, watched: Sequence[int], helper: int) -> None:
        """From now on this process and `helper` (0: none) borrow whenever something comes in the kernel's `ring`.

        For a second after that, also when one of `watched` (lender.WATCHED descriptors) is readable.
        """
        descriptors.send(self._channel, BORROWERS.pack(os.getpid(), helper), [ring, *watched])

    def fileno(self) -> int:
        """Readable only when the process has ended."""
        return self._channel.fileno()

    def lost(self) -> NoReturn:
        """Raises HelperLost, and says how it ended."""
        own_process.lost(self._process, "the process that lends priority")

    def stop(self) -> None:
        """Closes the connection; the process ends then."""
        self._channel.close()
        self._process.wait()


def open_lender(log: Callable[[str], None], watch: own_process.Watch = own_process.unwatched) -> PriorityLender | None:
    """The lender, if this process is root and may; else a line in the log says what that means."""
    if os.geteuid() != 0:
        return None
    user = privilege.unprivileged_user()
    if user is None:
        return None
    try:
        return PriorityLender(user.pw_uid, user.pw_gid, watch)
    except JobLensError as error:
        log(f"{error} On a full node some starts are not answered, and some jobs' last numbers come after their end")
        return None
