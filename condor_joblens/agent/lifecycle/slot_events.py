"""What the kernel tells of slots, in its order: births and ends."""

from __future__ import annotations

import select
import time

from condor_joblens.agent import measure
from condor_joblens.agent.lifecycle import run_end, run_start
from condor_joblens.agent.node import Node
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend import EVENTS_AT_A_TIME

PATIENCE = 0.002
"""Seconds from the end of a first process in which its slot is mostly empty, and all of its connections are closed."""


def take(node: Node) -> None:
    """Everything the kernel has told since the last call, in its order."""
    ending: dict[int, bool] = {}  # run -> whether its slot is empty
    until = time.monotonic() + PATIENCE
    while True:
        found = node.tracer.events()
        for event in found:
            kind, cgroup_id = int(event["kind"]), int(event["cgroup_id"])
            if kind == map_layout.BORN:
                run_end.ended(node, ending)  # a birth may take an ended run's place
                ending.clear()
                run_start.born(node, cgroup_id, event)
                continue
            run = node.runs.by_cgroup.get(cgroup_id)
            if run is None:
                continue
            if kind == map_layout.CGROUP_GONE:
                if run in ending:
                    run_end.ended(node, {run: ending.pop(run)})
                run_end.gone(node, run)
            else:
                ending[run] = ending.get(run, False) or kind == map_layout.EMPTY
        if len(found) < EVENTS_AT_A_TIME and not _goes_on(node, ending, until):
            run_end.ended(node, ending)
            return


def _goes_on(node: Node, ending: dict[int, bool], until: float) -> bool:
    """Whether more is told until then (CLOCK_MONOTONIC), where it is worth waiting for.

    Connections that are still open ask for a walk over those of the whole machine, for which there is hardly the time.
    """
    running = [run for run, is_empty in ending.items() if not is_empty]
    left = until - time.monotonic()
    if not running or left <= 0 or not measure.any_open(node, running):
        return False
    return bool(select.select([node.tracer.fileno()], [], [], left)[0])
