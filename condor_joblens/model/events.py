"""What happens to the runs of a node, one record an event: the other half of what joblensd publishes, beside the rows.

A record is small and of fixed size. So a ring of them can be written and read without a lock, and a batch of them is
one numpy array. A run is named by its `run_number` (metrics.FIELDS): the record RUN_START says whose it is.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class EventKind(enum.IntEnum):
    """What happened; numbers are never used again for something else."""

    RUN_START = 1  # text: the run (GlobalJobId#n); program: the slot; sent once the job is known
    RUN_END = 2  # exit_code: of the job's first process; text: the run
    EXEC = 3  # pid, parent_pid, program; text: the redacted command line
    EXIT = 4  # pid, parent_pid, program, exit_code, lived_seconds
    OOM = 5  # pid, program: the OOM killer's choice; value: its bytes of memory; limit: the cgroup's, -1 if none
    DEATH = 6  # text: why the run died, as in JobLensUsage.Death; none where HTCondor ended it
    LEVEL = 7  # value: the new level's number; text: who decided, and why
    LOSS = 8  # value: how many events were lost since the last LOSS; text: where
    ARTIFACT = 9  # value: bytes of its content; text: the name of its file, a sequence number and the kind
    HANG = 10  # value: 1 the job seems to hang, 0 it does no more; text: the cause
    TRIGGER = 11  # program: the file of triggers that sends it; text: what it says; value: 1 if it is to be mailed
    TRACEBACK = 12  # pid; text: the exception that ended a Python, and where; of jobs that ask for it at level trace
    FAILED_OPEN = 13  # of triggers alone: program, exit_code: errno, value: how often in a minute; text: the path
    # the following are of triggers alone too; texts of several PARTS have a line break between them
    FUNCTION = 14  # a call has ended: pid, parent_pid: thread, exit_code: FUNCTION_ENDS, value: depth, program: the
    #                result, lived_seconds: NaN if unknown; text: the function, the traced one that called it, arguments
    COMMAND = 15  # of a bash: pid, program: the script, value: its line, limit: COMMAND_ENDS, exit_code: status or -1,
    #               lived_seconds as above; text: its words
    EXCEPTION = 16  # thrown by C++: pid, parent_pid: thread; text: its type, the function that throws, what()
    SIGNAL = 17  # sent: pid, program, value: its number, parent_pid and text: who sent it, as far as somebody did
    REFUSED = 18  # a connect that did not come about: pid, program, exit_code: errno, text: the address


TOLD_TO_TRIGGERS = frozenset(kind for kind in EventKind if kind >= EventKind.FAILED_OPEN)
"""Kinds that are in no ring, so no sink gets them."""

FUNCTION_ENDS = ("returned", "left", "unwound", "entered")
"""How a call ended, as tracing/calls.py has it; `entered`: its entry alone is known."""

COMMAND_ENDS = ("ended", "background", "pipe", "trap", "not seen")
"""How a command of a bash ended, as tracing/commands.py has it."""

PART = "\n"
"""Between the parts of a text that has several."""


SINKS_WITHOUT_EVENTS = frozenset({"prometheus", "prmon"})
"""Sinks that take no events, by name. If a node has no others, nobody waits for an event."""

EVENT: np.dtype[Any] = np.dtype(
    [
        ("sequence", "u8"),  # 1, 2, 3 ... within one writer's ring; given by the ring
        ("time", "f8"),  # epoch seconds
        ("run_number", "u8"),  # 0: the whole node's
        ("kind", "u4"),
        ("pid", "i4"),  # in joblensd's pid namespace; 0: unknown there
        ("parent_pid", "i4"),
        ("exit_code", "i4"),  # as wait(2) has it: exit code << 8, or the signal, + 128 with a core
        ("value", "i8"),
        ("limit", "i8"),
        ("lived_seconds", "f8"),
        ("program", "S32"),
        ("text", "S160"),  # UTF-8, cut at a character
    ],
    align=True,
)
"""One event: 256 bytes."""
