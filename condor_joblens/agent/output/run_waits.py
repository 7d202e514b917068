"""How long calls of runs at level profile have waited, which the kernel counts: one artifact of each run, kept anew.

What level io counts at the same time tells how many calls there were, and so how many did not wait.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.model.classes import SYSCALLS
from condor_joblens.model.metrics import METRICS
from condor_joblens.profiles import call_waits
from condor_joblens.profiles.call_waits import LENGTHS_NS, ClassWaits
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.tracer.sensors import Io
from condor_joblens.tracer.sensors.io import CallWaits

_CALLS = tuple(metric.column for metric in METRICS if metric.group == "Syscall" and metric.name == "Calls")
"""Columns of the row, in the order of SYSCALLS."""


@dataclass
class _Known:
    """A run whose waits are kept."""

    run: int
    about: Artifact
    waits: CallWaits
    calls_before: np.ndarray
    name: str = ""  # of the artifact that is there


class RunWaits:
    """Keeps them."""

    def __init__(self, node: Node, artifacts: RunArtifacts) -> None:
        self._node, self._artifacts = node, artifacts
        self._known: dict[int, _Known] = {}  # by run number

    def begin(self, run: int, slot: int) -> None:
        """From now on, of a run that is counted at io in this slot."""
        sensor = self._sensor()
        waits = None if sensor is None else sensor.keep_waits(slot)
        if waits is None:
            return
        about = replace(
            self._artifacts.about(run), kind=call_waits.KIND, content_type=call_waits.CONTENT_TYPE, begun=time.time()
        )
        self._known[about.run_number] = _Known(run, about, waits, self._calls(run))

    def keep(self, run_number: int) -> None:
        """What is known of the run until now takes the place of what was kept before."""
        known = self._known.get(run_number)
        if known is not None:
            self._keep(known, is_last=False)

    def end(self, run_number: int) -> None:
        """The same, for the last time."""
        known = self._known.pop(run_number, None)
        if known is None:
            return
        try:
            self._keep(known, is_last=True)
        finally:
            sensor = self._sensor()
            if sensor is not None:
                sensor.keep_no_waits(known.waits)

    def _keep(self, known: _Known, is_last: bool) -> None:
        try:
            found = known.waits.read()
        except OSError as error:
            self._node.log_once(f"the kernel does not tell how long calls have waited: {error.strerror}")
            return
        calls = self._calls(known.run) - known.calls_before  # of what ended since, it did not hear above
        about = replace(known.about, ended=time.time())
        told = call_waits.CallWaits(about.begun, about.ended, _by_class(found, calls))
        kept = self._artifacts.keep_about(about, [call_waits.encode(told)], is_new=is_last)
        if kept is not None and known.name:
            self._artifacts.store.delete(known.name)
        known.name = known.name if kept is None else kept.name

    def _calls(self, run: int) -> np.ndarray:
        """How many there were of the run until now, by class: (11,)."""
        runs, tracer = self._node.runs, self._node.tracer
        slot = int(runs.state["kernel_slot"][run])
        if slot >= 0 and not runs.state["io_provisional"][run]:
            at_io, counted = tracer.sensors["io"].counters(np.array([slot]))
            if at_io.all():
                self._node.collectors.io.add(run, counted)
        found: np.ndarray = np.array([max(0, int(runs.rows[column][run])) for column in _CALLS])
        return found

    def _sensor(self) -> Io | None:
        sensor = getattr(self._node.tracer.sensors.get("io"), "sensor", None)
        return sensor if isinstance(sensor, Io) else None


def _by_class(found: np.ndarray, calls: np.ndarray) -> dict[str, ClassWaits]:
    """`found`: map_layout.CALL_WAITS, shape (); `calls`: (11,) that ended meanwhile."""
    table = found["waits"].reshape(len(found["short_ns"]), -1)
    return {
        name: ClassWaits(
            max(0, int(calls[place]) - int(table[place].sum())),
            tuple(table[place, : len(LENGTHS_NS)].tolist()),
            int(found["short_ns"][place]),
            int(found["long_ns"][place]),
        )
        for place, name in enumerate(SYSCALLS)
        if calls[place] > 0 or table[place].any()
    }
