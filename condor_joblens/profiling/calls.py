"""System calls in which a thread can wait: their names, by number."""

from __future__ import annotations

import os
from collections.abc import Sequence

# numbers on x86-64 and aarch64; None: that machine has no such call
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "poll": (7, None), "mmap": (9, 222), "munmap": (11, 215), "ioctl": (16, 29),
    "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "access": (21, None),
    "select": (23, None), "sched_yield": (24, 124), "pause": (34, None), "nanosleep": (35, 101),
    "sendfile": (40, 71), "connect": (42, 203), "accept": (43, 202), "sendto": (44, 206), "recvfrom": (45, 207),
    "sendmsg": (46, 211), "recvmsg": (47, 212), "clone": (56, 220), "vfork": (58, None), "execve": (59, 221),
    "wait4": (61, 260), "semop": (65, 193), "msgsnd": (69, 189), "msgrcv": (70, 188), "fcntl": (72, 25),
    "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83), "truncate": (76, 45), "ftruncate": (77, 46),
    "rename": (82, None), "mkdir": (83, None), "unlink": (87, None), "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133), "sync": (162, 81), "futex": (202, 98), "io_getevents": (208, 4),
    "getdents64": (217, 61), "restart_syscall": (219, 128), "semtimedop": (220, 192), "clock_nanosleep": (230, 115),
    "epoll_wait": (232, None), "mq_timedsend": (242, 182), "mq_timedreceive": (243, 183), "waitid": (247, 95),
    "openat": (257, 56), "newfstatat": (262, 79), "unlinkat": (263, 35), "faccessat": (269, 48),
    "pselect6": (270, 72), "ppoll": (271, 73), "splice": (275, 76), "epoll_pwait": (281, 22), "accept4": (288, 242),
    "preadv": (295, 69), "pwritev": (296, 70), "recvmmsg": (299, 243), "syncfs": (306, 267), "sendmmsg": (307, 269),
    "copy_file_range": (326, 285), "statx": (332, 291), "io_uring_enter": (426, 426), "clone3": (435, 435),
    "openat2": (437, 437), "epoll_pwait2": (441, 441), "futex_waitv": (449, 449), "futex_wait": (455, 455),
}  # fmt: skip
_COLUMN = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine, 0)
_NAMES = {numbers[_COLUMN]: name for name, numbers in _NUMBERS.items()}

READS = frozenset({"read", "readv", "pread64", "preadv", "recvfrom", "recvmsg", "recvmmsg"})
WRITES = frozenset({"write", "writev", "pwrite64", "pwritev", "sendto", "sendmsg", "sendmmsg"})
ON_FILES = frozenset({"fsync", "fdatasync", "ftruncate", "getdents64", "close", "fstat", "syncfs", "ioctl"})
ON_DESCRIPTORS = READS | WRITES | ON_FILES
"""Calls whose first argument is a descriptor."""

ON_PATHS = frozenset(
    {"open", "openat", "openat2", "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "execve", "unlink"}
) | {"unlinkat", "rename", "mkdir", "truncate"}
SLEEPS = frozenset({"nanosleep", "clock_nanosleep"})
POLLS = frozenset({"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"})
CHILDREN = frozenset({"wait4", "waitid", "vfork"})
CLONES = frozenset({"clone", "clone3"})
SIGNALS = frozenset({"pause", "rt_sigsuspend", "rt_sigtimedwait"})
SEMAPHORES = frozenset({"semop", "semtimedop"})
QUEUES = frozenset({"msgrcv", "msgsnd", "mq_timedreceive", "mq_timedsend"})
ACCEPTS = frozenset({"accept", "accept4"})


def name(number: int) -> str:
    """`flock`; `call 999` of one in which threads do not usually wait."""
    return _NAMES.get(number, f"call {number}")


_MILLISECONDS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
"""Calls with the place of a time in milliseconds; below 0 it is none."""

_TIMES = {
    "futex": 3, "ppoll": 2, "select": 4, "pselect6": 4, "epoll_pwait2": 3, "semtimedop": 3, "rt_sigtimedwait": 2,
    "recvmmsg": 4, "io_getevents": 4, "mq_timedsend": 4, "mq_timedreceive": 4, "futex_wait": 4, "futex_waitv": 3,
}  # fmt: skip
"""Calls with the place of the address of a time; 0 is none."""


_URING_TIMES = 8 | 64
"""IORING_ENTER_EXT_ARG and IORING_ENTER_EXT_ARG_REG: what else is given then is nearly always a time."""


def has_deadline(call: str, arguments: Sequence[int]) -> bool:
    """Whether the call ends by itself after a time that its caller has set."""
    if call in SLEEPS or call == "restart_syscall":  # only calls with a deadline are restarted so
        return True
    if call == "io_uring_enter":
        return bool(arguments[3] & _URING_TIMES)
    if call in _MILLISECONDS:
        return not arguments[_MILLISECONDS[call]] & 1 << 31
    return call in _TIMES and arguments[_TIMES[call]] != 0
