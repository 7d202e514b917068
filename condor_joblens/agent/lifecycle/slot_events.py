"""The kernel's events about slots, in their order: a slot's cgroup is made, its first process exits, it is gone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from condor_joblens.agent import measure
from condor_joblens.agent.agent import Agent
from condor_joblens.agent.lifecycle import run_end, run_start
from condor_joblens.agent.node import Node
from condor_joblens.common import readiness
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend_protocol import EVENTS_AT_A_TIME
from condor_joblens.tracer.cgroup_uses import inode_of

PATIENCE = 0.0015
"""Seconds from the end of a first process in which its slot is mostly empty, and all of its connections are closed."""

MOMENT = 0.0003
"""Seconds between two looks whether they are."""


def drain(agent: Agent) -> None:
    """Handles all events since the last call, ends of runs before all else: their starters do not wait."""
    _Turn(agent).take()


class _Turn:
    """One call of `drain`: what it has read and not handled yet."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._exited: dict[int, bool] = {}  # run -> whether its slot is empty
        self._untold: dict[int, bool] = {}  # run whose last ad is written -> whether it has died
        self._waiting: deque[np.void] = deque()  # births, cgroups that are gone, and ends of runs still to be born
        self._until = 0.0
        self._in_hand = 0  # the cgroup of the run that is being started or closed; 0: none

    def take(self) -> None:
        """One thing at a time: each takes a millisecond or more, and meanwhile other runs may end."""
        while True:
            self.ends()
            if self._untold:
                self._tell()
            elif self._waiting:  # a new run may take an ended run's place
                event = self._waiting.popleft()
                self._in_hand = int(event["cgroup_id"])
                _handle(self._agent, event, self.ends)
                self._in_hand = 0
            else:
                return

    def ends(self) -> None:
        """Handles all ends that there are; all other events wait for their turn."""
        while True:
            if not self._read():
                continue
            is_closing = _is_closing(self._agent, self._exited, self._until)
            if self._exited and not is_closing:
                exited, self._exited = self._exited, {}
                self._untold.update(run_end.first_process_exited(self._agent, exited))
            elif is_closing and self._untold and not self._in_hand:
                self._tell()
            elif is_closing:
                readiness.readable([self._agent.node.tracer], MOMENT)
            else:
                return

    def _tell(self) -> None:
        run = next(iter(self._untold))
        run_end.tell(self._agent, run, self._untold.pop(run))

    def _read(self) -> bool:
        """Reads what the kernel tells; whether that was all."""
        found, ending = self._agent.node.tracer.events(), []
        for event in found:
            run = None if int(event["cgroup_id"]) == self._in_hand else _ended_run(self._agent.node, event)
            if run is None:
                self._waiting.append(event)
                continue
            self._until = self._until if self._exited else time.monotonic() + PATIENCE
            self._exited[run] = self._exited.get(run, False) or int(event["kind"]) == map_layout.EMPTY
            ending.append(run)
        if ending:
            self._agent.output.job_ads.lease(ending)
        return len(found) < EVENTS_AT_A_TIME


def _ended_run(node: Node, event: np.void) -> int | None:
    """The run whose first process has exited, or whose slot is empty; None for all other events."""
    is_end = int(event["kind"]) in (map_layout.MAIN_EXITED, map_layout.EMPTY)
    return node.runs.by_cgroup.get(int(event["cgroup_id"])) if is_end else None


def _handle(agent: Agent, event: np.void, between: Callable[[], None]) -> None:
    kind, cgroup_id = int(event["kind"]), int(event["cgroup_id"])
    if kind == map_layout.BORN:
        run_start.cgroup_made(agent, cgroup_id, event, between)
        return
    run = agent.node.runs.by_cgroup.get(cgroup_id)
    if run is None:
        if kind == map_layout.CGROUP_GONE:
            agent.leftovers.gone(agent.node, inode_of(cgroup_id))
        return
    if kind == map_layout.CGROUP_GONE:
        run_end.cgroup_gone(agent, run, between)
    else:
        for ended, has_died in run_end.first_process_exited(agent, {run: kind == map_layout.EMPTY}).items():
            run_end.tell(agent, ended, has_died)


def _is_closing(agent: Agent, exited: dict[int, bool], until: float) -> bool:
    """Whether it is worth while to wait for connections that are being closed; not from `until` (CLOCK_MONOTONIC) on.

    Those that stay open require a walk over all that the machine can have, for which there is hardly the time. Where
    we have the core, the kernel closes them when we sleep.
    """
    return bool(exited) and time.monotonic() < until and measure.any_open(agent.node, list(exited))
