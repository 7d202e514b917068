"""The process that works as other users: it alone has CAP_SETUID, and can use it for files, never to become root.

joblensd starts it while it still is root: `python -m condor_joblens.owner_files.helper IDS UID GID MEMORY`, with a
socket as descriptor 0. It becomes the user UID for good, keeps CAP_SETUID and CAP_SETGID, and leaves itself few system
calls. Of those that change a user only setfsuid and setfsgid are among them, with the ids of IDS as their argument.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import socket
from collections.abc import Iterator

from condor_joblens.common import descriptors, landlock, own_process, privilege, readiness, seccomp
from condor_joblens.owner_files import messages
from condor_joblens.owner_files.ad_leases import AdLeases
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.owner_files.messages import BadPacket, Request, Verb
from condor_joblens.owner_files.operations import AdWrite, Operations
from condor_joblens.publish import updatead

CHANNEL = 0
CAPABILITIES = ("CAP_SETUID", "CAP_SETGID")
DESCRIPTORS = 512
READY, UNFILTERED = b"ready", b"unfiltered"

_CALLS = (
    *seccomp.INTERPRETERS,
    # the socket, which is there already: none can be made or connected
    "recvmsg", "sendmsg",
    # files
    "fchmod", "fchown", "fstat", "inotify_add_watch", "linkat", "lstat", "mkdirat", "newfstatat", "openat", "openat2",
    "pread64",
    "pwrite64", "renameat", "renameat2", "stat", "statx", "unlinkat",
    # to give up even more (Verb.CONFINE)
    "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
)  # fmt: skip


LOG_NAMES = ("Log", "Log.old")
"""How the names of HTCondor's logs end."""


class Users:
    """Who may be worked for, as Python and as the kernel's filter have it."""

    def __init__(self, allowed: AllowedIds, uid: int, gid: int) -> None:
        """`uid` and `gid` are this process's own, to which it returns."""
        self._own_group = gid
        self._named = frozenset(allowed.uids)
        self.uids = seccomp.Ids(allowed.least_uid, (*allowed.uids, uid))
        self.gids = seccomp.Ids(allowed.least_gid, (*allowed.gids, gid))

    @contextlib.contextmanager
    def as_owner(self, uid: int, gid: int) -> Iterator[None]:
        """As privilege.as_owner. Raises PermissionError for anybody else."""
        if uid not in self.uids:
            raise PermissionError(1, f"user {uid} is none whom a job can have")
        with privilege.file_ids(uid, self.group(gid)):
            yield

    def check_log(self, path: str) -> None:
        """Raises PermissionError but for a log in a folder of HTCondor's, and not of anybody who may have a job."""
        if not path.endswith(LOG_NAMES) or os.stat(os.path.dirname(path)).st_uid not in self._named:
            raise PermissionError(1, f"{path} is no log of HTCondor's")

    def group(self, gid: int) -> int:
        """The group that a file of this group gets: a group of the system, as disk, is not worked for."""
        return gid if gid in self.gids else self._own_group


def main(arguments: list[str]) -> int:
    """Serves until joblensd closes the socket; exit code 0 then."""
    own_process.ignore_signals()
    allowed, uid, gid = AllowedIds.decode(arguments[0]), int(arguments[1]), int(arguments[2])
    channel = socket.socket(fileno=CHANNEL)
    memory = mmap.mmap(int(arguments[3]), messages.MEMORY_BYTES, prot=mmap.PROT_READ)
    os.close(int(arguments[3]))
    users = Users(allowed, uid, gid)
    updatead.with_attribute(b"A = 1\n", "[B = 1]")  # what Python makes ready at its first use is ready then
    filtered, listener = confine(users, uid, gid)
    own_process.say_ready(channel, READY if filtered else UNFILTERED, listener)
    gc.freeze()
    leases = AdLeases()
    operations = Operations(users.as_owner, users.group, leases=leases)
    while True:
        ready = readiness.readable([channel], leases.timeout())
        if ready and not serve(channel, operations, memory, users):
            break
        leases.expire()
    return 0


def confine(users: Users, uid: int, gid: int) -> tuple[bool, int | None]:
    """Gives up all else; whether this kernel filters system calls, and what answers for those. Raises OSError."""
    privilege.become_with(uid, gid, CAPABILITIES)
    own_process.limit(DESCRIPTORS, messages.MEMORY_BYTES)
    return seccomp.allow_told(_CALLS, {"setfsuid": users.uids, "setfsgid": users.gids})


def serve(channel: socket.socket, operations: Operations, memory: mmap.mmap, users: Users) -> bool:
    """Does what one request asks; False at the end of the connection. Raises BadPacket: joblensd does not send such."""
    packet, given = descriptors.receive(channel, messages.MAX_PACKET, messages.MAX_ADS)
    opened: list[int] = []
    try:
        if not packet:
            return False
        request = messages.decode(packet, len(given))
        if request.verb is Verb.LEASE_ADS:
            operations.lease_ads(given)
            return True
        try:
            if request.verb is Verb.OPEN_LOG:
                users.check_log(request.path)
            answer = b"\0" + _answer(request, given, operations, memory, opened)
        except OSError as error:
            answer = bytes([min(error.errno or 5, 255)])
        descriptors.send(channel, answer, list(dict.fromkeys(opened)))
    finally:
        for descriptor in {*given, *opened}:
            os.close(descriptor)
    return True


def _answer(request: Request, given: list[int], operations: Operations, memory: mmap.mmap, opened: list[int]) -> bytes:
    """Does it; what it opens is appended to `opened`. Raises OSError."""
    verb = request.verb
    if verb is Verb.OPEN_FOLDERS:
        opened.extend(operations.open_folders(request.path, request.number) or ())
    elif verb is Verb.OPEN_AD:
        file = operations.open_ad(given[0], request.ad, request.not_owners)
        opened.extend([] if file is None else [file])
    elif verb is Verb.WRITE_ADS:
        return messages.encode_written(operations.write_ads(_writes(request, given, memory)))
    elif verb is Verb.WRITE_REPORT:
        result = operations.write_report(given[0], request.report, memory[: request.size])
        return bytes([messages.REPORT_RESULTS.index(result)])
    elif verb is Verb.ADD_NOTICE:
        return bytes([messages.NOTICE_RESULTS.index(operations.add_notice(given[0], memory[: request.size]))])
    elif verb is Verb.PROGRESS:
        return messages.encode_progress(operations.progress(given))
    elif verb is Verb.VERSIONS:
        return messages.encode_versions(operations.versions(given))
    elif verb is Verb.WATCH:
        watch = operations.watch(given[0], given[1])
        return b"" if watch is None else b"%d" % watch
    elif verb is Verb.PROCESS_IO:
        return operations.process_io(request.number)
    elif verb is Verb.OPEN_LOG:
        opened.append(operations.open_log(request.path))
    elif verb is Verb.CONFINE:
        rights = dict.fromkeys(request.paths, landlock.EVERYTHING - landlock.EXECUTE)
        return bytes([landlock.allow_only(landlock.EVERYTHING, rights)])
    return b""


def _writes(request: Request, folders: list[int], memory: mmap.mmap) -> list[AdWrite]:
    """Raises BadPacket for a text of more than one line: this attribute and no other is written here."""
    writes, at = [], 0
    for folder, (length, is_users) in zip(folders, request.writes):
        text = memory[at : at + length].decode("utf-8", "replace")
        if "\n" in text or "\r" in text:
            raise BadPacket("a text of several lines")
        writes.append(AdWrite(folder, text, is_users))
        at += length
    return writes


if __name__ == "__main__":
    own_process.run(main, BadPacket)
