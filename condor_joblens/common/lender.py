"""The process that lends joblensd real-time priority: at the start and the end of a job, for milliseconds.

At the start of a job its wrapper waits for joblensd, 40 ms at most. At its end the starter looks for its last numbers
once, after six. joblensd is a process like any other, and on a full node it may not have a core by then. This one hears
of both from the kernel, and raises the priority of those who then have work to do. It takes it back by its own clock,
whatever they do: its own priority is the higher one.

Between a job's end and its starter's look the startd may put an older ad in the place of the last one. Then there is
less time still. And on a full node it can take longer than a loan until a job's wrapper calls. So for a second
after a start or an end, changes in jobs' folders lend as well, and callers on the control socket.

joblensd starts it while it still is root: `python -m condor_joblens.common.lender UID GID`, with a socket as descriptor
0. It becomes the user UID for good, keeps CAP_SYS_NICE, and leaves itself no call that opens, connects or signals. Then
it gets the kernel's ring, what is readable when there is such a change or caller, and who may borrow.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence

from condor_joblens.common import descriptors, own_process, privilege, readiness, seccomp

CHANNEL = 0
CAPABILITIES = ("CAP_SYS_NICE",)
READY = b"ready"
BORROWERS = struct.Struct("<ii")
"""The one packet from joblensd: process ids of who may borrow, 0 for nobody. With it come the ring and WATCHED."""

WATCHED = 2
"""Descriptors that lend for a second after a start or end: watches on jobs' folders (inotify), and an epoll of callers.
That is readable while somebody waits to be accepted. It accepts nobody, and keeps no socket open."""

LOAN_SECONDS = 0.02
"""From the last start or end on. Who has had no core until then is too late."""

AFTER_SECONDS = 1.0
"""From the last start or end on WATCHED lend as well: by then a starter has looked, and a wrapper has called."""

SHARE = 0.2
"""Of a core: what borrowers may use of it by loans, in the long run. Jobs can start and end many times a second."""

SAVED_SECONDS = 0.5
"""Of CPU time that they may use at once: a thousand jobs that end together."""

WATCHED_SHARE, WATCHED_SAVED_SECONDS = 0.05, 0.1
"""The same for each of WATCHED, apart: anybody may call, and up to HTCondor 23 a job can change its own folder."""

LENT, OWN = 1, 2  # real-time priorities
_CALLS = (*seccomp.INTERPRETERS, "fstat", "newfstatat", "recvmsg", "sendmsg", "sched_setscheduler")
# a mapping of the ring looks at its size, which glibc asks for by newfstatat from 2.33 on


class Urgent:
    """The kernel's ring (jl_urgent in lib/slots.bpf.h). What it holds does not matter, only that it comes."""

    def __init__(self, ring: int) -> None:
        """`ring` is the descriptor of a BPF ring buffer; nothing has come at first. Raises OSError."""
        self.ring = ring
        # linux/bpf.h: a page with the reader's position, which alone may be written, and one with the writer's
        self._read = mmap.mmap(ring, mmap.PAGESIZE)
        self._written = mmap.mmap(ring, mmap.PAGESIZE, prot=mmap.PROT_READ, offset=mmap.PAGESIZE)
        self.take()

    def fileno(self) -> int:
        """Readable when something has come."""
        return self.ring

    def take(self) -> bool:
        """Whether something has come since the last call."""
        position = self._written[:8]
        is_new = position != self._read[:8]
        self._read[:8] = position
        return is_new


class Budget:
    """CPU time that may be used by loans: in the long run a share of a core."""

    def __init__(self, share: float, most: float) -> None:
        """`most` seconds of it are saved up, and are there at first."""
        self._share, self._most = share, most
        self._saved, self._since = most, 0.0

    def has_some(self, now: float) -> bool:
        """Whether there is some left; `now` is time.monotonic()."""
        self._saved = min(self._most, self._saved + self._share * (now - self._since))
        self._since = now
        return self._saved > 0

    def spend(self, seconds: float) -> None:
        """That much has been used."""
        self._saved -= seconds


