"""The process that becomes jobs' owners, to look at their jobs: it alone has CAP_SETUID for that.

joblensd starts it while it still is root: `python -m condor_joblens.profiling.starter UID GID IDS`, with a socket as
descriptor 0. For each look it forks a child. Its effective user becomes the owner of the folder that comes with the
request, who must be a user whom a job can have. The kernel refuses any other. The child then reads its request, does
that one thing (look.py, or a verb of owner_commands/) and ends, by SIGALRM if it has to. No job can keep it from that.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from condor_joblens.common import descriptors, own_process, privilege, seccomp
from condor_joblens.common.starter import SERVES, Starter, serve
from condor_joblens.owner_commands import children, tail
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.profiling import peek, peek_values

CAPABILITIES = ("CAP_SETUID", "CAP_SETGID")

LOOK_SECONDS = 15.0
"""After so long a child ends that looks: what it reads of the job does not answer. A verb has a time of its own."""

MOST_REQUEST = 180_000
MOST_GIVEN = 2

_MEMORY_BYTES = 512 << 20
_DESCRIPTORS = 256
_CALLS = (*SERVES, "capset", "ioctl", "pidfd_open", "pidfd_send_signal")
"""Its own, and what its children do before they have their list, which can't have more. Those that may have certain
arguments alone are in `OwnerStarter.confine`."""

_TALKS = (*seccomp.INTERPRETERS, "recvmsg", "sendmsg", "sendto")  # over its socket, which is there already

VERBS = {
    **children.VERBS,
    "peek": children.Verb(
        peek.main,
        (*children.READS, "fstatfs"),
        tail.FOLLOWED_SECONDS + children.SECONDS,
        tail.FOLLOWED_CPU_SECONDS + children.SECONDS,
    ),
    peek_values.VERB: children.Verb(
        peek_values.main,
        (*children.READS, "fstatfs"),
        peek_values.SECONDS + children.SECONDS,
        peek_values.CPU_SECONDS + children.SECONDS,
    ),
}
"""What a child does besides looks, by the verb of a request."""

Look = Callable[[socket.socket, dict[str, Any], Sequence[int]], None]


class OwnerStarter(Starter):
    """Forks children that are the owners of folders."""

    given_to_start = 2  # the child's socket, and a folder: whose it is the kernel says

    def __init__(self, channel: socket.socket, allowed: AllowedIds) -> None:
        """On the socket of joblensd."""
        super().__init__(channel, [])
        self._uids = seccomp.EffectiveId(allowed.least_uid, allowed.uids)
        self._gids = seccomp.SameIds(allowed.least_gid, allowed.gids)
        self._look: Look | None = None
        self._owners: dict[int, tuple[int, int]] = {}  # process id -> user and group

    def confine(self) -> int | None:
        """It starts no program, makes no socket, opens files to read alone, and never becomes root.

        It signals processes of the user that it has become, by descriptors of them alone.
        """
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
            self._owners = {each: self._owners[each] for each in self._pids.values()}
            self._owners[pid] = owner.st_uid, owner.st_gid
            return pid
        code = 1
        try:
            os.dup2(channel, 0)
            os.closerange(3, _DESCRIPTORS)  # its starter has a handful
            own_channel = socket.socket(fileno=0)
            act_as_owner(owner.st_uid, owner.st_gid)
            answer(own_channel, look)
            code = 0
        finally:
            os._exit(code)

    def _kill(self, pid: int) -> None:
        """Another child does it, with the owner's rights, whom the owner can't stop. Raises OSError."""
        killer = os.fork()
        if killer == 0:
            try:
                privilege.act_as(*self._owners[pid])
                signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)
            finally:
                os._exit(0)
        os.waitpid(killer, 0)

    def _loaded(self) -> Look:
        """What a child runs. It is loaded with the first look, and every child has it then."""
        if self._look is None:
            from condor_joblens.profiling import look

            look.warm_up()
            gc.collect()
            gc.freeze()
            self._look = look.main
        return self._look


def act_as_owner(uid: int, gid: int) -> None:
    """This process has this user's rights for good, and can only read; it ends by itself. Raises OSError.

    The user's processes, and so the job that is looked at, can't stop it: its real user is still its starter's. A look
    at a job's threads gives that up later. If the job stops it then, its starter can end it.
    """
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGALRM, *own_process.SIGNALS):
        signal.signal(number, signal.SIG_DFL)
    for limit, value in (
        (resource.RLIMIT_CPU, int(max(LOOK_SECONDS, *(verb.cpu_seconds for verb in VERBS.values())))),
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, _DESCRIPTORS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    privilege.act_as(uid, gid)
    privilege.not_dumpable()
    privilege.end_with_parent(signal.SIGKILL)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS)


def answer(channel: socket.socket, look: Look) -> None:
    """Reads the one request that comes, gives up what that does not need, and answers it.

    The request is a JSON object with a `verb` of owner_commands/children.py; without one it is a look.
    """
    packet, given = descriptors.receive(channel, MOST_REQUEST, MOST_GIVEN)
    request = json.loads(packet)
    verb = VERBS[request["verb"]] if "verb" in request else None
    seconds, cpu_seconds = (LOOK_SECONDS, LOOK_SECONDS) if verb is None else verb.times(request)
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), int(cpu_seconds)))
    if verb is not None:
        memory = verb.memory(request, _MEMORY_BYTES)
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if verb is None:
        if "programs" not in request:
            # a container's files can be on FUSE of the owner's own, which is for who is that user in every way
            privilege.become_effective()
        seccomp.allow_only((*_TALKS, "setitimer", "fstatfs", *children.READS))
        look(channel, request, given)
        return
    privilege.call_process(f"joblens {request['verb']}")  # Death names who sent a signal by this
    signal.setitimer(signal.ITIMER_REAL, seconds)
    seccomp.allow_only((*_TALKS, *verb.calls))
    children.run(verb, channel, request, given)


def main(arguments: list[str]) -> int:
    """Serves until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    uid, gid, allowed = int(arguments[0]), int(arguments[1]), AllowedIds.decode(arguments[2])
    sys.dont_write_bytecode = True
    privilege.become_with(uid, gid, CAPABILITIES)
    return serve(lambda channel: OwnerStarter(channel, allowed))


if __name__ == "__main__":
    own_process.run(main)
