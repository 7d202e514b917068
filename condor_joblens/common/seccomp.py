"""A list of the system calls that a process may make. Every other one fails with EPERM; none ends the process.

Who answers those others can be another process of ours (call_refuser.py), which can then name them: `allow_told`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Mapping
from typing import Protocol

from condor_joblens.common.system_calls import numbers

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_SECCOMP_SET_MODE_FILTER = 1
# Flags of seccomp(2): for all threads; without the mitigations for processes that run foreign code, which cost a few
# percent before Linux 5.16; with a descriptor for who answers; ESRCH if a thread can't have it; signals don't interrupt
_TSYNC, _SPEC_ALLOW, _NEW_LISTENER, _TSYNC_ESRCH, _WAIT_KILLABLE = 1, 4, 8, 16, 32
_TOLD = (_TSYNC | _TSYNC_ESRCH | _NEW_LISTENER | _SPEC_ALLOW | _WAIT_KILLABLE,
         _TSYNC | _TSYNC_ESRCH | _NEW_LISTENER | _SPEC_ALLOW)  # fmt: skip
"""From Linux 5.19 on, and from 5.7 on."""

# Classic BPF over struct seccomp_data: the call's number, the architecture, then from byte 16 on the arguments
_LOAD, _EQUALS, _AT_LEAST, _HAS_BITS, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, ...
_KEEP, _EQUALS_KEPT = 0x07, 0x1D  # BPF_MISC|BPF_TAX, BPF_JMP|JEQ|X
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _ASK, _ERROR = 0x7FFF0000, 0x7FC00000, 0x00050000  # SECCOMP_RET_*
REFUSE = _ERROR | errno.EPERM
_MISSING = _ERROR | errno.ENOSYS

INTERPRETERS = (
    "brk", "clock_gettime", "clock_nanosleep", "close", "exit", "exit_group", "fcntl", "futex", "getegid", "geteuid",
    "getpeername", "getpid", "getrandom", "getsockname", "lseek", "madvise", "mmap", "mprotect", "mremap", "munmap",
    "nanosleep", "poll", "ppoll", "pselect6", "read", "restart_syscall", "rt_sigaction", "rt_sigprocmask",
    "rt_sigreturn", "select", "write",
)  # fmt: skip
"""What Python itself calls, whatever it does: it names a socket that it finds open at its end, for a warning that
nobody sees."""

_UNCHANGED = 0xFFFFFFFF  # an id of -1

MOST_OTHERS = 200
"""Ids below the least: a jump within a filter is at most 255 instructions long."""

_libc = ctypes.CDLL(None, use_errno=True)

Instruction = tuple[int, int, int, int]  # the instruction, how many to skip if it is true, or if not, and its value


class Argument(Protocol):
    """Which values an argument of a system call may have."""

    def checks(self, refuse: int) -> list[Instruction]:
        """Instructions that answer `refuse`, or that the call may be made."""


class Ids:
    """User or group ids as the first argument: all from `least` on, and those in `others`."""

    def __init__(self, least: int, others: Iterable[int]) -> None:
        """0, which is root, is never one of them, whatever the arguments say."""
        self.least = max(1, least)
        self.others = frozenset(sorted(number for number in others if 0 < number < self.least)[:MOST_OTHERS])

    def __contains__(self, number: int) -> bool:
        return number >= self.least or number in self.others

    def checks(self, refuse: int) -> list[Instruction]:
        # ids are 32 bits wide in the kernel, whatever the rest of the register holds
        checks = [(_LOAD, 0, 0, _ARGUMENTS), (_AT_LEAST, len(self.others) + 1, 0, self.least)]
        checks += [(_EQUALS, len(self.others) - index, 0, other) for index, other in enumerate(sorted(self.others))]
        return [*checks, (_ANSWER, 0, 0, refuse), (_ANSWER, 0, 0, _ALLOW)]


class SameIds(Ids):
    """The same, and the second and third argument are this id as well: of setresuid(2) and setresgid(2)."""

    def checks(self, refuse: int) -> list[Instruction]:
        ids = super().checks(refuse)
        found: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 16), (_KEEP, 0, 0, 0)]
        for index in (1, 0):
            found += [(_LOAD, 0, 0, _ARGUMENTS + 8 * index), (_EQUALS_KEPT, 1, 0, 0), (_ANSWER, 0, 0, refuse)]
        return found + ids


class EffectiveId(Ids):
    """The same as the second argument, of setresuid(2). The first and the third are this id as well, or unchanged."""

    def checks(self, refuse: int) -> list[Instruction]:
        found: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8), (_KEEP, 0, 0, 0)]
        for index in (0, 2):
            found += [(_LOAD, 0, 0, _ARGUMENTS + 8 * index), (_EQUALS_KEPT, 2, 0, 0), (_EQUALS, 1, 0, _UNCHANGED)]
            found.append((_ANSWER, 0, 0, refuse))
        (load, *rest) = super().checks(refuse)
        return [*found, (load[0], 0, 0, _ARGUMENTS + 8), *rest]


class OneOf:
    """Numbers of 32 bits, as an argument that the kernel takes as such; the first has `index` 0."""

    def __init__(self, index: int, *values: int) -> None:
        self._index, self._values = index, values

    def checks(self, refuse: int) -> list[Instruction]:
        checks = [(_LOAD, 0, 0, _ARGUMENTS + 8 * self._index)]
        checks += [(_EQUALS, len(self._values) - at, 0, value) for at, value in enumerate(self._values)]
        return [*checks, (_ANSWER, 0, 0, refuse), (_ANSWER, 0, 0, _ALLOW)]


class Flags:
    """Bits of an argument, the first if no `index` is given: one of `bits` is set, or none if `are_set` is false."""

    def __init__(self, bits: int, *, are_set: bool, index: int = 0) -> None:
        self._bits, self._are_set, self._index = bits, are_set, index

    def checks(self, refuse: int) -> list[Instruction]:
        found: Instruction = (_HAS_BITS, int(self._are_set), int(not self._are_set), self._bits)
        return [(_LOAD, 0, 0, _ARGUMENTS + 8 * self._index), found, (_ANSWER, 0, 0, refuse), (_ANSWER, 0, 0, _ALLOW)]


# of clone(2): CLONE_THREAD, and all CLONE_NEW*
A_THREAD = Flags(0x00010000, are_set=True)
NO_NAMESPACE = Flags(0x7E020000, are_set=False)

# of openat(2)
ONLY_TO_READ = Flags(os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC, are_set=False, index=2)

Arguments = Mapping[str, Argument]


def allow_only(calls: Iterable[str], arguments: Arguments | None = None) -> bool:
    """Refuses all system calls but `calls`, and those with other `arguments` than these, in this thread. For good.

    False if this kernel or machine has no such filter; nothing is refused then. Call no_new_privileges before.
    """
    program = _program(calls, arguments or {}, (), REFUSE)
    return program is not None and _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _fprog(program), 0, 0) == 0


def allow_told(
    calls: Iterable[str], arguments: Arguments | None = None, quietly: Iterable[str] = ()
) -> tuple[bool, int | None]:
    """The same in all threads, and a descriptor: who has it answers what is refused, but for the calls `quietly`.

    Whoever holds that descriptor may also let a call pass: hand it over, and close it. While nobody has it, calls are
    refused with ENOSYS. Without a descriptor (before Linux 5.7, or if whoever started us has such a filter) they are
    refused as always, and nobody is told.
    """
    number = numbers().get("seccomp", 0)
    for flags in _TOLD:
        program = _program(calls, arguments or {}, quietly, _ASK)
        if program is None:
            return False, None
        listener = int(_libc.syscall(number, _SECCOMP_SET_MODE_FILTER, flags, _fprog(program)))
        if listener >= 0:
            return True, listener
    program = _program(calls, arguments or {}, quietly, REFUSE)
    done = program is not None and _libc.syscall(number, _SECCOMP_SET_MODE_FILTER, _TSYNC, _fprog(program)) == 0
    return done, None


def _program(
    calls: Iterable[str], arguments: Arguments, quietly: Iterable[str], refuse: int
) -> ctypes.Array[ctypes.c_char] | None:
    """The filter for this machine; None if we know none of its kind."""
    known = numbers()
    architecture = _ARCHITECTURES.get(os.uname().machine)
    if architecture is None:
        return None
    answers = {known[name]: _ALLOW for name in calls if name in known}
    answers.update({known[name]: REFUSE for name in quietly if name in known})
    # glibc then makes threads by clone, whose flags can be checked; those of clone3 are behind a pointer
    answers.setdefault(known["clone3"], _MISSING)
    checked = {known[name]: argument for name, argument in arguments.items() if name in known}
    return ctypes.create_string_buffer(compiled(architecture, answers, checked, refuse))


def _fprog(program: ctypes.Array[ctypes.c_char]) -> bytes:
    """struct sock_fprog; `program` has to live as long."""
    return struct.pack("HxxxxxxP", (len(program) - 1) // 8, ctypes.addressof(program))


def compiled(
    architecture: int, answers: Mapping[int, int], arguments: Mapping[int, Argument], refuse: int = REFUSE
) -> bytes:
    """The filter: an answer for each number of a call, those in `arguments` by their arguments, `refuse` for others."""
    program: list[Instruction] = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUALS, 1, 0, architecture), (_ANSWER, 0, 0, REFUSE)]
    program.append((_LOAD, 0, 0, _NUMBER))
    for number, argument in arguments.items():
        checks = argument.checks(refuse)
        program += [(_EQUALS, 0, len(checks), number), *checks]
    ends = [refuse, *sorted(set(answers.values()))]
    for index, (number, answer) in enumerate(answers.items()):
        program.append((_EQUALS, len(answers) - 1 - index + ends.index(answer), 0, number))
    program += [(_ANSWER, 0, 0, answer) for answer in ends]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)
