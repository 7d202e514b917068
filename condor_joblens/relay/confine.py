"""What joblens-relay can still do when it runs: the network, and to read what everybody may read."""

from __future__ import annotations

import os
from collections.abc import Callable

from condor_joblens.common import landlock, privilege, seccomp

CALLS = (
    *seccomp.INTERPRETERS,
    # to wait
    "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2",
    # connections that it makes to the server and to joblensd, and users on a socket that is there already
    "accept", "accept4", "connect", "getsockopt", "recvfrom", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt",
    "shutdown", "socket", "socketpair",
    # the server's name is looked up in a thread
    "clone", "gettid", "rseq", "sched_getaffinity", "sched_yield", "set_robust_list", "sysinfo", "tgkill",
    # its log, which is open, and what is read of modules, certificates, names and the time zone
    "access", "dup", "faccessat2", "fstat", "fstatfs", "ftruncate", "getcwd", "getdents64", "getegid", "getgid",
    "getuid", "ioctl", "lstat", "newfstatat", "openat", "pread64", "readlink", "readlinkat", "stat", "statx",
    "sigaltstack", "uname", "writev",
)  # fmt: skip
"""The system calls that it has left. It listens nowhere, and starts and signals no process."""

_UNIX, _INET, _INET6 = 1, 2, 10
_OF_DESCRIPTORS = 0x5401, 0x541B, 0x5421, 0x5450, 0x5451  # TCGETS, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX


def confine(log: Callable[[str], None]) -> None:
    """It becomes its own user, and gives up all else, for good. Raises JobLensError, OSError."""
    privilege.become_named(privilege.RELAY_USER)
    privilege.no_new_privileges()
    privilege.not_dumpable()
    try:
        confined = landlock.allow_only(landlock.CHANGE, {os.devnull: landlock.CHANGE}, tcp=True)
        reason = "this kernel has no Landlock"
    except OSError as error:
        confined, reason = False, error.strerror or str(error)
    if not confined:
        log(f"{reason}: joblens-relay could change files that everybody may change")
    arguments: dict[str, seccomp.Argument] = {
        "clone": seccomp.A_THREAD,
        "ioctl": seccomp.OneOf(1, *_OF_DESCRIPTORS),
        "openat": seccomp.ONLY_TO_READ,
        "socket": seccomp.OneOf(0, _UNIX, _INET, _INET6),
    }
    if not seccomp.allow_only(CALLS, arguments):
        log("this kernel has no filter of system calls: joblens-relay could make all of them")