class Lender:
    """Loans to some processes. `now` (time.monotonic) is given, `used` says how much CPU time they have used so far."""

    def __init__(self, lend: Callable[[bool], None], used: Callable[[], float]) -> None:
        """`lend` raises the priority of all of them, or takes it back."""
        self._lend, self._used = lend, used
        self._for_jobs = self._payer = Budget(SHARE, SAVED_SECONDS)
        self._for_watched = [Budget(WATCHED_SHARE, WATCHED_SAVED_SECONDS) for _ in range(WATCHED)]
        self._used_before = 0.0
        self._until: float | None = None  # None: nothing is lent
        self._watches_until = 0.0

    def urgent(self, now: float) -> None:
        """A job has started or ended: priority is lent, or for longer, if there is some of it left."""
        self._watches_until = now + AFTER_SECONDS
        self._lend_from(self._for_jobs, now)

    def is_watching(self, which: int, now: float) -> bool:
        """Whether that one of WATCHED is a reason to lend when it is readable. If not, nobody need look at it."""
        return self._until is None and now < self._watches_until and self._for_watched[which].has_some(now)

    def readable(self, which: int, now: float) -> None:
        """That one of WATCHED is readable."""
        if self.is_watching(which, now):
            self._lend_from(self._for_watched[which], now)

    def timeout(self, now: float) -> float | None:
        """Seconds until `expire` has something to do."""
        return None if self._until is None else max(0.0, self._until - now)

    def expire(self, now: float) -> None:
        """Takes back what was lent, if it is time."""
        if self._until is not None and now >= self._until:
            self._lend(False)
            self._settle()
            self._until = None

    def _lend_from(self, budget: Budget, now: float) -> None:
        self._settle()
        if not budget.has_some(now):
            return
        if self._until is None:
            self._used_before = self._used()
            self._lend(True)
        self._payer, self._until = budget, now + LOAN_SECONDS

    def _settle(self) -> None:
        """What has been used of a loan is no longer there."""
        if self._until is not None:
            used = self._used()
            self._payer.spend(used - self._used_before)
            self._used_before = used


def set_priority(processes: Sequence[int], is_lent: bool) -> None:
    """Real-time priority for these processes, or none; children of theirs have none in any case."""
    policy = os.SCHED_RR if is_lent else os.SCHED_OTHER
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # joblensd is about to notice
            os.sched_setscheduler(process, policy | os.SCHED_RESET_ON_FORK, os.sched_param(LENT if is_lent else 0))


def main(arguments: list[str]) -> int:
    """Lends until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    uid, gid = (int(argument) for argument in arguments)
    channel = socket.socket(fileno=CHANNEL)
    os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(OWN))
    listener = confine(uid, gid)
    own_process.say_ready(channel, READY, listener)
    packet, given = descriptors.receive(channel, BORROWERS.size, 1 + WATCHED)
    if not packet:
        return 0
    processes = [process for process in BORROWERS.unpack(packet) if process > 0]
    lender = Lender(
        lambda is_lent: set_priority(processes, is_lent),
        lambda: sum(own_process.cpu_seconds(process) for process in processes),
    )
    ring, *watched = given
    serve(channel, Urgent(ring), watched, lender)
    return 0


def confine(uid: int, gid: int) -> int | None:
    """Gives up all else; what answers for the calls that it may not make. Raises OSError."""
    privilege.become_with(uid, gid, CAPABILITIES)
    own_process.limit(16)
    return seccomp.allow_told(_CALLS)[1]  # where there is none, it still has no right but to change priorities


def serve(channel: socket.socket, urgent: Urgent, watched: Sequence[int], lender: Lender) -> None:
    """Lends until the channel is closed: at each start and end, and if one of `watched` is readable soon after.

    What is read from these is joblensd's to read.
    """
    gc.freeze()
    while True:
        now = time.monotonic()
        awaited: list[readiness.Waitable] = [
            each for which, each in enumerate(watched) if lender.is_watching(which, now)
        ]
        ready = readiness.readable([channel, urgent, *awaited], lender.timeout(now))
        if channel in ready:
            return
        if urgent in ready and urgent.take():
            lender.urgent(time.monotonic())
        for which, each in enumerate(watched):
            if each in ready:
                lender.readable(which, time.monotonic())
        lender.expire(time.monotonic())


if __name__ == "__main__":
    own_process.run(main, struct.error)
