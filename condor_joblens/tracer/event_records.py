"""Records of the ring of events (model/events.py), made from the kernel's process events by C: records.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from condor_joblens.common.redact import LONG_RUN
from condor_joblens.common.scan import scan_table
from condor_joblens.common.secret_names import SIGNS
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.tracer import map_layout
from condor_joblens.tracer._bpf import ffi, lib

MARK_PROGRAM, MARK_TEXT = int(lib.MARK_PROGRAM), int(lib.MARK_TEXT)
MARK_NAME, MARK_ENDED, MARK_CHOICE = int(lib.MARK_NAME), int(lib.MARK_ENDED), int(lib.MARK_CHOICE)

MARKS: np.dtype[Any] = np.dtype([("event", "u4"), ("mark", "u4")])


class Records(NamedTuple):
    """Records of the events whose run is known, in their order; `marks` says what Python has to fill in."""

    events: np.ndarray  # EVENT, shape (n,)
    marks: np.ndarray  # MARKS, shape (n,): the index of the process event, and MARK_*
    has_marks: bool


class RecordMaker:
    """Makes records in memory that it keeps: what it returns is good until the next call."""

    def __init__(self, most: int) -> None:
        """For at most so many process events at a time."""
        self._most = most
        self._events: np.ndarray = np.zeros(2 * most, EVENT)
        self._marks: np.ndarray = np.zeros(2 * most, MARKS)
        self._scan = np.ascontiguousarray(scan_table(SIGNS))
        self._facts = ffi.new("struct record_facts *")
        self._facts.scan = ffi.from_buffer("__u16[]", self._scan)
        self._to = ffi.from_buffer("struct event_record[]", self._events)
        self._mark_to = ffi.from_buffer("struct record_marks[]", self._marks)

    def make(self, found: np.ndarray, run_numbers: Sequence[int], epoch: float) -> Records:
        """Records of `found` (map_layout.PROCESS_EVENT, shape (n,)); the OOM killer's victims have one more.

        `run_numbers` (n) is 0 if an event's run is unknown: it has no record. `epoch` is the time, in epoch seconds, at
        which CLOCK_MONOTONIC was 0.
        """
        if len(found) > self._most or len(found) != len(run_numbers):
            raise ValueError(f"{len(found)} events of {len(run_numbers)} runs, where there is room for {self._most}")
        facts, numbers = self._facts, ffi.new("__u64[]", run_numbers)
        facts.run_numbers, facts.epoch, facts.marked = numbers, epoch, 0
        events = ffi.from_buffer("struct process_event[]", np.ascontiguousarray(found, map_layout.PROCESS_EVENT))
        count = lib.make_records(events, len(found), facts, self._to, self._mark_to)
        return Records(self._events[:count], self._marks[:count], bool(facts.marked))


def _check_layout() -> None:
    assert EVENT.fields is not None and EVENT.itemsize == ffi.sizeof("struct event_record")
    for name, field in ffi.typeof("struct event_record").fields:
        assert EVENT.fields[name][1] == field.offset, name
    assert map_layout.PROCESS_EVENT.itemsize == ffi.sizeof("struct process_event")
    assert (EventKind.EXEC, EventKind.EXIT, EventKind.OOM) == (lib.RECORD_EXEC, lib.RECORD_EXIT, lib.RECORD_OOM)
    assert lib.LONG_RUN == LONG_RUN


_check_layout()
