"""How the policy child gives up everything but its socket, its memory and the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct

from condor_joblens.common import allocator, privilege
from condor_joblens.common.errors import JobLensError

MEMORY = 512 << 20  # bytes of address space; Python with classad2 and Lua maps 110 MB
LIFETIME_CPU = 600  # seconds; a backstop: each request has a budget of its own, and the child retires before
STACK = 8 << 20

_NOBODY = 65534
"""User and group id, if this machine has no user nobody."""

_PR_SET_DUMPABLE, _PR_SET_SECCOMP = 4, 22
_SECCOMP_MODE_FILTER = 2
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
    _prctl(_PR_SET_DUMPABLE, 0)
    privilege.end_with_parent(signal.SIGKILL)
    _filter_syscalls()


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


def _give_up_root() -> None:
    """Root becomes the user joblens-policy, without any group of ours.

    Not joblens: a compromised joblens-export could end the child. Not nobody: HTCondor runs jobs as nobody if it knows
    no better user. Each is better than the next, if this machine has no such user: `joblens doctor` says so.
    """
    if os.geteuid() != 0:
        return
    nobody = privilege.user("nobody")
    user = privilege.user(privilege.POLICY_USER) or privilege.user(privilege.USER) or nobody
    try:
        privilege.become(user.pw_uid if user else _NOBODY, nobody.pw_gid if nobody else _NOBODY)
    except PermissionError:
        raise JobLensError("root can't become another user: give joblensd CAP_SETUID and CAP_SETGID") from None


def _prctl(option: int, argument: int) -> None:
    if _libc.prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}): {os.strerror(ctypes.get_errno())}")


# Numbers of the system calls that an interpreter needs which opens nothing. The rest gets EPERM, not a kill:
# ClassAd functions such as userHome() then fail as they would for a user who isn't there.
_X86_64 = {
    "read": 0, "write": 1, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
    "rt_sigprocmask": 14, "rt_sigreturn": 15, "mremap": 25, "madvise": 28, "setitimer": 38, "exit": 60,
    "getrusage": 98, "futex": 202, "restart_syscall": 219, "clock_gettime": 228, "exit_group": 231,
    "getrandom": 318,
}  # fmt: skip
_AARCH64 = {
    "read": 63, "write": 64, "exit": 93, "exit_group": 94, "futex": 98, "setitimer": 103,
    "clock_gettime": 113, "restart_syscall": 128, "rt_sigaction": 134, "rt_sigprocmask": 135,
    "rt_sigreturn": 139, "getrusage": 165, "brk": 214, "munmap": 215, "mremap": 216, "mmap": 222,
    "mprotect": 226, "madvise": 233, "getrandom": 278,
}  # fmt: skip
_ALLOWED = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}  # AUDIT_ARCH_*, calls


def _filter_syscalls() -> None:
    """A second wall behind the limits, where this kernel and machine have it: so its absence is no error."""
    machine = os.uname().machine
    if machine not in _ALLOWED:
        return
    program = ctypes.create_string_buffer(_program(*_ALLOWED[machine]))
    fprog = struct.pack("HxxxxxxP", (len(program) - 1) // 8, ctypes.addressof(program))
    with contextlib.suppress(OSError):
        _seccomp(fprog)


def _seccomp(fprog: bytes) -> None:
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, fprog, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _program(arch: int, calls: dict[str, int]) -> bytes:
    """Classic BPF over struct seccomp_data, whose first words are the call's number and the architecture."""
    load, jump_if_equal, answer = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    allow, kill, refuse = 0x7FFF0000, 0x80000000, 0x00050001  # SECCOMP_RET_ERRNO | EPERM
    count = len(calls)
    program = [(load, 0, 0, 4), (jump_if_equal, 1, 0, arch), (answer, 0, 0, kill), (load, 0, 0, 0)]
    for index, number in enumerate(calls.values()):
        program.append((jump_if_equal, count - index, 0, number))
    program += [(answer, 0, 0, refuse), (answer, 0, 0, allow)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)
