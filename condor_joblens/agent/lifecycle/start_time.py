"""When a run began: its `start_time` and its age."""

from __future__ import annotations

import time

from condor_joblens.agent.node import Node


def set_start_time(node: Node, run: int, epoch_seconds: float | None = None) -> None:
    """The run began then; None: now."""
    now = time.time()
    began = now if epoch_seconds is None else epoch_seconds
    node.runs.rows["start_time"][run] = int(began)
    node.runs.state["began"][run] = time.monotonic() - max(0.0, now - began)
