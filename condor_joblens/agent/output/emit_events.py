"""What joblensd itself tells into the ring of events: the moments of a run, its level, and what was lost."""

from __future__ import annotations

import time

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.metrics import text
from condor_joblens.shm.artifact_header import Artifact

UNKNOWN_EXIT = -1
"""In `exit_code`, where nobody saw the job's first process end."""

_MICROSECONDS = 1_000_000


def next_run_number(node: Node) -> int:
    """A number that no run of this node has had: the time in microseconds, or more where the clock went back."""
    living = node.runs.rows["run_number"][node.runs.living()]
    known = max(int(living.max(initial=0)), int(node.ended.rows["run_number"].max(initial=0)))
    return max(int(time.time() * _MICROSECONDS), known + 1)


def run_started(node: Node, run: int) -> None:
    """The run's job is known: from here on its number has a name."""
    row = node.runs.rows[run]
    _tell(node, run, EventKind.RUN_START, text(row["run"]), program=bytes(row["slot"]))


def run_ended(node: Node, run: int, exit_code: int = UNKNOWN_EXIT) -> None:
    """The run's first process has ended, or its cgroup is gone."""
    _tell(node, run, EventKind.RUN_END, text(node.runs.rows["run"][run]), exit_code=exit_code)


def level_changed(node: Node, run: int) -> None:
    """The run is watched at another level than before."""
    row = node.runs.rows[run]
    said = ": ".join(part for part in (text(row["policy"]), text(row["reason"])) if part)
    _tell(node, run, EventKind.LEVEL, said, value=int(row["level_number"]))


def known_losses(node: Node) -> int:
    """How many of the kernel's losses an earlier joblensd has told of; all, where no run is left that they concern."""
    runs = node.runs.living()
    told = int((node.runs.state["lost_before"][runs] + node.runs.rows["lost"][runs]).max(initial=-1))
    count = int(node.tracer.lost())
    return min(told, count) if told >= 0 else count


def kernel_losses(node: Node) -> None:
    """What the kernel could not count or tell since the last call, for the whole node."""
    count = node.tracer.lost()
    if count > node.lost:
        _tell(node, None, EventKind.LOSS, "in the kernel", value=count - node.lost)
    node.lost = count


def process_losses(node: Node) -> None:
    """What the ring of process events had no room for since the last call. The numbers lack nothing of it."""
    for kind, count in node.tracer.new_process_losses().items():
        _tell(node, None, EventKind.LOSS, f"{kind} events in the kernel", value=count)


def died(node: Node, run: int) -> None:
    """The run has died, and its row says why."""
    _tell(node, run, EventKind.DEATH, text(node.runs.rows["death"][run]))


def artifact_kept(node: Node, run: int, artifact: Artifact) -> None:
    """The artifact is there for its readers."""
    _tell(node, run, EventKind.ARTIFACT, artifact.name, value=artifact.length)


def artifact_lost(node: Node, run: int, kind: str, reason: str) -> None:
    """An artifact of the run was not kept, for a reason in words."""
    _tell(node, run, EventKind.LOSS, f"artifact {kind}: {reason}", value=1)


def _tell(
    node: Node,
    run: int | None,
    kind: EventKind,
    words: str,
    *,
    value: int = 0,
    exit_code: int = 0,
    program: bytes = b"",
) -> None:
    event: np.ndarray = np.zeros(1, EVENT)
    event["time"], event["kind"], event["value"], event["exit_code"] = time.time(), kind, value, exit_code
    event["program"] = program
    event["text"] = words.encode()[: EVENT["text"].itemsize].decode("utf-8", "ignore").encode()
    event["limit"] = -1
    if run is not None:
        event["run_number"] = node.runs.rows["run_number"][run]
    node.events.append(event)
