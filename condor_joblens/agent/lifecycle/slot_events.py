"""The kernel's events about slots, in their order: a slot's cgroup is made, its first process exits, it is gone."""

from __future__ import annotations

import select
import time

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import run_end, run_start
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend_protocol import EVENTS_AT_A_TIME

PATIENCE = 0.002
"""Seconds from the end of a first process in which its slot is mostly empty, and all of its connections are closed."""


def drain(agent: Agent) -> None:
    """Handles all events since the last call."""
    node = agent.node
    exited: dict[int, bool] = {}  # run -> whether its slot is empty
    until = time.monotonic() + PATIENCE
    while True:
        found = node.tracer.events()
        for event in found:
            kind, cgroup_id = int(event["kind"]), int(event["cgroup_id"])
            if kind == map_layout.BORN:
                run_end.first_process_exited(agent, exited)  # the new run may take an ended run's place
                exited.clear()
                run_start.cgroup_made(agent, cgroup_id, event)
                continue
            run = node.runs.by_cgroup.get(cgroup_id)
            if run is None:
                continue
            if kind == map_layout.CGROUP_GONE:
                if run in exited:
                    run_end.first_process_exited(agent, {run: exited.pop(run)})
                run_end.cgroup_gone(agent, run)
            else:
                exited[run] = exited.get(run, False) or kind == map_layout.EMPTY
        if len(found) < EVENTS_AT_A_TIME and not _more_to_come(agent, exited, until):
            run_end.first_process_exited(agent, exited)
            return


def _more_to_come(agent: Agent, exited: dict[int, bool], until: float) -> bool:
    """Waits until then (CLOCK_MONOTONIC) for more events, if that is worth while; whether there are any.

    Connections that are still open require a walk over those of the whole machine, for which there is hardly the time.
    """
    running = [run for run, is_empty in exited.items() if not is_empty]
    left = until - time.monotonic()
    if not running or left <= 0 or not measure.any_open(agent.node, running):
        return False
    return bool(select.select([agent.node.tracer.fileno()], [], [], left)[0])
