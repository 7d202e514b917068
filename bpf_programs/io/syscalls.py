"""Makes syscalls.h: the class of every system call and error, for x86-64 and aarch64, from the one table here.

    python bpf_programs/io/syscalls.py X86_64/asm/unistd_64.h AARCH64/asm/unistd_64.h > bpf_programs/io/syscalls.h

The numbers are those of the kernel's own headers (linux-libc-dev); what they name and no class here does is `Other`.
"""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from condor_joblens.model import classes

# class -> what the call does with its arguments (enum call_kind in io.bpf.h) -> names
TABLE: dict[str, dict[str, str]] = {
    "Read": {"READS": "read pread64 readv preadv preadv2"},
    "Write": {
        "WRITES": "write pwrite64 writev pwritev pwritev2 vmsplice",
        "COPIES": "sendfile",
        "SPLICES": "splice copy_file_range",
        "FD": "tee",
    },
    "Open": {
        "OPENS": "open creat",
        "OPENS_AT": "openat openat2",
        "NONE": "dup dup2 dup3 close close_range open_by_handle_at name_to_handle_at open_tree memfd_create "
        "memfd_secret",
        "FD": "fcntl",
    },
    "Metadata": {
        "PATH": "stat lstat access readlink chmod chown lchown utime utimes statfs truncate setxattr lsetxattr "
        "getxattr lgetxattr listxattr llistxattr removexattr lremovexattr",
        "PATH_AT": "newfstatat statx faccessat faccessat2 readlinkat fchmodat fchmodat2 fchownat futimesat utimensat "
        "setxattrat getxattrat listxattrat removexattrat file_getattr file_setattr",
        "FD": "fstat fstatfs fchmod fchown ftruncate fallocate fsetxattr fgetxattr flistxattr fremovexattr flock "
        "lseek fadvise64 readahead",
        "NONE": "umask ustat statmount listmount",
    },
    "Directory": {
        "FD": "getdents getdents64 fchdir",
        "PATH": "chdir rename mkdir rmdir link unlink symlink mknod chroot",
        "PATH_AT": "mkdirat mknodat unlinkat renameat renameat2 linkat symlinkat",
        "NONE": "getcwd pivot_root",
    },
    "Sync": {"FD": "fsync fdatasync syncfs sync_file_range", "NONE": "sync msync"},
    "MemoryMap": {
        "NONE": "mmap munmap mprotect pkey_mprotect pkey_alloc pkey_free brk mremap madvise process_madvise mincore "
        "mlock mlock2 munlock mlockall munlockall remap_file_pages mbind set_mempolicy get_mempolicy "
        "set_mempolicy_home_node migrate_pages move_pages shmget shmat shmctl shmdt mseal map_shadow_stack "
        "userfaultfd cachestat",
    },
    "Network": {
        "SENDS": "sendto recvfrom sendmsg recvmsg",
        "MESSAGES": "sendmmsg recvmmsg",
        "SOCKET": "connect accept accept4 shutdown bind listen getsockname getpeername setsockopt getsockopt",
        "NONE": "socket socketpair",
    },
    "Process": {
        "FORKS": "clone clone3 fork vfork",
        "NONE": "execve execveat exit exit_group wait4 waitid kill tkill tgkill getpid getppid gettid getpgid getpgrp "
        "setpgid getsid setsid getuid geteuid getgid getegid setuid setgid setreuid setregid setresuid setresgid "
        "getresuid getresgid setfsuid setfsgid getgroups setgroups capget capset prctl arch_prctl prlimit64 "
        "getrlimit setrlimit getrusage times unshare setns personality ptrace pidfd_open pidfd_getfd "
        "pidfd_send_signal process_mrelease set_tid_address getpriority setpriority rseq set_robust_list "
        "get_robust_list rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo rt_tgsigqueueinfo rt_sigreturn "
        "sigaltstack kcmp process_vm_readv process_vm_writev",
    },
    "Wait": {
        "NONE": "poll ppoll select pselect6 epoll_wait epoll_pwait epoll_pwait2 epoll_ctl epoll_create epoll_create1 "
        "futex futex_wait futex_wake futex_waitv futex_requeue nanosleep clock_nanosleep pause sched_yield "
        "rt_sigsuspend rt_sigtimedwait restart_syscall io_uring_enter semop semtimedop msgsnd msgrcv mq_timedsend "
        "mq_timedreceive",
    },
    "Other": {"AIO": "io_submit"},
}

READING = (
    "read", "pread64", "readv", "preadv", "preadv2", "sendfile", "splice", "copy_file_range", "readahead", "fadvise64",
    "io_submit", "io_uring_enter",
)  # fmt: skip
"""Those that ask for what is in a file, or have it asked for."""

SINGLED_OUT = ("write", "writev", "mmap", "mremap", "connect", "getsockopt", "execve", "fcntl", "flock", *READING)
"""Calls that programs know by their number: NUMBER_WRITE and so on."""

NAMES = {name: (cls, kind) for cls, kinds in TABLE.items() for kind, names in kinds.items() for name in names.split()}


def numbers(header: str) -> dict[str, int]:
    """The system calls that a kernel's unistd.h defines by plain numbers."""
    found = re.findall(r"^#define\s+__NR(?:3264)?_(\w+)\s+(\d+)\s*$", header, re.M)
    return {name: int(number) for name, number in found}


def _rows(calls: dict[str, int]) -> list[str]:
    order = sorted((number, name) for name, number in calls.items() if name in NAMES)
    return [
        f"\t[{number}] = CALL({list(classes.SYSCALLS).index(NAMES[name][0])}, {NAMES[name][1]}),\t/* {name} */"
        for number, name in order
    ]


def _singled_out(calls: dict[str, int]) -> str:
    return "\n".join(f"#define NUMBER_{name.upper()} {calls[name]}" for name in SINGLED_OUT)


def generate(x86: dict[str, int], aarch64: dict[str, int]) -> str:
    """The text of syscalls.h."""
    eintr = classes.ERRNOS.index("EINTR")
    other = list(classes.SYSCALLS).index("Other")
    errors = [f"\t[{getattr(errno, name)}] = {index},\t/* {name} */" for index, name in enumerate(classes.ERRNOS)]
    return "\n".join(
        [
            "/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */",
            "/* Made by syscalls.py: change that, and make it again. Classes and errors are as in classes.py. */",
            "#ifndef JOBLENS_SYSCALLS_H",
            "#define JOBLENS_SYSCALLS_H",
            "",
            f"enum {{ CALL_OTHER = {other}, ERROR_OTHER = {len(classes.ERRNOS)}, ERROR_EINTR = {eintr} }};",
            "#define CALL(class, kind) ((class) << 4 | (kind))",
            "",
            "#if defined(__TARGET_ARCH_x86)",
            _singled_out(x86),
            "#define CALLS_OF_ARCHITECTURE \\",
            *_continued(_rows(x86)),
            "#elif defined(__TARGET_ARCH_arm64)",
            _singled_out(aarch64),
            "#define CALLS_OF_ARCHITECTURE \\",
            *_continued(_rows(aarch64)),
            "#else",
            '#error "no table of system calls for this architecture"',
            "#endif",
            "",
            "#define ERRORS_BY_NUMBER \\",
            *_continued(errors),
            "#endif",
            "",
        ]
    )


def _continued(lines: list[str]) -> list[str]:
    return [line + " \\" for line in lines[:-1]] + [lines[-1], ""]


if __name__ == "__main__":
    print(generate(*(numbers(Path(path).read_text()) for path in sys.argv[1:3])), end="")
