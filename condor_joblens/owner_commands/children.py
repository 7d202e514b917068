"""The verbs that a child does which has become a job's owner, with the system calls and the time that each may take."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.owner_commands import env, get, head, kill, log, ls, node, ps, tail
from condor_joblens.owner_commands.answers import Answers, Failed

READS = (
    "fstat", "getdents64", "lstat", "newfstatat", "openat", "pread64", "readlink", "readlinkat", "stat", "statx",
)  # fmt: skip
"""Calls that open and read files and folders."""

SECONDS = 15.0

FOLLOWED_BYTES = 192 << 20

Main = Callable[[Answers, dict[str, Any], int, int], None]
"""Answers a request about the job whose scratch folder and cgroup these descriptors are. Raises Failed."""


@dataclass(frozen=True)
class Verb:
    """One thing that is done."""

    main: Main
    calls: tuple[str, ...]
    seconds: float = SECONDS  # for what is followed; all else has SECONDS
    cpu_seconds: float = SECONDS

    def times(self, request: dict[str, Any]) -> tuple[float, float]:
        """Seconds, and seconds of CPU, for this request."""
        return (self.seconds, self.cpu_seconds) if request.get("follow") else (SECONDS, SECONDS)

    def memory(self, request: dict[str, Any], most: int) -> int:
        """Bytes of its own for this request, where others have `most`: what is followed may live for an hour."""
        return min(most, FOLLOWED_BYTES) if request.get("follow") else most


VERBS = {
    "ps": Verb(ps.main, READS),
    "tail": Verb(tail.main, (*READS, "dup"), tail.FOLLOWED_SECONDS + SECONDS, tail.FOLLOWED_CPU_SECONDS + SECONDS),
    "head": Verb(head.main, (*READS, "dup")),
    "cat": Verb(head.whole, (*READS, "dup")),
    "log": Verb(log.main, (*READS, "dup"), tail.FOLLOWED_SECONDS + SECONDS, tail.FOLLOWED_CPU_SECONDS + SECONDS),
    "get": Verb(get.main, (*READS, "dup")),
    "env": Verb(env.main, READS),
    "node": Verb(node.main, (*READS, "fstatfs", "sched_getaffinity", "uname")),
    "ls": Verb(ls.main, (*READS, "dup")),
    "kill": Verb(kill.main, (*READS, "pidfd_open", "pidfd_send_signal")),
}


def run(verb: Verb, channel: socket.socket, request: dict[str, Any], given: Sequence[int]) -> None:
    """Answers it, and leaves if nobody listens any more."""
    answers = Answers(channel)
    scratch, cgroup = given
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        try:
            verb.main(answers, request, scratch, cgroup)
        except Failed as failed:
            answers.failed(str(failed))
        else:
            answers.whole()
