"""Level profile of a run: what its note says if the kernel takes only a part of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from condor_joblens.agent.levels import profile_level
from condor_joblens.model.levels import Level

RUN, SLOT, NUMBER = 0, 3, 7


def levels_of(missing: dict[str, str], said: list[str], *, starts: bool) -> Any:
    """A node that can sample, as far as this asks."""
    sensor = SimpleNamespace(start=lambda slot: starts, missing=missing, why_not=lambda: "too many jobs")
    sampling = SimpleNamespace(
        sensor=SimpleNamespace(describe=lambda slot, run, uid: None),
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
