"""Processes that joblensd starts for one purpose each: the same Python, a socket as descriptor 0, nothing else."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

# It may hold the pool's secrets, and configuration: nothing of joblensd's own is passed on.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": ":/etc/localtime",
    "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
}
SIGNALS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGINT, signal.SIGHUP)
START_SECONDS = 30.0
"""For so long joblensd waits at its own start for such a process to be ready."""


class HelperLost(BaseException):
    """A process has ended that only root can start, or can't do what it is for. joblensd begins again as root.

    No guard of a single run is to catch this.
    """


def command(module: str, *arguments: str) -> list[str]:
    """What runs a module of ours, with the Python that runs this one."""
    return [sys.executable, "-s", "-m", module, *arguments]


def isolated_alike(module: str, *arguments: str) -> list[str]:
    """The same for a process that keeps this one's environment: it is isolated (python -I) if this one is."""
    isolated = ["-I"] if sys.flags.isolated else []
    return [sys.executable, *isolated, "-m", module, *arguments]


def start(command: list[str], channel: socket.socket, keep: Collection[int] = ()) -> subprocess.Popen[bytes]:
    """Starts a command with `channel` as descriptor 0, and the descriptors `keep`. Raises OSError."""
    return subprocess.Popen(
        command,
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
        pass_fds=keep,
        cwd="/",
        env=ENVIRONMENT,
    )


def ignore_signals() -> None:
    """A signal to all of joblensd's processes is joblensd's to obey: the others end when it closes their sockets."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far; 0.0 if it is gone, or `pid` is 0."""
    try:
        return time.clock_gettime((~pid << 3) | 2) if pid else 0.0  # the clock that clock_getcpuclockid(3) makes
    except OSError:
        return 0.0


def lost(process: subprocess.Popen[bytes], what: str) -> NoReturn:
    """Raises HelperLost about a process whose socket is closed, and says how it ended; `what` it does is said first."""
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        raise HelperLost(f"{what} hangs") from None
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    raise HelperLost(f"{what} {how}")
