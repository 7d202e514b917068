"""Whose last events are recorded: those of jobs at level trace, the most important first; who goes without is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from agent_node import OWNER, Made, make

from condor_joblens.agent.levels import recorder_level
from condor_joblens.agent.levels.recorder_level import NOTE
from condor_joblens.model.levels import Level
from condor_joblens.tracer.sensors import Recorder


class Rings:
    """What OnDemand and its sensor are to joblensd, with rings for so many jobs."""

    def __init__(self, rows: int) -> None:
        self.recorded: dict[int, int] = {}  # slot -> whose
        self.missing: dict[str, str] = {}
        self.is_loaded = True
        self._described: dict[int, int] = {}
        sensor: Any = MagicMock(spec=Recorder, rows=rows)
        sensor.describe = self._described.__setitem__
        sensor.stop = self.stop
        sensor.counters = lambda slots: (np.isin(slots, list(self.recorded)), np.zeros(0))
        self.sensor = sensor

    def start(self, slot: int) -> bool:
        self.sensor.loaded = MagicMock() if self.is_loaded else None
        if self.missing or not self.is_loaded or (slot not in self.recorded and len(self.recorded) >= self.sensor.rows):
            return False
        self.recorded[slot] = self._described[slot]
        return True

    def stop(self, slot: int) -> None:
        self.recorded.pop(slot, None)


class Site:
    """A node with rings for so many jobs, and its jobs at level trace."""

    def __init__(self, made: Made, rows: int) -> None:
        self.made, self.rings = made, Rings(rows)
        made.node.tracer.sensors = {"recorder": self.rings}  # type: ignore[misc,dict-item]

    def begin(self, job: str, priority: float = 0.0, age: float = 1000.0) -> int:
        """A job that is to be at level trace; its slot has the number of its run."""
        run = self.made.begin(job, Level.TRACE, age=age)
        self.made.node.runs.state["kernel_slot"][run] = run
        self.made.node.runs.state["policy_priority"][run] = priority
        recorder_level.apply(self.made.levels, run, Level.TRACE)
        return run

    def note(self, run: int) -> str:
        """What its owner is told of the recorder."""
        return self.made.node.handles[run].notes.get(NOTE, "")

    def retry(self) -> None:
        """A round is over."""
        recorder_level.retry(self.made.levels)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    return make(tmp_path, monkeypatch)


@pytest.fixture
def site(made: Made) -> Site:
    return Site(made, 1)


def test_a_job_is_recorded_as_its_owners_while_it_is_at_level_trace(site: Site) -> None:
    run = site.begin("1.0")
    assert (site.rings.recorded, site.note(run)) == ({run: OWNER}, "")
    recorder_level.apply(site.made.levels, run, Level.PROFILE)
    assert (site.rings.recorded, site.note(run)) == ({}, "")


def test_nobody_is_recorded_any_more_when_his_job_is_over(site: Site) -> None:
    run = site.begin("1.0")
    recorder_level.end(site.made.levels, run)
    assert site.rings.recorded == {}


def test_who_started_last_goes_without_and_is_told_so(site: Site) -> None:
    first, last = site.begin("1.0", age=2000), site.begin("2.0", age=1000)
    assert list(site.rings.recorded) == [first]
    assert "there is room for 1 jobs (JOBLENS_RECORDER_BYTES)" in site.note(last) and not site.note(first)


def test_the_more_important_one_gets_the_room_of_the_least_important(made: Made) -> None:
    site = Site(made, 2)
    least, middle = site.begin("1.0", priority=1), site.begin("2.0", priority=2)
    most = site.begin("3.0", priority=3)
    assert sorted(site.rings.recorded) == [middle, most]
    assert "more important jobs have the room" in site.note(least)
    assert not site.note(middle) and not site.note(most)


def test_who_went_without_is_recorded_when_there_is_room_the_most_important_first(made: Made) -> None:
    site = Site(made, 1)
    first = site.begin("1.0", priority=9)
    low, high = site.begin("2.0", priority=1), site.begin("3.0", priority=5)
    site.retry()
    assert list(site.rings.recorded) == [first]
    recorder_level.end(made.levels, first)
    made.node.runs.remove(first)
    site.retry()
    assert list(site.rings.recorded) == [high] and not site.note(high) and site.note(low)


def test_a_round_changes_nothing_for_who_is_recorded(site: Site) -> None:
    run = site.begin("1.0")
    starts = MagicMock(wraps=site.rings.start)
    site.rings.start = starts  # type: ignore[method-assign]
    site.retry()
    assert not starts.called and list(site.rings.recorded) == [run]


def test_while_its_programs_are_being_loaded_a_job_waits_for_the_next_round(site: Site) -> None:
    site.rings.is_loaded = False
    run = site.begin("1.0")
    assert (site.rings.recorded, site.note(run)) == ({}, "")
    site.rings.is_loaded = True
    site.retry()
    assert site.rings.recorded == {run: OWNER}


def test_what_the_kernel_refuses_is_told_to_each_and_logged_once(made: Made) -> None:
    site = Site(made, 2)
    site.rings.missing = {"the last events before a job's end": "the kernel refuses jl_rec_call: Invalid argument"}
    for job in ("1.0", "2.0"):
        assert "the kernel refuses that" in site.note(site.begin(job))
    assert [line for line in made.log if "jl_rec_call" in line] == [
        "no job's last events are recorded: the kernel refuses jl_rec_call: Invalid argument"
    ]


def test_a_job_whose_folder_is_unknown_has_no_owner_to_record_for(site: Site) -> None:
    run = site.begin("1.0")
    recorder_level.end(site.made.levels, run)
    site.made.node.handles[run].sandbox = None
    recorder_level.apply(site.made.levels, run, Level.TRACE)
    assert site.rings.recorded == {} and "folder is unknown" in site.note(run)


@pytest.mark.parametrize("rows", [0, None], ids=["no bytes for it", "no such sensor"])
def test_a_node_that_records_nothing_says_nothing(made: Made, rows: int | None) -> None:
    site = Site(made, rows or 0)
    if rows is None:
        made.node.tracer.sensors = {}  # type: ignore[misc]
    run = site.begin("1.0")
    site.retry()
    recorder_level.end(made.levels, run)
    assert site.rings.recorded == {} and site.note(run) == ""
