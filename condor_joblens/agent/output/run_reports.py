"""+JobLensReport: reports in a job's own folder, from where HTCondor takes the job's output.

The starter transfers that when the job has ended, before joblensd could write anything. So a flame graph is written
while the job runs, and its title says until when. What a job seems to hang in is written when that is noticed
(agent/hangs.py). joblensd hands on what others make: it looks into none of it.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from condor_joblens.agent.node import Node
from condor_joblens.agent.output.run_profiles import RunProfiles
from condor_joblens.model.metrics import text
from condor_joblens.owner_files.reports import Report, ReportResult
from condor_joblens.profiling.reader_messages import MOST_GIVEN
from condor_joblens.shm.artifact_header import HEADER_BYTES

LEAST_SECONDS = 60.0
SHARE_OF_AGE = 0.05
"""A report is made anew after this share of its run's age, and never more often than each LEAST_SECONDS."""

_REMEMBERED = 2000

Draw = Callable[[int, "list[int]", int, "tuple[str, str]", Callable[[bytes], object]], object]
"""Makes the picture, as agent.profiles.Profiles.report does."""


def is_wanted(node: Node, run: int) -> bool:
    """Whether the job has asked for reports, and the site and its policies let it."""
    state = node.runs.state
    return bool(node.config.reports and state["wants_report"][run] and state["may_report"][run])


def write(node: Node, run: int, report: Report, content: bytes) -> None:
    """Puts a report into the job's folder; the run's note says what stands in its way."""
    handle = node.handles[run]
    if handle.sandbox is None:
        return
    try:
        result = handle.sandbox.write_report(report, content)
    except OSError:
        result = ReportResult.FAILED
    note = "" if result is ReportResult.DONE else f"no {report.value} for JobLensReport: {result.value}"
    node.put_note(run, report.value, note)


class RunReports:
    """The flame graphs of runs that are sampled and whose jobs have asked for one."""

    def __init__(self, node: Node, profiles: RunProfiles, draw: Draw) -> None:
        self._node, self._profiles, self._draw = node, profiles, draw
        self._waiting: dict[int, None] = {}  # numbers of runs, first to last
        self._is_drawing = False
        self._due: OrderedDict[int, float] = OrderedDict()  # run number -> CLOCK_MONOTONIC

    def part_is_kept(self, run_number: int) -> None:
        """Another part of the run's profile is there."""
        run = self._living(run_number)
        now = time.monotonic()
        if run is None or not is_wanted(self._node, run) or now < self._due.get(run_number, 0.0):
            return
        age = max(0.0, time.time() - float(self._node.runs.rows["start_time"][run]))
        self._due[run_number] = now + max(LEAST_SECONDS, SHARE_OF_AGE * age)
        self._due.move_to_end(run_number)
        if len(self._due) > _REMEMBERED:
            self._due.popitem(last=False)
        self._waiting[run_number] = None
        if not self._is_drawing:
            self._draw_next()

    def _draw_next(self) -> None:
        """One after another: descriptors that are under way are limited."""
        while self._waiting and not self._is_drawing:
            run_number = next(iter(self._waiting))
            del self._waiting[run_number]
            run = self._living(run_number)
            if run is None:
                continue
            files = self._profiles.open_parts(run_number)
            self._is_drawing = True
            try:
                whose = text(self._node.runs.rows["job_id"][run]), os.uname().nodename
                self._draw(run_number, files[-MOST_GIVEN:], HEADER_BYTES, whose, partial(self._drawn, run_number))
            finally:
                for descriptor in files:
                    os.close(descriptor)

    def _drawn(self, run_number: int, data: bytes) -> None:
        """Also if there is none, or the one who draws is lost."""
        self._is_drawing = False
        run = self._living(run_number)
        if data and run is not None:
            write(self._node, run, Report.FLAME, data)
        self._draw_next()

    def _living(self, run_number: int) -> int | None:
        runs = self._node.runs
        living = runs.living()
        found = living[runs.rows["run_number"][living] == run_number]
        return int(found[0]) if len(found) else None
