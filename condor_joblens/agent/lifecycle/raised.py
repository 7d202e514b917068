"""Exceptions that end Pythons of a job: each tells joblensd itself, while it waits to be heard (hooks/python).

It is the job's own word. Its type and text go into the sentence of the run's death, and the whole traceback is kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle.crash_words import MOST_OF_RUN
from condor_joblens.common.redact import command_line, printable
from condor_joblens.control.verbs import Refused
from condor_joblens.jobs.death_sentence import Raised
from condor_joblens.model.levels import Level

TRACEBACK = "traceback"
"""The kind of the artifact."""

CONTENT_TYPE = "text/plain; charset=utf-8"

MOST_WORDS = 300
"""Characters of what is said of an exception in a sentence."""

MOST_KEPT = MOST_OF_RUN
"""Tracebacks of a run: the first one, and the last ones."""

_INITIAL_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO, include/linux/proc_ns.h: the inode of the kernel's own pid namespace."""


def hear(agent: Agent, run: int, pid: int, line: str, place: str, traceback: str) -> None:
    """A process of the run has raised, and ends. Raises Refused if its job is not traced.

    `line` is the exception's type and text, `place` FILE:LINE or empty.
    """
    why = why_not(agent, run)
    if why:
        raise Refused(why)
    number = int(agent.node.runs.rows["run_number"][run])
    known = Raised(pid if _is_in_kernels_namespace() else 0, _started(pid), in_words(line, place))
    agent.crashes.add_raised(number, known)
    _keep(agent, run, pid, traceback)


def why_not(agent: Agent, run: int) -> str:
    """Why nothing of the run's Pythons is heard; empty if it is. One about which nobody has decided yet is heard."""
    node = agent.node
    level = Level(int(node.runs.rows["level_number"][run]))
    if node.config.max_level < Level.TRACE or (node.runs.state["named"][run] and level < Level.TRACE):
        return f"the job is at level {level.word}: only at level trace its exceptions are kept"
    return ""


def in_words(line: str, place: str) -> str:
    """`KeyError: 'x' (fit.py:12)`, without what looks like a secret: it goes into the job's ad."""
    words = command_line(line[:MOST_WORDS].encode("utf-8", "surrogateescape"), cut=len(line) > MOST_WORDS)
    file, colon, number = place.rpartition(":")
    at = f" ({file.rpartition('/')[2]}:{number})" if colon and number.isdigit() else ""
    return words + printable(at)


def _keep(agent: Agent, run: int, pid: int, traceback: str) -> None:
    artifacts, now = agent.output.artifacts, time.time()
    about = dataclasses.replace(artifacts.about(run), kind=TRACEBACK, content_type=CONTENT_TYPE, begun=now, ended=now)
    kept = [
        each
        for each in artifacts.store.stored(about.run_number)
        if each.run == about.run and each.name.endswith(f".{TRACEBACK}")
    ]
    if len(kept) >= MOST_KEPT:
        artifacts.store.delete(kept[1].name)
    lines = [printable(each) for each in traceback.split("\n")]
    artifacts.keep_about(about, [f"Process {pid}\n".encode(), "\n".join(lines).encode("utf-8", "replace")])


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
