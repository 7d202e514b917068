"""joblens-export: the process that has the network and nothing else. It wires the shared memory to the sinks.

condor_master starts it as root. It becomes the user joblens, who owns nothing and may read the rows, before
it opens anything but its log, which lies in HTCondor's folder.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

from condor_joblens.config import Config, parse, read_macros
from condor_joblens.errors import JobLensError
from condor_joblens.log import Log, open_log
from condor_joblens.shm.reader import Reader, is_stale
from condor_joblens.sinks import Rows, Sink
from condor_joblens.sinks.prometheus import PrometheusSink

USER = "joblens"

SINKS: tuple[Callable[[Config, Rows, Callable[[str], None]], Sink], ...] = (PrometheusSink,)
"""What is started, each with the configuration, the rows and the log."""

_MACROS = "^(JOBLENS_.*|LOG)$"
_STOP = {signal.SIGTERM, signal.SIGQUIT, signal.SIGINT}
_SIGNALS = {signal.SIGHUP, *_STOP}

# linux/prctl.h
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_LAST_CAPABILITY = 63


class SharedRows:
    """The rows in shared memory, for all sinks; joblensd may come and go."""

    def __init__(self, path: str, period: float) -> None:
        self._path, self._period = path, period
        self._lock = threading.Lock()
        self._reader: Reader | None = None

    def __call__(self) -> tuple[np.ndarray, float]:
        """A copy of all rows, and when they were taken. Raises JobLensError where none are fresh."""
        with self._lock:
            if self._reader is None:
                self._reader = Reader(self._path)
            rows, taken = self._reader.rows()
        if is_stale(taken, time.time(), self._period):
            raise JobLensError(f"{self._path} has no new rows: joblensd is dead or hangs")
        return rows, taken


class Exporter:
    """The sinks, running by the configuration in force."""

    def __init__(self, log: Log, macros: dict[str, str]) -> None:
        self._log = log
        self._config: Config | None = None
        self._sinks: list[Sink] = []
        self._take(macros)

    def reconfigure(self) -> None:
        """Reads the configuration anew; sinks start anew where it changed."""
        try:
            macros = read_macros(_MACROS)
        except JobLensError as error:
            self._log(f"{error}; the configuration stays as it was")
            return
        self._log.reopen(log_path(macros))
        self._take(macros)

    def _take(self, macros: dict[str, str]) -> None:
        config, problems = parse(macros)
        for problem in problems:
            self._log(problem)
        if config == self._config:
            return
        self.stop()
        self._config = config
        rows = SharedRows(f"{config.run_dir}/rows", config.period)
        self._sinks = [make(config, rows, self._log) for make in SINKS]
        for sink in self._sinks:
            sink.start()

    def stop(self) -> None:
        """Ends all sinks."""
        for sink in self._sinks:
            sink.stop()


def log_path(macros: dict[str, str]) -> str:
    """Where the configuration wants the log; empty where it says nothing."""
    folder = macros.get("LOG")
    return macros.get("JOBLENS_EXPORT_LOG") or (f"{folder}/JobLensExportLog" if folder else "")


def forget_secrets() -> None:
    """Takes the pool's session key, with which condor_master starts its daemons, out of the environment."""
    for name in ("CONDOR_PRIVATE_INHERIT", "CONDOR_INHERIT"):
        os.environ.pop(name, None)


def user_ids() -> tuple[int, int] | None:
    """User and group id of `joblens`; None where this process is not root and stays who it is."""
    if os.getuid() != 0:
        return None
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        raise JobLensError(f"there is no user {USER} on this machine: run systemd-sysusers") from None
    return user.pw_uid, user.pw_gid


def give_up_privileges(user: int, group: int) -> None:
    """Becomes user and group for good: no capability is left, and no program that is run can bring one."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for those that this kernel does not have
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or os.geteuid() == 0:
        raise JobLensError("the kernel does not let joblens-export give up its privileges")
    # an orphan would keep the address that the next condor_master's exporter wants
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def receive_signals() -> socket.socket:
    """A socket from which the number of every signal of ours can be read, a byte each.

    Not by a mask and sigwait: numpy's library has threads since its import, and one of them could be hit.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach())
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    return reader


def main() -> int:
    """Runs until SIGTERM; SIGHUP reads the configuration anew. Returns 0, or 1 where it can't run."""
    forget_secrets()
    signals = receive_signals()
    log = open_log(None)
    try:
        ids = user_ids()
        macros = read_macros(_MACROS)
        log = open_log(log_path(macros), ids)
        if ids:
            give_up_privileges(*ids)
    except JobLensError as error:
        log(f"joblens-export can't run: {error}")
        return 1
    log(f"joblens-export runs as user id {os.getuid()}, pid {os.getpid()}")
    exporter = Exporter(log, macros)
    while signals.recv(1)[0] not in _STOP:
        log("reconfiguring")
        exporter.reconfigure()
    exporter.stop()
    log("joblens-export stops")
    return 0
