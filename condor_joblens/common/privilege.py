"""Less power: capabilities and users are given up, and work in other people's folders is done as their owner."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import struct
from collections.abc import Iterator, Sequence

from condor_joblens.common.errors import JobLensError

USER = "joblens"
"""The system user that joblens-export becomes: it reads rows, writes its spool, and has the network."""

POLICY_USER = "joblens-policy"
"""The system user that the policy child becomes: it owns nothing, and no process of another role can end it."""

FILES_USER = "joblens-files"
"""The system user of the process that alone works in jobs' folders, as each folder's owner (owner_files/)."""

AGENT_USER = "joblens-agent"
"""The system user that joblensd becomes when it has started what takes root (agent/own_user.py)."""

RELAY_USER = "joblens-relay"
"""The system user that joblens-relay becomes: it must be able to end nobody else. It is nobody's account."""

# include/uapi/linux/capability.h
CAPABILITIES = {
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_BIND_SERVICE": 10,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}

NEEDED = {
    "CAP_BPF": "load programs; before Linux 5.19 also to look into maps and change them",
    "CAP_PERFMON": "the same: programs read the kernel's memory",
}
"""What takes a capability as long as joblensd lives. From Linux 5.19 on another process has them for it."""

AT_START = {
    "CAP_SETUID": "start what works in jobs' folders, and the policy child, as other users than root",
    "CAP_SETGID": "the same",
    "CAP_SYS_NICE": "start what lends joblensd real-time priority at the start and the end of a job",
}
"""What is done before that: joblensd itself then has no part in it."""

FOR_KPROBES = "CAP_SYS_ADMIN"
"""Before Linux 6.12 they can't be attached without. Who has it attaches them at the start, and gives it up."""

_READ, _WRITE, _SEARCH = 4, 2, 1
_VERSION_3 = 0x20080522
# include/uapi/linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_KEEPCAPS = 8
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)
_libc.setfsuid.restype = _libc.setfsgid.restype = ctypes.c_uint32


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Set(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def keep_only(names: tuple[str, ...]) -> None:
    """Gives up every capability but these and all supplementary groups, for good, children included. Raises OSError."""
    with contextlib.suppress(PermissionError):  # without CAP_SETGID the groups are no more than a user's
        os.setgroups([])  # `as_owner` would have root's groups beside the owner's
    wanted = _bits(names)
    _bound(wanted)
    _hold(wanted)


@contextlib.contextmanager
def without_capabilities() -> Iterator[None]:
    """In here this thread may do what takes none, and afterwards what it may do now. Raises OSError."""
    held = _permitted()
    _hold(0, held)
    try:
        yield
    finally:
        _hold(held)


def no_new_privileges() -> None:
    """No program that is started from here can gain privileges, set-user-id or not. Raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def not_dumpable() -> None:
    """No core is written, and no other process of this user can look into this one. Raises OSError."""
    _prctl(_PR_SET_DUMPABLE, 0)


def service_ids() -> tuple[int, int] | None:
    """User and group id of USER; None if this process is not root. Raises JobLensError if there is no such user."""
    if os.getuid() != 0:
        return None
    found = user(USER)
    if found is None:
        raise JobLensError(f"there is no user {USER} on this machine: run systemd-sysusers")
    return found.pw_uid, found.pw_gid


def user(name: str) -> pwd.struct_passwd | None:
    """A user of this machine; None if there is no such user."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def may_be_joblensds(uid: int) -> bool:
    """Whether a file of this user can be joblensd's: root's, this process's own, or AGENT_USER's."""
    if uid in (0, os.geteuid()):
        return True
    found = user(AGENT_USER)
    return found is not None and found.pw_uid == uid


def unprivileged_user() -> pwd.struct_passwd | None:
    """Whose processes can do little with those of ours that need a user of their own; None if there is no such user."""
    names = (FILES_USER, POLICY_USER, USER, "nobody")
    return next((found for name in names if (found := user(name)) is not None), None)


def become_named(name: str) -> None:
    """If this process is root's, changes it into this user for good, as `become`. Raises JobLensError, OSError."""
    if os.geteuid() != 0:
        return
    found = user(name)
    if found is None:
        raise JobLensError(f"there is no user {name} on this machine: run systemd-sysusers, or make install again")
    become(found.pw_uid, found.pw_gid)


def become(uid: int, gid: int) -> None:
    """Changes this process into this user for good, without any other group. No capability is left.

    Raises OSError if the kernel refuses: CAP_SETUID and CAP_SETGID are needed.
    """
    become_with(uid, gid, ())


def become_with(
    uid: int, gid: int, names: tuple[str, ...], *, groups: Sequence[int] = (), bound: tuple[str, ...] | None = None
) -> None:
    """The same, but these capabilities are left in this very process, and in no program that it starts.

    `groups` are its others. The bounding set is `bound`, or the same as `names`: it can't be changed later.
    """
    wanted = _bits(names)
    _bound(wanted if bound is None else _bits(bound))
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    _prctl(_PR_SET_KEEPCAPS, int(bool(names)))
    os.setresuid(uid, uid, uid)
    _hold(wanted)  # the kernel itself takes them only from who was root
    no_new_privileges()


def act_as(uid: int, gid: int) -> None:
    """This process has this user's rights to files and processes, and its group, without any other and any capability.

    Its real user stays what it was. So the user's own processes can't signal it, and its parent can end it. Only a list
    of system calls keeps it from becoming its real user again. Raises OSError if the kernel refuses.
    """
    _bound(0)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(-1, uid, -1)
    _hold(0)
    no_new_privileges()


def become_effective() -> None:
    """The real user is the effective one from now on, whose other processes can signal this one. Raises OSError."""
    uid = os.geteuid()
    os.setresuid(uid, uid, uid)


def end_with_parent(number: int) -> None:
    """This process gets the signal `number` when its parent ends. Call it after a change of user, which resets it."""
    _prctl(_PR_SET_PDEATHSIG, number)


def call_process(name: str) -> None:
    """This process is called so in lists of processes, and where somebody asks who has sent a signal; 15 bytes."""
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}): {os.strerror(ctypes.get_errno())}")


