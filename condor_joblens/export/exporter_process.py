"""The exporter as the supervisor's child: started, started again after it has ended, and told what comes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import NoReturn, Optional

from condor_joblens.common.own_process import isolated_alike
from condor_joblens.common.privilege import become, end_with_parent
from condor_joblens.export import handover

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds before it is started again; twice as many each time, until it has run for LONGEST_PAUSE."""

_STOP_SECONDS = 30.0
"""For its orderly end; then it is killed."""


class ExporterProcess:
    """One exporter at a time."""

    def __init__(self, log: Callable[[str], None], ids: Optional[tuple[int, int]]) -> None:
        """`ids`: user and group id that it becomes; None: it is what this process is."""
        self._log, self._ids = log, ids
        self._pid = 0
        self._to: Optional[socket.socket] = None
        self._since = self._due = 0.0
        self._pause = FIRST_PAUSE

    def seconds(self) -> Optional[float]:
        """Until it has to be started; None while it runs."""
        return None if self._pid else max(0.0, self._due - time.monotonic())

    def start_if_due(self, macros: Mapping[str, str], listener: Optional[socket.socket]) -> None:
        """Starts it unless it runs, or its pause is not over."""
        if self.seconds() != 0:
            return
        self._to, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handover.send(self._to, macros, listener)
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _become_exporter(child_end, parent, self._ids)
        child_end.close()
        self._since = time.monotonic()

    def tell(self, macros: Mapping[str, str], listener: Optional[socket.socket]) -> None:
        """Hands these to it, if it runs."""
        if self._to is not None:
            handover.send(self._to, macros, listener)

    def signal(self, number: int) -> None:
        """Sends it a signal. If it does not run, its pause is over: what is told may be what it needs."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)
        else:
            self._due, self._pause = 0.0, FIRST_PAUSE

    def reap(self) -> None:
        """Takes note if it has ended, and of when to start it again."""
        if not self._pid:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            return
        now = time.monotonic()
        if now - self._since >= LONGEST_PAUSE:
            self._pause = FIRST_PAUSE
        code = os.waitstatus_to_exitcode(status)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self._log(f"the exporter, process {pid}, {how}: it is started again in {self._pause:g} s")
        self._due, self._pause = now + self._pause, min(LONGEST_PAUSE, 2 * self._pause)
        self._forget()

    def stop(self) -> None:
        """Ends it in order, and kills it if that takes too long."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._pid:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                self._forget()
            elif time.monotonic() > deadline:
                self._log(f"the exporter, process {self._pid}, does not end within {_STOP_SECONDS:g} s: it is killed")
                self.signal(signal.SIGKILL)
                deadline = float("inf")
            else:
                time.sleep(0.02)

    def _forget(self) -> None:
        self._pid = 0
        if self._to is not None:
            self._to.close()
            self._to = None


def _become_exporter(handed: socket.socket, parent: int, ids: Optional[tuple[int, int]]) -> NoReturn:
    """In the child: gives up all privileges, and is the exporter."""
    try:
        if ids:
            become(*ids)
        # an orphan would keep the address that the next supervisor wants
        end_with_parent(signal.SIGTERM)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is ready: it then takes the newest configuration
        if os.getppid() == parent:
            handed.set_inheritable(True)
            program = isolated_alike("condor_joblens.export", str(handed.fileno()))
            os.execv(program[0], program)
    except OSError as error:
        sys.stderr.write(f"joblens-export can't be started: {error}\n")
    finally:
        os._exit(127)
