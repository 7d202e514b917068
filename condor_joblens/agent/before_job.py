"""What ran in a slot before its job: the wrapper, whose numbers are taken off, or more, which stays in the numbers.

A library in the job's LD_PRELOAD, or a program that the job's environment makes the wrapper's shell start, is work of
the job's user. If there was any, nothing is set to zero, and no number is hidden. The wrapper is counted too, and the
row says that it is not the job alone.

A wrapper that joblensd does not hear in time starts the job all the same: then it is counted with the job, too.

If the job has process ids of its own, condor_pid_ns_init runs after the wrapper and starts the job. It goes on beside
the job, and the kernel leaves it out (bpf_programs/basic/process.bpf.c).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.sample import cgroup_files, io_counters
from condor_joblens.tracer import map_layout

NOTE = "more than its wrapper ran before the job: it is counted with the job, and the wrapper too"

UNHEARD = "joblensd did not hear the wrapper in time: the wrapper is counted with the job"

INIT = "condor_pid_ns_init did more than it does by itself: it is counted with the job"

WORDS = {map_layout.KEPT_WRAPPER: NOTE, map_layout.KEPT_INIT: INIT}
"""What the row says, by `kept_early` of map_layout.COUNTERS."""

PATIENCE = 10.0
"""Seconds that a wrapper has from its call until it starts the job."""


def only_wrapper_ran(node: Node, run: int) -> bool:
    """Whether nothing but the wrapper has run in the slot, as far as is known when it calls; else the row says so.

    What it does from then on the program at its exec sees.
    """
    know_init(node)  # it comes after the wrapper: one that an upgrade has put there is known in time
    slot = int(node.runs.state["kernel_slot"][run])
    if slot < 0:
        return True
    count = node.tracer.counters[slot]
    if _is_within(count) and _are_wrappers(node, count) and _used_little(node, run, slot):
        return True
    node.tracer.counters["kept_early"][slot] = map_layout.KEPT_WRAPPER
    _declare(node, run)
    return False


def declare(node: Node, runs: np.ndarray) -> None:
    """Says in the rows of `runs` (n,) where more than the job is counted, as the kernel has found."""
    slots, counters = node.runs.state["kernel_slot"][runs], node.tracer.counters
    kept = (slots >= 0) & (counters["kept_early"][slots] != 0)
    for run in runs[kept].tolist():
        _declare(node, run, WORDS.get(int(counters["kept_early"][node.runs.state["kernel_slot"][run]]), NOTE))
    unheard = (slots >= 0) & ~kept & _with_wrapper(node, counters[slots])
    for run in runs[unheard & node.runs.rows["complete"][runs]].tolist():
        _declare(node, run, UNHEARD)


def give_up_waiting(node: Node, runs: np.ndarray, at_end: bool) -> None:
    """Takes a wrapper for the job itself if it has called and has not started the job; it is counted from now on.

    At the end of a run that needs one more thing: it did more than a wrapper does. Else its job could not be started,
    and there is nothing to count. `runs` has shape (n,).
    """
    state, counters = node.runs.state, node.tracer.counters
    slots = state["kernel_slot"][runs]
    waiting = (slots >= 0) & (counters["awaits_exec"][slots] == map_layout.AWAITS_JOB)
    if not waiting.any():
        return
    if at_end:
        waiting &= ~np.array([_is_within(count, exits=1) for count in counters[slots]], "?")
    else:
        waiting &= state["began"][runs] + PATIENCE < time.monotonic()
    counters["kept_early"][slots[waiting]] = map_layout.KEPT_WRAPPER
    counters["awaits_exec"][slots[waiting]] = map_layout.AWAITS_NOTHING


def know_init(node: Node) -> None:
    """Tells the kernel which program condor_pid_ns_init is, if it is another one than before."""
    found = node.pid_namespace_init.look()
    if found is not None:
        node.tracer.know_init(*found)


LATE = "level io began "
"""So begins what `late_note` says."""


def late_note(seconds: float) -> str:
    """The note about what level io has missed."""
    age = f"{seconds:.0f}" if seconds >= 1 else f"{seconds:.3f}"
    return f"{LATE}{age} s after the job: what it did at other levels is not in the numbers of io"


def _is_within(count: Any, exits: int = 0) -> bool:
    """Whether what has ended in the slot is no more than a wrapper does, with so many `exits` beside.

    condor_pid_ns_init is one program more, and its child one fork and one exit.
    """
    inits = int(count["init_tgid"] > 0)
    beside = {"executed": inits, "forked": inits, "exited": exits + inits}
    # sums begin below 0: what the first process did before its exec is not the slot's
    return all(
        int(count[name].astype("i8")) <= most + beside.get(name, 0) for name, most in map_layout.WRAPPERS_MOST.items()
    )


def _are_wrappers(node: Node, count: Any) -> bool:
    """Whether the slot's programs are those that the wrapper runs."""
    programs = zip(count["program_devices"].tolist(), count["program_inodes"].tolist())
    started = min(int(count["executed"]), map_layout.WRAPPERS_MOST["executed"])
    return all(node.wrapper_programs.knows(*program) for program, _ in zip(programs, range(started)))


def _with_wrapper(node: Node, counts: np.ndarray) -> np.ndarray:
    """Where the wrapper's helper is among a job's first programs, shape (n,): counting began before it called.

    While the helper runs it may still be heard: the job comes behind it.
    """
    found: np.ndarray = np.zeros(len(counts), "?")
    for device, inode in node.wrapper_programs.helpers:
        found |= ((counts["program_devices"] == device) & (counts["program_inodes"] == inode)).any(axis=1)
    is_past = counts["executed"] > map_layout.WRAPPERS_MOST["executed"]
    found &= is_past & (counts["awaits_exec"] == map_layout.AWAITS_NOTHING)
    return found


def _used_little(node: Node, run: int, slot: int) -> bool:
    """Whether CPU time and, if level io counts already, system calls are no more than a wrapper's."""
    handles, most = node.handles[run], map_layout.WRAPPERS_MOST
    used = cgroup_files.read_cpu([handles.files])["cpu_seconds"][0] - handles.cpu_before
    if used > map_layout.WRAPPERS_CPU_SECONDS:
        return False
    _, counted = node.tracer.sensors["io"].counters(np.array([slot]))
    calls, moved = io_counters.calls_and_bytes(counted)
    return calls <= most["read_calls"] and moved <= most["call_read_bytes"]


def _declare(node: Node, run: int, words: str = NOTE) -> None:
    node.runs.rows["complete"][run] = False
    notes = node.handles[run].notes
    if not any(words in note for note in notes.values()):
        notes["early"] = words
        node.update_note(run)
