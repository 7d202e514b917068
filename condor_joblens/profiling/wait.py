"""What one thread waits for: one word of a closed list, the thing itself, and who has it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Cause(str, enum.Enum):
    """Every cause there is."""

    RUNS = "runs"  # it runs, or waits for a core
    BUSY = "busy"  # the same for long, in the same places: only samples say that (profiling/steady.py), and no look
    FILE_LOCK = "file lock"
    MUTEX = "mutex"
    DEADLOCK = "deadlock"
    THREAD = "thread"  # that it should end
    FUTEX = "futex"  # a condition variable, semaphore or lock that does not say who has it
    CHILD = "child"
    SLEEP = "sleep"
    PIPE = "pipe"
    NETWORK = "network"
    FILE = "file"
    PAGE = "page"  # of a file that is mapped
    TERMINAL = "terminal"
    EVENTS = "events"  # any of several descriptors
    CLIENT = "client"  # that somebody connects
    SIGNAL = "signal"
    SEMAPHORE = "semaphore"
    QUEUE = "message queue"
    MEMORY = "memory"  # its cgroup has more than memory.high
    STOPPED = "stopped"
    ENDED = "ended"  # a process for which its parent has not waited
    NOT_OURS = "not the owner's"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Wait:
    """What a thread waits for. `object` is the thing, in words that need no others; `holder` who has it.

    What follows says parts of both to programs.
    """

    cause: Cause
    object: str = ""
    holder: str = ""
    holder_pid: int = 0  # 0: unknown, or none of the job's
    holder_tid: int = 0
    has_deadline: bool = False  # it ends by itself, whatever happens
    holder_job: str = ""  # another job of this node
    descriptor: int = -1  # of the process
    target: str = ""  # path of a file, FIFO or terminal; else as the descriptor's link says: pipe:[12]
    filesystem: str = ""  # type of the file's, as fuse.cvmfs2
    mount: str = ""  # where that is mounted
    protocol: str = ""  # tcp, udp or unix
    peer: str = ""  # address and port of the other end
    is_silent: bool = False  # the file server or the other end has sent nothing since the wait began
    is_within: bool = False  # as far as can be seen from the job, none but its own processes can end it


FROZEN = "its cgroup is frozen"
"""The object of a wait in a job that is suspended."""
