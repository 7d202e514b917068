"""The process that becomes jobs' owners, to look at their jobs: it alone has CAP_SETUID for that.

joblensd starts it while it still is root: `python -m condor_joblens.profiling.starter UID GID IDS`, with a socket as
descriptor 0. For each look it forks a child. That becomes the owner of the folder that comes with the request, who must
be a user whom a job can have. The kernel refuses any other. The child does one thing (look.py) and ends, by SIGALRM if
it has to.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable

from condor_joblens.common import own_process, privilege, seccomp
from condor_joblens.common.starter import SERVES, Starter, serve
from condor_joblens.owner_files.allowed_ids import AllowedIds

CAPABILITIES = ("CAP_SETUID", "CAP_SETGID")

LOOK_SECONDS = 15.0
"""After so long a child ends: what it reads of the job does not answer."""

_MEMORY_BYTES = 512 << 20
_DESCRIPTORS = 256
_CALLS = (*SERVES, "capset", "ioctl", "mbind")
"""Its own, and what its children do before they have their list; numpy's linear algebra places its memory. Those that
may have certain arguments alone are in `OwnerStarter.confine`."""

_CALLS_OF_CHILDREN = (
    *seccomp.INTERPRETERS,
    "recvmsg", "sendmsg",  # its socket, which is there already
    "fstat", "getdents64", "lstat", "newfstatat", "openat", "pread64", "readlink", "readlinkat", "stat", "statx",
)  # fmt: skip


class OwnerStarter(Starter):
    """Forks children that are the owners of folders."""

    given_to_start = 2  # the child's socket, and a folder: whose it is the kernel says

    def __init__(self, channel: socket.socket, allowed: AllowedIds) -> None:
        """On the socket of joblensd."""
        super().__init__(channel, [])
        self._uids = seccomp.SameIds(allowed.least_uid, allowed.uids)
        self._gids = seccomp.SameIds(allowed.least_gid, allowed.gids)
        self._look: Callable[[socket.socket], None] | None = None

    def confine(self) -> int | None:
        """It starts no program, makes no socket, signals nobody, opens files to read alone, and never becomes root."""
        arguments: dict[str, seccomp.Argument] = {
            "clone": seccomp.NO_NAMESPACE,
            "openat": seccomp.ONLY_TO_READ,
            "prlimit64": seccomp.OneOf(0, 0),
            "setgroups": seccomp.OneOf(0, 0),
            "setresgid": self._gids,
            "setresuid": self._uids,
        }
        return seccomp.allow_told(_CALLS, arguments)[1]

    def _run(self, channel: int, folder: int = -1) -> int:
        owner = os.fstat(folder)
        if owner.st_uid not in self._uids or owner.st_gid not in self._gids:
            raise PermissionError(1, f"user {owner.st_uid} is none whom a job can have")
        look = self._loaded()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.dup2(channel, 0)
            os.closerange(3, _DESCRIPTORS)  # its starter has a handful
            own_channel = socket.socket(fileno=0)
            become_owner(owner.st_uid, owner.st_gid)
            look(own_channel)
            code = 0
        finally:
            os._exit(code)

    def _loaded(self) -> Callable[[socket.socket], None]:
        """What a child runs. It is loaded with the first look, and every child has it then."""
        if self._look is None:
            # numpy's linear algebra starts a thread a core when it is imported, and a child has one thread alone
            os.environ["OPENBLAS_NUM_THREADS"] = "1"
            from condor_joblens.profiling import look

            look.warm_up()
            gc.collect()
            gc.freeze()
            self._look = look.main
        return self._look


def become_owner(uid: int, gid: int) -> None:
    """This process is this user for good, and can only read; it ends by itself. Raises OSError."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGALRM, *own_process.SIGNALS):
        signal.signal(number, signal.SIG_DFL)
    for limit, value in (
        (resource.RLIMIT_CPU, int(LOOK_SECONDS)),
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, _DESCRIPTORS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    privilege.become(uid, gid)
    privilege.not_dumpable()
    privilege.end_with_parent(signal.SIGKILL)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS)
    seccomp.allow_only(_CALLS_OF_CHILDREN)


def main(arguments: list[str]) -> int:
    """Serves until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    uid, gid, allowed = int(arguments[0]), int(arguments[1]), AllowedIds.decode(arguments[2])
    sys.dont_write_bytecode = True
    privilege.become_with(uid, gid, CAPABILITIES)
    return serve(lambda channel: OwnerStarter(channel, allowed))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")  # joblensd says the same of its end
        sys.exit(1)
