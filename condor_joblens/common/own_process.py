"""Processes that joblensd starts for one purpose each: the same Python, a socket as descriptor 0, nothing else."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn, Optional

from condor_joblens.common import descriptors, privilege

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


_LIST = b"list"

Watch = Callable[[str, Optional[int]], None]
"""Who answers for a process that is named, with the descriptor that its list of system calls gave (seccomp.py)."""


def unwatched(_name: str, listener: int | None) -> None:
    """Nobody answers: what that list refuses fails with ENOSYS, and is not named."""
    if listener is not None:
        os.close(listener)


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


def start_alike(module: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts a module of ours like that; the other end of its descriptor 0 is the caller's. Raises OSError."""
    ours, theirs = socket.socketpair()
    with theirs:
        nothing = subprocess.DEVNULL
        try:
            process = subprocess.Popen(isolated_alike(module), stdin=theirs.fileno(), stdout=nothing, stderr=nothing)
        except OSError:
            ours.close()
            raise
    return process, ours


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


def say_ready(channel: socket.socket, said: bytes, listener: int | None) -> None:
    """Tells joblensd that this process serves from now on, and hands over who answers what its list refuses."""
    descriptors.send(channel, _LIST, [] if listener is None else [listener])
    if listener is not None:
        os.close(listener)
    descriptors.send(channel, said)


def hear_ready(channel: socket.socket, name: str, watch: Watch) -> bytes:
    """What the process `name` has said; empty if it has ended. Raises OSError, also if it takes too long."""
    channel.settimeout(START_SECONDS)
    packet, given = descriptors.receive(channel, len(_LIST), 1)
    if packet:
        watch(name, given[0] if given else None)
    return channel.recv(64) if packet else b""


def limit(open_files: int, file_bytes: int = 0) -> None:
    """For a helper that opens so many files and writes none of more bytes: it starts no process and dumps no core.

    Nobody but root can look into its memory, and it ends with joblensd. Raises OSError.
    """
    for kind, most in (
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, file_bytes),
    ):
        resource.setrlimit(kind, (most, most))
    privilege.not_dumpable()
    privilege.end_with_parent(signal.SIGKILL)


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


def cpu_seconds_with_ended(pid: int) -> float:
    """The same and that of its children which have ended, to 10 ms: proc_pid_stat(5), fields 14 to 17."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = file.read()
    except OSError:
        return 0.0
    return sum(map(int, content.rpartition(b")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds_of_family(pid: int) -> float:
    """The same and that of its children which live, with theirs; nothing of them on a kernel that does not list them.

    Of a process with several threads only the first one's children are known.
    """
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            children = [int(child) for child in file.read().split()]
    except OSError:
        children = []
    return cpu_seconds_with_ended(pid) + sum(map(cpu_seconds_of_family, children))


def lost(process: subprocess.Popen[bytes], what: str) -> NoReturn:
    """Raises HelperLost about a process whose socket is closed, and says how it ended; `what` it does is said first."""
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        raise HelperLost(f"{what} hangs") from None
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    raise HelperLost(f"{what} {how}")


def run(main: Callable[[list[str]], int], *errors: type[Exception]) -> NoReturn:
    """The whole of such a process: `main` with its arguments. What ends it stands in joblensd's log, in a line.

    That is what the kernel refuses, what makes no sense, or one of `errors`. joblensd says of its end the rest.
    """
    expected: tuple[type[Exception], ...] = (OSError, ValueError, *errors)
    try:
        sys.exit(main(sys.argv[1:]))
    except expected as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
