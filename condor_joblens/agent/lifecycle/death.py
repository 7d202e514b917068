"""Why a run died: the abnormal exits of its processes while it runs, and the sentence at its end."""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.node import Node
from condor_joblens.common.redact import clipped
from condor_joblens.jobs import death_sentence, failure_causes
from condor_joblens.jobs.sandbox import is_roots
from condor_joblens.model.death_causes import BY_HTCONDOR
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import cut_words, text
from condor_joblens.sample.kernel_counters import NANO, held_bytes
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend_protocol import Backend

Causes = dict[int, str]
"""Process (tgid) -> of which of its failures it ended, in words."""

HELPER = b"joblens_activate"[:15]
"""The wrapper's helper, by the kernel's name for it: its exit status is a message to the wrapper."""

HTCONDORS = "condor_"
"""The names of HTCondor's daemons begin with this: a starter, or the condor_procd that works for it."""


def record_exits(node: Node, runs: np.ndarray, found: np.ndarray) -> None:
    """Records the abnormal exits in `found` (map_layout.PROCESS_EVENT, shape (n,)); `runs` (n,) are their runs."""
    is_exit = found["kind"] == map_layout.PROCESS_EXIT
    main = is_exit & (found["flags"] & map_layout.PROCESS_MAIN != 0)
    abnormal = is_exit & ((found["exit_code"] != 0) | main) & (found["program"] != HELPER)
    for run in sorted(set(runs[abnormal].tolist())):  # np.unique loads numpy.ma: 1.4 MB, and ten milliseconds of an end
        node.guard(run, "abnormal exits", _record, node, run, found[abnormal & (runs == run)])


def _record(node: Node, run: int, found: np.ndarray) -> None:
    death, row = node.runs.state["death"][run : run + 1], node.runs.rows[run : run + 1]
    slot = int(node.runs.state["kernel_slot"][run])
    add_exits(death, found, causes_of(node.tracer, slot, found) if slot >= 0 else {})
    row["exits"] = death_sentence.exits_in_words(death[0], row.dtype["exits"].itemsize)


def causes_of(tracer: Backend, slot: int, found: np.ndarray) -> Causes:
    """Of which failures the last of these processes of a slot ended, as far as that is known.

    `found` is of map_layout.PROCESS_EVENT, shape (n,). What is known of a process is told once.
    """
    causes: Causes = {}
    for event in found[found["exit_code"] != 0][-death_sentence.KEPT :]:
        tgid, code, ended = int(event["tgid"]), int(event["exit_code"]), float(event["time_ns"]) * NANO
        known = tracer.failures(slot, tgid)
        if known.failed or known.said:
            causes[tgid] = failure_causes.cause(known, code, ended)
    return causes


def add_exits(death: np.ndarray, found: np.ndarray, causes: Causes | None = None) -> None:
    """Adds the exits `found` (map_layout.PROCESS_EVENT, shape (n,)) of a run to its `death` (DEATH, shape (1,)).

    `causes` says of some of them, by tgid, of which failure they ended.
    """
    by_tgid = causes or {}
    victims = found[found["flags"] & map_layout.PROCESS_OOM_VICTIM != 0]
    if len(victims):
        death["victim"] = _exits(victims[-1:], by_tgid)
        death["victim_bytes"] = held_bytes(victims[-1:])
    main = found[found["flags"] & map_layout.PROCESS_MAIN != 0]
    if len(main):
        death["main"] = _exits(main[-1:], by_tgid)
    failed = found[found["exit_code"] != 0]
    if not len(failed):
        return
    skipped = max(0, len(failed) - death_sentence.KEPT)
    if skipped and not death["first"]["pid"][0]:
        death_sentence.keep(death, _exits(failed[: death_sentence.KEPT], by_tgid))
        failed = failed[death_sentence.KEPT :]
        skipped = max(0, len(failed) - death_sentence.KEPT)
    death["count"] += skipped
    death_sentence.keep(death, _exits(failed[skipped:], by_tgid))


def _exits(found: np.ndarray, causes: Causes) -> np.ndarray:
    exits: np.ndarray = np.zeros(len(found), death_sentence.EXIT)
    exits["time"] = found["time_ns"] * NANO + (time.time() - time.monotonic())
    exits["lived"] = found["lived_ns"] * NANO
    exits["pid"], exits["parent"], exits["code"] = found["tgid"], found["parent_tgid"], found["exit_code"]
    for index, event in enumerate(found):
        program = death_sentence.program_of(bytes(event["program"]), bytes(event["command"]))
        exits["program"][index] = program.encode()
        cause = failure_causes.cpu_limit(int(event["cpu_limit_seconds"])) or causes.get(int(event["tgid"]), "")
        cause = cause or failure_causes.by_code(int(event["exit_code"]))
        exits["cause"][index] = clipped(cause, death_sentence.CAUSE_BYTES)
    return exits


def clear(node: Node, run: int) -> None:
    """The job starts now: what exited in its slot before was not the job's."""
    node.runs.state["death"][run : run + 1].view("u1")[:] = 0
    node.runs.rows["exits"][run] = node.runs.rows["death"][run] = node.runs.rows["first_failure"][run] = b""


def report(agent: Agent, run: int) -> bool:
    """The run's first process has ended: if that was a death, its row says why. Whether an event is to say so too.

    If HTCondor ended it, that is no death: the schedd alone knows whether it was removed, held or evicted. The row then
    has what is known here, and there is no event.
    """
    node = agent.node
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    ending = _ending(node, run)
    if ending is None:
        return False
    number = int(row["run_number"][0])
    words = death_sentence.sentence(state["death"][0], ending, agent.crashes.of(number), agent.crashes.raised(number))
    if words and row["level_number"][0] >= Level.PROFILE:
        agent.crashes.died(number, state["death"][0], ending)
    row["death"] = cut_words(words, "death")
    first = "" if words else death_sentence.first_failure(state["death"][0], ending)
    row["first_failure"] = cut_words(first, "first_failure")
    return bool(words) and not words.startswith(BY_HTCONDOR)


def exit_code(node: Node, run: int) -> int | None:
    """The exit code of the run's first process, as wait(2) has it; None if nobody saw it end."""
    slot = int(node.runs.state["kernel_slot"][run])
    if slot < 0 or not node.tracer.counters["main_exits"][slot]:
        return None
    return int(node.tracer.counters["main_exit_code"][slot])


def _ending(node: Node, run: int) -> death_sentence.RunEnding | None:
    code = exit_code(node, run)
    if code is None:
        return None
    row, state = node.runs.rows[run], node.runs.state[run]
    kernel = node.tracer.counters[int(state["kernel_slot"])]
    sender = text(bytes(kernel["ender"]))
    age = time.monotonic() - float(kernel["ender_ns"]) * NANO
    return death_sentence.RunEnding(
        code=code,
        time=time.time(),
        command=text(state["command"]),
        checkpoint_code=int(state["checkpoint_code"]),
        signal=int(kernel["ender_signal"]) if kernel["ender_ns"] else 0,
        signal_age=age,
        by_htcondor=_is_htcondors(int(kernel["ender_pid"]), sender, int(state["starter"])),
        sender=sender,
        limit_bytes=int(row["memory_limit_bytes"]),
    )


def _is_htcondors(pid: int, name: str, starter: int) -> bool:
    return pid > 0 and (pid == starter or (name.startswith(HTCONDORS) and is_roots(pid)))