def _bits(names: tuple[str, ...]) -> int:
    return sum(1 << CAPABILITIES[name] for name in set(names))


def _hold(wanted: int, later: int = 0) -> None:
    """Of the capabilities that this process may have, it has the bits `wanted`, and may have those of `later` again."""
    held = _permitted()
    sets = (_Set * 2)()
    for half in range(2):
        kept, possible = ((bits & held) >> (32 * half) & 0xFFFFFFFF for bits in (wanted, wanted | later))
        sets[half] = _Set(kept, possible, 0)
    if _libc.capset(ctypes.byref(_Header(_VERSION_3, 0)), sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _bound(wanted: int) -> None:
    """Takes all capabilities but those of the bits `wanted` from what programs started from here can have."""
    for number in range(64):
        if not wanted >> number & 1 and _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            break  # past the last that this kernel knows, or without CAP_SETPCAP


def _permitted() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("CapPrm:"):
                return int(line.split()[1], 16)
    return 0


@contextlib.contextmanager
def as_owner(uid: int, gid: int) -> Iterator[None]:
    """Files are opened, made and renamed as this user in here; everything else stays as it was.

    Meanwhile the kernel takes the file-system capabilities away. So a link or a mount that a user has put in the way
    leads nowhere that the user could not go alone. If the process isn't root this does nothing.
    """
    if os.geteuid() != 0:
        yield
        return
    with file_ids(uid, gid):
        yield


@contextlib.contextmanager
def file_ids(uid: int, gid: int) -> Iterator[None]:
    """The same for whoever has CAP_SETUID and CAP_SETGID. Raises PermissionError if the kernel refuses this user."""
    own = os.geteuid(), os.getegid()
    _set_file_ids(uid, gid)
    try:
        # neither call reports a failure, but an impossible id changes nothing, and is answered with the one in force
        if _libc.setfsuid(-1) != uid or _libc.setfsgid(-1) != gid:
            raise PermissionError(1, f"this process may not become user {uid} of group {gid}")
        yield
    finally:
        _set_file_ids(*own)


def _set_file_ids(uid: int, gid: int) -> None:
    # while the user is another's than root's, the group is the only thing that could still be root's
    _libc.setfsgid(gid)
    _libc.setfsuid(uid)


def let_read(path: str, uid: int) -> None:
    """Lets one more user read a file, by a POSIX access list: its owner, its group and that user, nobody else.

    Raises OSError if the file system has no access lists.
    """
    _set_access_list(path, "access", owner=_READ | _WRITE, user=_READ, uid=uid, group=_READ)


def let_read_folder(path: str, uid: int) -> None:
    """Lets one more user list a folder and read the plain files that are and will be in it; its owner keeps all rights.

    Raises OSError if the file system has no access lists.
    """
    _set_access_list(path, "default", owner=_READ | _WRITE, user=_READ, uid=uid, group=0)
    for name in os.listdir(path):
        _set_access_list(f"{path}/{name}", "access", owner=_READ | _WRITE, user=_READ, uid=uid, group=0)
    _set_access_list(path, "access", owner=_READ | _WRITE | _SEARCH, user=_READ | _SEARCH, uid=uid, group=0)


def _set_access_list(path: str, which: str, *, owner: int, user: int, uid: int, group: int) -> None:
    # include/uapi/linux/posix_acl_xattr.h: version 2, then tag, permissions and id of each entry in this order
    nobody = 0xFFFFFFFF
    entries = ((0x01, owner, nobody), (0x02, user, uid), (0x04, group, nobody), (0x10, user, nobody), (0x20, 0, nobody))
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, f"system.posix_acl_{which}", packed)


def forget_session_keys() -> None:
    """Deletes what condor_master hands to its daemons and no thread of ours needs: the pool's session keys."""
    for name in ("CONDOR_PRIVATE_INHERIT", "CONDOR_INHERIT"):
        os.environ.pop(name, None)
