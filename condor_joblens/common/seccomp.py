"""A list of the system calls that a process may make. Every other one fails with EPERM; none ends the process."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Mapping

# Numbers of the system calls that our processes use, on x86-64 and aarch64; None if the machine has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "brk": (12, 214), "clock_gettime": (228, 113), "clock_nanosleep": (230, 115), "close": (3, 57), "exit": (60, 93),
    "exit_group": (231, 94), "fchmod": (91, 52), "fchown": (93, 55), "fcntl": (72, 25), "fstat": (5, 80),
    "futex": (202, 98), "getegid": (108, 177), "geteuid": (107, 175), "getpid": (39, 172), "getrandom": (318, 278),
    "getrusage": (98, 165), "inotify_add_watch": (254, 27), "linkat": (265, 37), "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444), "landlock_restrict_self": (446, 446), "lseek": (8, 62),
    "lstat": (6, None), "madvise": (28, 233), "mmap": (9, 222), "mprotect": (10, 226), "mremap": (25, 216),
    "munmap": (11, 215), "nanosleep": (35, 101), "newfstatat": (262, 79), "openat": (257, 56), "pread64": (17, 67),
    "pselect6": (270, 72), "read": (0, 63), "recvmsg": (47, 212), "renameat": (264, 38), "renameat2": (316, 276),
    "restart_syscall": (219, 128), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "select": (23, None), "sendmsg": (46, 211), "setfsgid": (123, 152), "setfsuid": (122, 151), "setitimer": (38, 103),
    "stat": (4, None), "statx": (332, 291), "unlinkat": (263, 35), "write": (1, 64),
}  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH_*, column of _NUMBERS

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
# Classic BPF over struct seccomp_data: the call's number, the architecture, then at byte 16 the first argument
_LOAD, _EQUALS, _AT_LEAST, _ANSWER = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050001  # the last: SECCOMP_RET_ERRNO | EPERM

MOST_OTHERS = 200
"""Ids below the least: a jump within a filter is at most 255 instructions long."""

_libc = ctypes.CDLL(None, use_errno=True)


class Ids:
    """User or group ids: all from `least` on, and those in `others`."""

    def __init__(self, least: int, others: Iterable[int]) -> None:
        """0, which is root, is never one of them, whatever the arguments say."""
        self.least = max(1, least)
        self.others = frozenset(sorted(number for number in others if 0 < number < self.least)[:MOST_OTHERS])

    def __contains__(self, number: int) -> bool:
        return number >= self.least or number in self.others


def allow_only(calls: Iterable[str], ids: Mapping[str, Ids] | None = None) -> bool:
    """Refuses all system calls but `calls`, and those of `ids` whose first argument is none of their ids. For good.

    False if this kernel or machine has no such filter; nothing is refused then. Call no_new_privileges before.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return False
    architecture, column = machine
    numbers = [number for call in calls if (number := _NUMBERS[call][column]) is not None]
    by_argument = {number: of for call, of in (ids or {}).items() if (number := _NUMBERS[call][column]) is not None}
    program = ctypes.create_string_buffer(compiled(architecture, numbers, by_argument))
    fprog = struct.pack("HxxxxxxP", (len(program) - 1) // 8, ctypes.addressof(program))
    return bool(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, fprog, 0, 0) == 0)


def compiled(architecture: int, numbers: list[int], ids: Mapping[int, Ids]) -> bytes:
    """The filter: `numbers` may be called, and those in `ids` with a first argument among these ids."""
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUALS, 1, 0, architecture), (_ANSWER, 0, 0, _KILL)]
    program.append((_LOAD, 0, 0, _NUMBER))
    for number, of in ids.items():
        # ids are 32 bits wide in the kernel, whatever the rest of the register holds
        checks = [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_AT_LEAST, len(of.others) + 1, 0, of.least)]
        checks += [(_EQUALS, len(of.others) - index, 0, other) for index, other in enumerate(sorted(of.others))]
        checks += [(_ANSWER, 0, 0, _REFUSE), (_ANSWER, 0, 0, _ALLOW)]
        program += [(_EQUALS, 0, len(checks), number), *checks]
    for index, number in enumerate(numbers):
        program.append((_EQUALS, len(numbers) - index, 0, number))
    program += [(_ANSWER, 0, 0, _REFUSE), (_ANSWER, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)
