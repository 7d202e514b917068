"""Level profile of a run: what its note says if the kernel takes only a part of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from condor_joblens.agent.levels import missing_level, profile_level
from condor_joblens.common import kernel_limits
from condor_joblens.model.levels import Level
from condor_joblens.tracer.on_demand import LOADING

RUN, SLOT, NUMBER = 0, 3, 7


def levels_of(
    missing: dict[str, str], said: list[str], *, starts: bool, why: str = "too many jobs", is_guessing: bool = False
) -> Any:
    """A node that can sample, as far as this asks."""
    sensor = SimpleNamespace(start=lambda slot: starts, missing=missing, why_not=lambda: why)
    sampling = SimpleNamespace(
        sensor=SimpleNamespace(describe=lambda slot, run, uid: None, is_guessing=is_guessing),
        begun={NUMBER},
    )
    node = SimpleNamespace(
        handles={RUN: SimpleNamespace(notes={}, sandbox=SimpleNamespace(scratch_uid=12345))},
        runs=SimpleNamespace(rows={"run_number": {RUN: NUMBER}}),
        tracer=SimpleNamespace(sensors={"profile": sensor}),
        sampling=sampling,
        log_once=said.append,
    )
    return SimpleNamespace(node=node)


@pytest.mark.parametrize(
    ("missing", "starts", "level", "note"),
    [
        ({}, True, Level.PROFILE, ""),
        ({"stacks of waits": "refused"}, True, Level.PROFILE, "level profile lacks stacks of waits"),
        ({"samples": "refused"}, False, Level.IO, "level profile is unavailable: refused"),
        ({}, False, Level.IO, "level profile is unavailable: too many jobs"),
    ],
)
def test_a_part_that_the_kernel_refuses_is_named_in_the_note(
    missing: dict[str, str], starts: bool, level: Level, note: str
) -> None:
    said: list[str] = []
    levels = levels_of(missing, said, starts=starts)
    assert profile_level.apply(levels, RUN, SLOT, Level.PROFILE) is level
    assert levels.node.handles[RUN].notes["profile"] == note
    assert said == [f"level profile can't take {name}: refused" for name in missing]


@pytest.mark.parametrize("missing", [{}, {"samples": "what loads programs has failed"}])
def test_what_is_only_being_loaded_is_coming(missing: dict[str, str]) -> None:
    levels = levels_of(missing, [], starts=False, why=LOADING)
    for level in (Level.PROFILE, Level.TRACE):
        assert profile_level.apply(levels, RUN, SLOT, level) is Level.IO
        notes = levels.node.handles[RUN].notes
        coming = f"level {level.word} is coming: it begins as soon as its programs are loaded into the kernel"
        assert notes["profile"] == coming
        assert missing_level.is_coming(level, notes) and not missing_level.is_coming(Level.IO, notes)


@pytest.mark.parametrize(
    ("missing", "before"),
    [({}, ""), ({"where a job crashed": "refused"}, "level profile lacks where a job crashed; ")],
)
def test_a_kernel_that_guesses_stacks_is_named_in_the_note(missing: dict[str, str], before: str) -> None:
    levels = levels_of(missing, [], starts=True, is_guessing=True)
    assert profile_level.apply(levels, RUN, SLOT, Level.PROFILE) is Level.PROFILE
    limits = kernel_limits.of_this_kernel()
    assert levels.node.handles[RUN].notes["profile"] == f"{before}stacks on {limits}"
    assert "frame pointers only" in limits
