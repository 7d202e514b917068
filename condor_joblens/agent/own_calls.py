"""The system calls that joblensd makes once the node is served: each group is for one purpose.

It starts and signals no other process, makes no socket but the pair to a policy child, and changes no user. Its helpers
do what takes more (helpers.py). What is missing here costs a line in the log, and fails with EPERM.
"""

from __future__ import annotations

import os

from condor_joblens.common import seccomp
from condor_joblens.common.seccomp import Arguments, OneOf

CALLS = (
    *seccomp.INTERPRETERS,
    # what Python and its modules ask of their own process and of this machine
    "getcpu", "getgid", "getgroups", "getpgrp", "getppid", "getpriority", "getresgid", "getresuid", "getrlimit",
    "getrusage", "gettimeofday", "getuid", "sched_getaffinity", "sched_getparam", "sched_getscheduler", "sysinfo",
    "time", "times", "umask", "uname",
    # threads, of which one loads programs into the kernel
    "arch_prctl", "get_robust_list", "gettid", "membarrier", "rseq", "sched_yield", "set_robust_list", "sigaltstack",
    # to wait
    "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2", "pipe2", "setitimer",
    # to look at files: cgroups, /proc, jobs' ads by descriptors that the helper hands over
    "access", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fstat", "fstatfs", "getcwd", "getdents64", "lstat",
    "newfstatat", "open", "openat", "openat2", "preadv", "pread64", "readlink", "readlinkat", "readv", "stat", "statfs",
    "statx",
    # to change its own: below JOBLENS_RUN_DIR, its log, its cgroup and its pins, which Landlock allows alone
    "chmod", "fallocate", "fchmod", "fchmodat", "fchown", "fdatasync", "flock", "fsetxattr", "fsync", "ftruncate",
    "mkdir", "mkdirat", "pwrite64", "pwritev", "rename", "renameat", "renameat2", "rmdir", "setxattr", "unlink",
    "unlinkat", "writev",
    # to be told of changes
    "inotify_add_watch", "inotify_init1", "inotify_rm_watch",
    # callers of the control socket, helpers, policy children
    "accept", "accept4", "getsockopt", "recvfrom", "recvmsg", "sendmsg", "sendto",
    "setsockopt", "shutdown", "socketpair",
    # to hear how helpers ended, and, without BPF, when a job's first process does
    "pidfd_open", "wait4", "waitid",
    # the kernel's programs and maps; before Linux 5.11 they take a limit, and level io visits each CPU
    "bpf", "memfd_create", "perf_event_open", "prlimit64", "sched_setaffinity", "setrlimit",
)  # fmt: skip

_NAMES_OF_THREADS = 15, 16, 0x53564D41  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
_OF_DESCRIPTORS = 0x5401, 0x541B, 0x5421, 0x5450, 0x5451  # TCGETS, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_OF_CLOCKS = 0x2400, 0x2401, 0x40042408  # PERF_EVENT_IOC_ENABLE, _DISABLE, _SET_BPF


_LOADS = ("perf_event_open", "setrlimit")
"""Before Linux 5.11 programs and maps take a limit."""

_USES_OF_MAPS = (1, 2, 3, 4, 6, 7, 15, 17, 21, 24, 25, 26, 27, 28, 33)
"""Commands of bpf(2). They look up, change and walk through elements (1 to 4, 21, 24 to 27), and pin and open pins (6,
7). They ask about a program (15), attach one (17, 28), and run an iterator (33). BPF_MAP_CREATE and BPF_PROG_LOAD are
missing."""


def calls(*, loads: bool) -> tuple[str, ...]:
    """Those that it makes whatever their arguments; `loads`: it loads programs itself."""
    return tuple(call for call in CALLS if loads or call not in ("bpf", *_LOADS))


def arguments(*, loads: bool) -> Arguments:
    """Those that are for one purpose only by their arguments: threads, no processes; signals to itself alone."""
    uses = {} if loads else {"bpf": OneOf(0, *_USES_OF_MAPS)}
    return {
        **uses,
        "clone": seccomp.A_THREAD,
        "ioctl": OneOf(1, *_OF_DESCRIPTORS, *_OF_CLOCKS),
        "prctl": OneOf(0, *_NAMES_OF_THREADS),
        "tgkill": OneOf(0, os.getpid()),
    }


def allow_only(*, loads: bool) -> tuple[bool, int | None]:
    """Refuses all others; as seccomp.allow_told. For good."""
    return seccomp.allow_told(calls(loads=loads), arguments(loads=loads))
