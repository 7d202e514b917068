"""Which of the failures of a process is why it ended, in words.

Sound programs fail all the time: a shell looks for a command in each folder of PATH, Python for its modules in many
places. An error that is common is blamed only if the process itself complained of that name. It does not complain of
what it found elsewhere. An error that is rare is also blamed if the process ended soon after it. So is a common one
about what the process was asked to do: a file that its arguments name, or a program to execute.
"""

from __future__ import annotations

import errno
import ipaddress
import posixpath
import re
import signal
from collections.abc import Sequence

from condor_joblens.common.redact import command_line
from condor_joblens.jobs.death_sentence import CAUSE_BYTES, in_gib
from condor_joblens.model.failures import Failure, Failures, Subject

SOON_SECONDS = 2.0
"""A process that ends as long after a rare error ended of it."""

COMMON: dict[int, tuple[str, bytes]] = {
    errno.ENOENT: ("no such file", b"no such file|not found|(?:does not|doesn't|not) exist|(?:can'?t|cannot|unable to|"
                   b"could not|failed to) (?:open|find|access|load|read|stat)|missing"),
    errno.EACCES: ("permission denied", b"permission|denied|(?:can'?t|cannot|unable to|could not|failed to) open"),
    errno.EPERM: ("not permitted", b"not permitted|permission|denied"),
    errno.ENOTDIR: ("not a folder", b"not a directory"),
    errno.EISDIR: ("it is a folder", b"is a directory"),
    errno.EEXIST: ("it exists already", b"exists"),
    errno.ENOEXEC: ("not a program", b"exec format|cannot execute|not executable"),
    errno.ETXTBSY: ("the program is being written", b"text file busy"),
    errno.EROFS: ("read-only file system", b"read-only"),
    errno.ENAMETOOLONG: ("the name is too long", b"too long"),
    errno.ELOOP: ("too many links", b"too many levels|symbolic link"),
}  # fmt: skip
"""Errors that sound programs meet -> what is said of them, and what the program itself says, beside the name."""

RARE: dict[int, tuple[str, bytes]] = {
    errno.ENOSPC: ("no space left on", b"no space left"),
    errno.EDQUOT: ("the quota is used up on", b"quota"),
    errno.EIO: ("input/output error", b"input/output error"),
    errno.EFBIG: ("the file is too large", b"too large"),
    errno.ESTALE: ("the file server has forgotten the file", b"stale"),
    errno.ENOTCONN: ("its file system has gone", b"not connected"),
    errno.EUCLEAN: ("the file system is damaged", b"structure needs cleaning"),
    errno.EREMOTEIO: ("the file server failed", b"remote i/o"),
    errno.EMFILE: ("too many open files", b"too many open files"),
    errno.ENFILE: ("too many open files on the machine", b"too many open files"),
    errno.EAGAIN: ("not allowed to start more processes", b"temporarily unavailable|fork|thread|process"),
    errno.ENOMEM: ("not allowed to allocate more memory", b"memory|alloc"),
    errno.ENETUNREACH: ("no way to", b"unreachable"),
    errno.EHOSTUNREACH: ("no way to", b"unreachable|no route"),
    errno.ECONNREFUSED: ("connection refused by", b"refused"),
    errno.ETIMEDOUT: ("no answer from", b"timed out|timeout"),
}
"""All others that are kept, in the same way."""

CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP, signal.SIGFPE})
"""Signals by which a program ends itself, or the kernel for what it did."""

NOT_EXECUTABLE, NOT_FOUND = 126, 127
NOT_EXECUTED = (NOT_EXECUTABLE, NOT_FOUND)
"""With what a process ends that was to execute a program and could not, as POSIX has it of shells, env and others."""

_NO_COMMAND = re.compile(rb": ([^:\n]+): (?:command )?not found\n?\Z")
"""A shell's last word: `job.sh: line 3: reco: command not found`."""

_WHO_SPEAKS = re.compile(rb"^[^\s:]+: (?=\S)", re.MULTILINE)
"""How most programs begin a line: with their own name, which is no complaint about a file of that name."""


def cause(known: Failures, code: int, ended: float) -> str:
    """Why a process ended that did not end well, as far as one of its failures tells it; else empty.

    `code` is as wait(2) has it, `ended` the time in seconds, CLOCK_MONOTONIC.
    """
    by = code & 0x7F
    if code == 0 or (by and by not in CRASHES):
        return ""
    last_first = [failure for failure in reversed(known.failed) if failure.time <= ended]
    said = known.said.lower()
    for failure in last_first:
        if _complains(said, failure):
            return _in_words(failure, last_first)
    for failure in last_first:
        if failure.error in RARE and ended - failure.time < SOON_SECONDS and (by or failure.error != errno.ENOMEM):
            return _in_words(failure, last_first)
    for failure in last_first:
        if ended - failure.time < SOON_SECONDS and _is_asked_for(known.arguments, code, failure):
            return _in_words(failure, last_first)
    missing = _NO_COMMAND.search(known.said)
    if missing and code == NOT_FOUND << 8:
        return f"no such command: {_shortened(_shown(missing[1]), CAUSE_BYTES // 2)}"
    return ""


