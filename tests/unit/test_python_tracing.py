"""What of a job's +JobLensTrace is not done is in its note, as the level, the site and the node are at that time."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from agent_node import Made, make

from condor_joblens.agent import configuration
from condor_joblens.agent.levels import level_arbiter, python_tracing
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import text
from condor_joblens.policy.trace_request import TraceRequest

ASKS = TraceRequest(python_raises=True)
NEEDS_LEVEL = "JobLensTrace needs level trace: nothing is traced"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    folder = tmp_path / "libexec" / "joblens_python"
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").touch()
    made = make(tmp_path, monkeypatch, max_level=Level.TRACE)
    configuration.know_programs(made.node, {"LIBEXEC": str(tmp_path / "libexec")})
    return made


def begin(made: Made, level: Level, asks: TraceRequest = ASKS) -> int:
    """A job that asks, at that level, whose wrapper has begun it."""
    run = made.begin(level=level)
    made.levels.inputs[run].trace = asks
    python_tracing.bring_in(made.levels, run)
    return run


def give(made: Made, run: int, level: Level) -> str:
    """The note of the run's row when it has that level by its policy."""
    made.node.runs.state["policy_level"][run] = level
    level_arbiter.arbitrate(made.levels)
    assert made.level(run) is level
    return text(made.node.runs.rows["note"][run])


def test_it_follows_the_level(made: Made) -> None:
    run = begin(made, Level.TRACE)
    assert give(made, run, Level.TRACE) == ""
    assert give(made, run, Level.IO) == NEEDS_LEVEL
    assert give(made, run, Level.TRACE) == ""


def test_a_job_that_is_raised_after_its_start_is_told_that_this_comes_too_late(made: Made) -> None:
    run = begin(made, Level.BASIC)
    assert text(made.node.runs.rows["note"][run]) == NEEDS_LEVEL
    assert give(made, run, Level.TRACE) == "JobLensTrace: nothing is traced: the job began below level trace"


def test_before_anybody_has_decided_nothing_is_said(made: Made) -> None:
    run = made.begin(level=Level.BASIC)
    made.levels.inputs[run].trace, made.levels.inputs[run].is_decided = TraceRequest(True), False
    assert python_tracing.bring_in(made.levels, run)
    assert text(made.node.runs.rows["note"][run]) == ""


def test_a_node_that_lacks_what_is_loaded_says_so(made: Made, tmp_path: Path) -> None:
    (tmp_path / "libexec" / "joblens_python" / "sitecustomize.py").unlink()
    run = begin(made, Level.TRACE)
    assert "joblens_python is missing on this node (joblens doctor)" in text(made.node.runs.rows["note"][run])
    configuration.know_programs(made.node, {})
    python_tracing.update(made.levels, run)
    assert text(made.node.runs.rows["note"][run]) == ""


def test_a_site_that_traces_no_pythons_says_so_and_brings_nothing_in(made: Made) -> None:
    made.node.config = dataclasses.replace(made.node.config, trace_python=False)
    run = begin(made, Level.TRACE)
    assert "this site traces no Pythons (JOBLENS_TRACE_PYTHON)" in text(made.node.runs.rows["note"][run])
    assert not python_tracing.bring_in(made.levels, run)


@pytest.mark.parametrize("asks, said", [(TraceRequest(), ""), (TraceRequest(True, refused="fit"), "fit")])
def test_a_job_that_asks_for_nothing_or_for_what_is_not_understood(made: Made, asks: Any, said: str) -> None:
    run = begin(made, Level.TRACE, asks)
    note = text(made.node.runs.rows["note"][run])
    assert said in note if said else note == ""


def test_what_nobody_has_asked_for_is_not_brought_in(made: Made) -> None:
    assert not python_tracing.bring_in(made.levels, begin(made, Level.TRACE, TraceRequest()))
