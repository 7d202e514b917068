"""Exceptions that end Pythons of a job: each tells joblensd itself, while it waits to be heard (hooks/python).

It is the job's own word. Its type and text go into the sentence of the run's death, and the whole traceback is kept.
"""

from __future__ import annotations

import contextlib
import os
import time

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import python_tracing
from condor_joblens.agent.lifecycle import local_variables
from condor_joblens.common.redact import command_line, printable
from condor_joblens.control.verbs import Refused
from condor_joblens.jobs.death_sentence import Raised

MOST_WORDS = 300
"""Characters of what is said of an exception in a sentence."""

_INITIAL_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO, include/linux/proc_ns.h: the inode of the kernel's own pid namespace."""


def hear(agent: Agent, run: int, pid: int, line: str, place: str, traceback: str) -> bool:
    """A process of the run has raised, and ends. Raises Refused if its job is not traced.

    `line` is the exception's type and text, `place` FILE:LINE or empty. Whether local variables are to follow.
    """
    why = python_tracing.why_not(agent.levels, run)
    if why:
        raise Refused(why)
    number = int(agent.node.runs.rows["run_number"][run])
    known = Raised(pid if _is_in_kernels_namespace() else 0, _started(pid), in_words(line, place), time.time())
    agent.crashes.add_raised(number, known)
    wants = python_tracing.wants_variables(agent.levels, run)
    agent.tracebacks.hear(agent.output.artifacts, run, pid, known.words, traceback, goes_on=wants)
    return wants


def hear_variables(agent: Agent, run: int, pid: int, lines: str) -> None:
    """The local variables of that process. Raises Refused if nobody has asked for them."""
    if not python_tracing.wants_variables(agent.levels, run):
        raise Refused("nobody has asked for local variables")
    agent.tracebacks.go_on(agent.output.artifacts, run, pid, local_variables.shown(lines))


def settle(agent: Agent, run: int) -> None:
    """The policies have decided about the run: what was heard before is kept, or forgotten as if it had not been."""
    if python_tracing.why_not(agent.levels, run):
        agent.crashes.forget_raised(int(agent.node.runs.rows["run_number"][run]))
        agent.tracebacks.forget(run)
    else:
        agent.tracebacks.keep_due(agent.output.artifacts, run)


def in_words(line: str, place: str) -> str:
    """`KeyError: 'x' (fit.py:12)`, without what looks like a secret: it goes into the job's ad."""
    words = command_line(line[:MOST_WORDS].encode("utf-8", "surrogateescape"), cut=len(line) > MOST_WORDS)
    file, colon, number = place.rpartition(":")
    at = f" ({file.rpartition('/')[2]}:{number})" if colon and number.isdigit() else ""
    return words + printable(at)


def _is_in_kernels_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _INITIAL_NAMESPACE
    except OSError:
        return False


def _started(pid: int) -> float:
    """When a process began, epoch seconds; 0 if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as stat:
        ticks = int(stat.read(4096).rpartition(b") ")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    return 0.0