def by_code(code: int) -> str:
    """What a shell says by its exit code alone if it did not find, or could not execute, a command: POSIX."""
    return {
        NOT_FOUND << 8: "as shells do if a command is not found",
        NOT_EXECUTABLE << 8: "as shells do if a command can't be executed",
    }.get(code, "")


def cpu_limit(seconds: int) -> str:
    """Why the kernel ended a process that was allowed so much CPU time; empty if 0: that is not why."""
    return f"used up its CPU time limit of {seconds} s (ulimit -t)" if seconds else ""


def _is_asked_for(arguments: Sequence[bytes], code: int, failure: Failure) -> bool:
    """Whether it is about what the process was to do: to become another program, or to open a file it was told of."""
    if failure.error not in COMMON or code & 0x7F:
        return False
    if failure.subject is Subject.PROGRAM:
        return code >> 8 in NOT_EXECUTED
    return failure.subject is Subject.PATH and any(_means(argument, failure.path) for argument in arguments)


def _means(argument: bytes, path: bytes) -> bool:
    """Whether an argument is this path, or ends with it as `--input=PATH`. A relative one may have become whole."""
    for told in {argument, argument.rpartition(b"=")[2]}:
        if posixpath.basename(told) and (told == path or (told[:1] != b"/" and path.endswith(b"/" + told))):
            return True
    return False


def _complains(said: bytes, failure: Failure) -> bool:
    """Whether the process has said that this failed."""
    if failure.error in COMMON:
        return bool(re.search(COMMON[failure.error][1], said)) and _names(said, failure.path)
    return failure.error in RARE and bool(re.search(RARE[failure.error][1], said))


def _names(said: bytes, path: bytes) -> bool:
    name = posixpath.basename(path.rstrip(b"/")).lower()
    said = _WHO_SPEAKS.sub(b"", said)
    return bool(name) and bool(re.search(rb"(?<![\w.-])" + re.escape(name) + rb"(?![\w-]|\.\w)", said))


def _in_words(failure: Failure, all_of_them: Sequence[Failure]) -> str:
    words = {**COMMON, **RARE}[failure.error][0]
    if failure.subject is Subject.SERVER:
        return f"{words} {_server(failure)}"
    if failure.subject is Subject.MEMORY:
        return words + _memory(failure)
    if failure.subject in (Subject.DESCRIPTORS, Subject.PROCESSES):
        return words + (f": limit {failure.limit}" if failure.limit >= 0 else "")
    path = failure.path
    if failure.error in (errno.ENOSPC, errno.EDQUOT) and failure.subject is Subject.FILE:
        words, path = f"{words} {_shown(failure.mount)}", failure.path
    elif failure.error in (errno.ENOSPC, errno.EDQUOT):
        return f"{words} {_shortened(_shown(path), CAUSE_BYTES - len(words) - 1)}"
    elif failure.error == errno.ENOENT and len(_folders(failure, all_of_them)) > 1:
        path = posixpath.basename(path)  # of a search, not the place that was looked at last
    return f"{words}: {_shortened(_shown(path), CAUSE_BYTES - len(words) - 2)}"


def _folders(failure: Failure, all_of_them: Sequence[Failure]) -> set[bytes]:
    """Where a file of that name was looked for."""
    name = posixpath.basename(failure.path)
    return {
        posixpath.dirname(other.path)
        for other in all_of_them
        if other.error == failure.error and posixpath.basename(other.path) == name
    }


def _memory(failure: Failure) -> str:
    if failure.limit < 0 or failure.held_bytes + failure.asked_bytes <= failure.limit:
        return f": {in_gib(failure.asked_bytes)} more"
    return f": limit {in_gib(failure.limit)}"


def _server(failure: Failure) -> str:
    address = ipaddress.IPv6Address(failure.address)
    if address.ipv4_mapped:
        return f"{address.ipv4_mapped}:{failure.port}"
    return f"[{address}]:{failure.port}"


def _shown(path: bytes) -> str:
    """A path is of the user's choice: nothing in it that a terminal takes for more, and no secret."""
    return command_line(path)


def _shortened(path: str, width: int) -> str:
    """At most `width` bytes, without its middle: how it begins says where it is, and how it ends what it is."""
    if len(path.encode()) <= width:
        return path
    head, tail = path[: width // 3], path[-(width // 2) :]
    while len(f"{head}...{tail}".encode()) > width:
        head, tail = head[:-1], tail[1:]
    return f"{head}...{tail}"
