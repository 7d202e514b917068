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

from condor_joblens.common import allocator
from condor_joblens.common.config import parse, read_macros
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.log import open_log
from condor_joblens.export.exporter import Exporter

USER = "joblens"

_MACROS = "^(JOBLENS_.*|LOG|FULL_HOSTNAME)$"
_STOP = {signal.SIGTERM, signal.SIGQUIT, signal.SIGINT}
_SIGNALS = {signal.SIGHUP, *_STOP}

# linux/prctl.h
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_LAST_CAPABILITY = 63


def log_path(macros: dict[str, str]) -> str:
    """Where the configuration wants the log; empty where it says nothing."""
    folder = macros.get("LOG")
    return macros.get("JOBLENS_EXPORT_LOG") or (f"{folder}/JobLensExportLog" if folder else "")


def give_memory_back() -> None:
    """Lets large buffers go back to the system at once, and threads share what is small.

    Else each thread's own arena keeps the most that it ever had: twice the memory with four sinks.
    """
    allocator.tune({allocator.ARENA_MAX: 2, allocator.MMAP_THRESHOLD: 256 << 10})


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


def make_spool(folder: str, user: int, group: int) -> None:
    """Makes the folder, and those above it that are missing, for this user alone. Raises JobLensError."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    try:
        for path in reversed(missing):
            os.mkdir(path, 0o700)
            os.chown(path, user, group, follow_symlinks=False)
    except OSError as error:
        raise JobLensError(f"{path} can't be made: {error.strerror}: make it, or set JOBLENS_SPOOL_DIR") from None


def main() -> int:
    """Runs until SIGTERM; SIGHUP reads the configuration anew. Returns 0, or 1 where it can't run (any longer)."""
    forget_secrets()
    give_memory_back()
    signals = receive_signals()
    log = open_log(None)
    try:
        ids = user_ids()
        macros = read_macros(_MACROS)
        log = open_log(log_path(macros), ids)
        if ids:
            try:
                make_spool(parse(macros)[0].spool_dir, *ids)
            except JobLensError as error:
                log(str(error))
            give_up_privileges(*ids)
    except JobLensError as error:
        log(f"joblens-export can't run: {error}")
        return 1
    log(f"joblens-export runs as user id {os.getuid()}, pid {os.getpid()}")
    exporter = Exporter(log, macros)
    while signals.recv(1)[0] not in _STOP:
        log("reconfiguring")
        try:
            macros = read_macros(_MACROS)
        except JobLensError as error:
            log(f"{error}; the configuration stays as it was")
            continue
        log.reopen(log_path(macros))
        exporter.reconfigure(macros)
    exporter.stop()
    log("joblens-export stops")
    return 1 if exporter.exhausted else 0
