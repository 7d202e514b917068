"""The kernel's events about slots, in their order: a slot's cgroup is made, its first process exits, it is gone."""

from __future__ import annotations

import select
import time
from collections import deque

import numpy as np

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import run_end, run_start
from condor_joblens.agent.node import Node
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend_protocol import EVENTS_AT_A_TIME

PATIENCE = 0.0015
"""Seconds from the end of a first process in which its slot is mostly empty, and all of its connections are closed."""

MOMENT = 0.0003
"""Seconds between two looks whether they are."""


def drain(agent: Agent) -> None:
    """Handles all events since the last call, ends of runs before all else: their starters do not wait."""
    node = agent.node
    exited: dict[int, bool] = {}  # run -> whether its slot is empty
    untold: dict[int, bool] = {}  # run whose last ad is written -> whether it has died
    waiting: deque[np.void] = deque()  # births, cgroups that are gone, and ends of runs that are still to be born
    until = 0.0
    while True:
        found = node.tracer.events()
        for event in found:
            run = _ended_run(node, event)
            if run is None:
                waiting.append(event)
                continue
            until = until if exited else time.monotonic() + PATIENCE
            exited[run] = exited.get(run, False) or int(event["kind"]) == map_layout.EMPTY
        if len(found) == EVENTS_AT_A_TIME:
            continue
        is_closing = _is_closing(agent, exited, until)
        # one thing at a time: each takes a millisecond or more, and meanwhile other runs may end
        if exited and not is_closing:
            untold.update(run_end.first_process_exited(agent, exited))
            exited.clear()
        elif untold:
            run = next(iter(untold))
            run_end.tell(agent, run, untold.pop(run))
        elif is_closing:
            select.select([node.tracer.fileno()], [], [], MOMENT)
        elif waiting:  # a new run may take an ended run's place
            _handle(agent, waiting.popleft())
        else:
            return


def _ended_run(node: Node, event: np.void) -> int | None:
    """The run whose first process has exited, or whose slot is empty; None for all other events."""
    is_end = int(event["kind"]) in (map_layout.MAIN_EXITED, map_layout.EMPTY)
    return node.runs.by_cgroup.get(int(event["cgroup_id"])) if is_end else None


def _handle(agent: Agent, event: np.void) -> None:
    kind, cgroup_id = int(event["kind"]), int(event["cgroup_id"])
    if kind == map_layout.BORN:
        run_start.cgroup_made(agent, cgroup_id, event)
        return
    run = agent.node.runs.by_cgroup.get(cgroup_id)
    if run is None:
        return
    if kind == map_layout.CGROUP_GONE:
        run_end.cgroup_gone(agent, run)
    else:
        for ended, has_died in run_end.first_process_exited(agent, {run: kind == map_layout.EMPTY}).items():
            run_end.tell(agent, ended, has_died)


def _is_closing(agent: Agent, exited: dict[int, bool], until: float) -> bool:
    """Whether it is worth while to wait for connections that are being closed; not from `until` (CLOCK_MONOTONIC) on.

    Those that stay open require a walk over all that the machine can have, for which there is hardly the time. Where
    we have the core, the kernel closes them when we sleep.
    """
    return bool(exited) and time.monotonic() < until and measure.any_open(agent.node, list(exited))
