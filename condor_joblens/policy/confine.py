"""How the policy child gives up everything but its socket, its memory and the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal

from condor_joblens.common import allocator, privilege, seccomp
from condor_joblens.common.errors import JobLensError

MEMORY = 512 << 20  # bytes of address space; Python with classad2 and Lua maps 110 MB
LIFETIME_CPU = 600  # seconds; a backstop: each request has a budget of its own, and the child retires before
STACK = 8 << 20

_NOBODY = 65534
"""User and group id, if this machine has no user nobody."""

_MADV_DONTNEED = 4
_libc = ctypes.CDLL(None, use_errno=True)


def confine() -> None:
    """Keep descriptors 0 to 2, become the user joblens-policy, and refuse every further file, process and privilege.

    To be called when all that is needed is imported. Raises JobLensError where root can't become another user,
    and OSError where the kernel refuses another step.
    """
    os.closerange(3, 65536)
    _give_up_root()
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_STACK, STACK),
        (resource.RLIMIT_CPU, LIFETIME_CPU),
        (resource.RLIMIT_NOFILE, 3),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (bound, bound))
    privilege.no_new_privileges()
    privilege.not_dumpable()
    privilege.end_with_parent(signal.SIGKILL)
    # a second wall behind the limits, if this kernel and machine have it: so its absence is no error
    seccomp.allow_only(_ALLOWED)


def keep_small() -> None:
    """Unmap the parts of programs that only starting up needed, and give large blocks back when they are free.

    What is needed again comes back from the page cache: mappings of files alone, to which nothing was written. Before
    `confine`, which forbids to open the list of mappings.
    """
    # else one block of megabytes raises both for ever
    allocator.tune({allocator.MMAP_THRESHOLD: 128 << 10, allocator.TRIM_THRESHOLD: 128 << 10})
    mapping: list[str] = []
    with contextlib.suppress(OSError), open("/proc/self/smaps") as smaps:  # not every kernel has it
        for fields in map(str.split, smaps):
            if not fields[0].endswith(":"):
                mapping = fields
            elif fields[:2] == ["Anonymous:", "0"] and mapping[5:] and mapping[5][0] == "/" and "w" not in mapping[1]:
                start, end = (int(address, 16) for address in mapping[0].split("-"))
                _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def policy_ids() -> tuple[int, int]:
    """The user joblens-policy, without any group of ours.

    Not joblens: a compromised joblens-export could end the child. Not nobody: HTCondor runs jobs as nobody if it knows
    no better user. Each is better than the next, if this machine has no such user: `joblens doctor` says so.
    """
    nobody = privilege.user("nobody")
    user = privilege.user(privilege.POLICY_USER) or privilege.user(privilege.USER) or nobody
    return user.pw_uid if user else _NOBODY, nobody.pw_gid if nobody else _NOBODY


def _give_up_root() -> None:
    if os.geteuid() != 0:
        return
    try:
        privilege.become(*policy_ids())
    except PermissionError:
        raise JobLensError("root can't become another user: give joblensd CAP_SETUID and CAP_SETGID") from None


# What an interpreter needs that opens nothing. The rest gets EPERM, not a kill: ClassAd functions such as userHome()
# then fail as they would for a user who isn't there.
_ALLOWED = (
    "read", "write", "mmap", "mprotect", "munmap", "brk", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "mremap",
    "madvise", "setitimer", "exit", "getrusage", "futex", "restart_syscall", "clock_gettime", "exit_group", "getrandom",
)  # fmt: skip
