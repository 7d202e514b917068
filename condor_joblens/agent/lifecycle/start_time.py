"""When a run began: its `start_time`, and since when it is counted."""

from __future__ import annotations

import time

from condor_joblens.agent.node import Node


def set_start_time(node: Node, run: int, epoch_seconds: float) -> None:
    """The run's cgroup was made then."""
    node.runs.rows["start_time"][run] = int(epoch_seconds)
    node.runs.state["began"][run] = time.monotonic() - max(0.0, time.time() - epoch_seconds)


def counting_begins(node: Node, run: int) -> None:
    """All that the run has used so far is not the job's: its rates are since now."""
    node.runs.state["began"][run] = time.monotonic()
