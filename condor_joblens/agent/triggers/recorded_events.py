"""What of the flight recorder's rings triggers are told: failed opens, signals, connects that did not come about.

They are there anyway, of jobs at level trace. While a trigger wants some, the rings are looked into every few seconds.
What has been overwritten by then is not told.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.agent.triggers.failed_opens import FailedOpens, failed_opens
from condor_joblens.common.redact import Redactor, clipped
from condor_joblens.common.system_calls import numbers
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.tracer._bpf import lib
from condor_joblens.tracer.sensors import recorder_of
from condor_joblens.tracer.sensors.recorder import NEVER
from condor_joblens.tracing.recorder_reader import address

LOOK_SECONDS = 2.0
MOST_SECONDS = 0.2
"""CPU time of a look for secrets: what is left then is told without its text."""

MOST_OF_KIND = 100
"""Signals, and likewise connects, of one run that are told at a look: the last ones. The others are counted."""

_CONNECT = numbers()["connect"]
_INTERNET = 2, 10  # AF_INET, AF_INET6
_NONE: np.ndarray = np.zeros(0, EVENT)


@dataclass
class _OfRun:
    """What is known of a run."""

    last: tuple[int, int] = NEVER  # event of its ring that was looked at
    opens: FailedOpens = field(default_factory=FailedOpens)


class RecordedEvents:
    """Of all recorded runs."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._of: dict[int, _OfRun] = {}  # by run number
        self._next = 0.0
        self.untold = 0
        """Events beyond MOST_OF_KIND."""

    def forget(self) -> None:
        """Nobody wants to know of them."""
        self._of.clear()

    def look(self, now: float, wanted: Collection[EventKind]) -> np.ndarray:
        """Events (EVENT, shape (n,)) of these kinds since the last look; `now` is time.monotonic()."""
        sensor = recorder_of(self._node.tracer.sensors)
        if now < self._next or sensor is None:
            return _NONE
        self._next = now + LOOK_SECONDS
        runs = self._node.runs
        known, self._of = self._of, {}
        redactor, found = Redactor(MOST_SECONDS), []
        for run in runs.living().tolist():
            slot, number = int(runs.state["kernel_slot"][run]), int(runs.rows["run_number"][run])
            if slot >= 0 and not runs.rows["final"][run]:
                of = self._of[number] = known.get(number, _OfRun())
                records, of.last = sensor.rare_since(slot, of.last)
                if len(records):
                    found += self._made(of, records, number, now, wanted, redactor)
        events: np.ndarray = np.concatenate([_NONE, *found])
        return events

    def _made(
        self,
        of: _OfRun,
        records: np.ndarray,
        number: int,
        now: float,
        wanted: Collection[EventKind],
        redactor: Redactor,
    ) -> list[np.ndarray]:
        """Of one run; `records` (map_layout.RECORDED, shape (n,)) are new."""
        made = []
        if EventKind.FAILED_OPEN in wanted:
            made.append(failed_opens(of.opens, records, number, now, redactor))
        if EventKind.SIGNAL in wanted:
            made.append(_signals(self._last(records[records["kind"] == lib.RECORDED_SIGNAL]), number, now, redactor))
        if EventKind.REFUSED in wanted:
            made.append(_refused(self._last(records[_are_refused(records)]), number, now, redactor))
        return made

    def _last(self, records: np.ndarray) -> np.ndarray:
        self.untold += max(0, len(records) - MOST_OF_KIND)
        return records[-MOST_OF_KIND:]


def _are_refused(records: np.ndarray) -> np.ndarray:
    """Which are of a connect to a host that failed, at once or later."""
    families = np.ascontiguousarray(records["text"]).view("u1").reshape(len(records), -1)[:, :2].copy().view("u2")[:, 0]
    at_once = (records["kind"] == lib.RECORDED_FAILED) & (records["other"] == _CONNECT)
    are: np.ndarray = (at_once | (records["kind"] == lib.RECORDED_REFUSED)) & (
        (records["subject"] == lib.RECORDED_ADDRESS) & np.isin(families, _INTERNET)
    )
    return are


def _signals(records: np.ndarray, number: int, now: float, redactor: Redactor) -> np.ndarray:
    events = _of_records(EventKind.SIGNAL, records, number, now, redactor)
    events["value"] = records["value"]
    are_sent = records["subject"] == lib.RECORDED_NAME
    events["parent_pid"] = np.where(are_sent, records["other"], 0)
    for place in np.flatnonzero(are_sent).tolist():
        events["text"][place] = clipped(redactor.line(_text(records[place]).partition(b"\0")[0]), 31)
    return events


def _refused(records: np.ndarray, number: int, now: float, redactor: Redactor) -> np.ndarray:
    events = _of_records(EventKind.REFUSED, records, number, now, redactor)
    events["exit_code"] = records["value"]
    for place, record in enumerate(records):
        events["text"][place] = address(_text(record)).encode()
    return events


def _of_records(kind: EventKind, records: np.ndarray, number: int, now: float, redactor: Redactor) -> np.ndarray:
    """What events of all kinds have."""
    events: np.ndarray = np.zeros(len(records), EVENT)
    events["kind"], events["run_number"], events["limit"], events["pid"] = kind, number, -1, records["pid"]
    events["time"] = time.time() - now + records["time_ns"] * 1e-9
    for place, record in enumerate(records):
        program = bytes(record["program"]).partition(b"\0")[0]
        events["program"][place] = clipped(redactor.line(program), 31)
    return events


def _text(record: np.void) -> bytes:
    size = int(record["text_bytes"])
    return bytes(record["text"]).ljust(size, b"\0")[:size]
