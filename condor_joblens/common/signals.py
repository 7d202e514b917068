"""Signals: what they are called, and those that condor_master sends its daemons, as bytes in a socket."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator

from condor_joblens.common import readiness

STOP = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT)

INTERRUPT = 0.01
"""Seconds after which a system call within `interrupting` is interrupted. Whoever sends a descriptor over a socket
decides what closing it takes: minutes, for a TCP connection with SO_LINGER whose peer does not read."""


def signal_name(number: int) -> str:
    """SIGTERM; a number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """What waits within is interrupted, as often as it waits. SIGALRM must have a handler."""
    signal.setitimer(signal.ITIMER_REAL, INTERRUPT, INTERRUPT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Stop(Exception):
    """A signal of STOP has come."""


class HandOver(Stop):
    """SIGUSR1 has come: a successor is about to take over what goes on."""


class Signals:
    """SIGTERM, SIGQUIT, SIGINT, SIGUSR1 and SIGHUP, for a loop that looks at them between two pieces of work.

    Not a mask and sigwait: numpy's library starts threads when it is imported, and a signal could hit one of them.
    """

    def __init__(self, *interrupting: int) -> None:
        """`interrupting` are signals that mean nothing, but interrupt a system call of the main thread."""
        self.socket, self._write = socket.socketpair()
        self.socket.setblocking(False)
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        for number in (*STOP, signal.SIGUSR1, signal.SIGHUP, *interrupting):
            signal.signal(number, lambda *_: None)

    def take(self) -> bool:
        """Whether SIGHUP has come since the last call: the configuration is to be read again. Raises Stop, HandOver."""
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = self.socket.recv(4096)
        if any(number in numbers for number in STOP):
            raise Stop
        if signal.SIGUSR1 in numbers:
            raise HandOver
        return signal.SIGHUP in numbers

    def wait(self, seconds: float | None = None) -> bool:
        """Sleeps until a signal comes, for `seconds` at most; then the same as `take`."""
        readiness.readable([self.socket], seconds)
        return self.take()
