"""Two metrics against each other: what is far from the others, and the axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web import picked
from condor_joblens.hub.web.scatter import MOST_FAR, farthest, is_wide
from condor_joblens.hub.web.scatter_picture import HEIGHT, TICKS, WIDTH, Axis, picture

VALUES = st.lists(st.floats(-1e18, 1e18) | st.floats(0, 10), min_size=1, max_size=30)
STRANGE = st.lists(
    st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([5e-324, 1e308, -1e308, 1.0]), min_size=1,
    max_size=9,
)  # fmt: skip


def test_a_job_is_far_by_one_value_or_by_how_both_are_to_each_other() -> None:
    numbers = np.random.default_rng(1)
    x = numbers.lognormal(0, 1, 300)
    y = 1e9 * x * numbers.lognormal(0, 0.05, 300)
    assert farthest(x, y) == []
    assert farthest(np.append(x, 1.0), np.append(y, 1e11)) == [300], "by the two of them"
    assert farthest(np.append(x, 1e9), np.append(y, 1e18))[0] == 300, "by each"
    assert farthest(x[:5], y[:5]) == [], "too few to compare with"


@given(VALUES, st.randoms())
def test_whatever_the_values_are_the_picture_is_one(values: list[float], chance: Any) -> None:
    others = values[:]
    chance.shuffle(others)
    x, y = np.array(values), np.array(others)
    far = farthest(x, y)
    assert len(far) <= MOST_FAR
    rows = [{"Run": str(n), "JobId": str(n), "x": a, "y": b} for n, (a, b) in enumerate(zip(values, others))]
    found = {"x": "Cpu.Seconds", "y": "Memory.ResidentBytes", "points": rows, "far": [str(place) for place in far]}
    drawn = picture({**found, "is_log": {"x": is_wide(x), "y": is_wide(y)}})
    assert len(drawn["marks"]) == len(far) and drawn["path"].count("M") == len(rows) - len(far)
    for mark in drawn["marks"]:
        assert 0 <= float(mark["x"]) <= WIDTH and 0 <= float(mark["y"]) <= HEIGHT


@given(STRANGE, st.booleans(), st.sampled_from(["Cpu.Seconds", "Memory.ResidentBytes"]))
def test_no_number_that_a_node_can_say_costs_others_the_picture(values: list[float], is_log: bool, path: str) -> None:
    rows = [{"Run": str(n), "JobId": str(n), "x": value, "y": 1.0} for n, value in enumerate(values)]
    far = [str(place) for place in farthest(np.array(values), np.ones(len(values)))]
    drawn = picture({"x": path, "y": path, "points": rows, "far": far, "is_log": {"x": is_log, "y": False}})
    for part in drawn["path"].replace("h0", "").split("M")[1:]:
        assert all(0 <= float(number) <= WIDTH for number in part.split())


@pytest.mark.parametrize("path", ["Memory.ResidentBytes", "Cpu.Seconds", "Process.Live"])
@pytest.mark.parametrize(
    "values, is_log", [([0, 3.7], False), ([5, 5], False), ([1, 1e6], True), ([1e9, 8e9], True), ([0.03, 30], True)]
)
def test_an_axis_has_a_few_numbers(path: str, values: list[float], is_log: bool) -> None:
    ticks = Axis(path, values, is_log).ticks()
    assert 1 <= len(ticks) <= TICKS + 1, ticks
    assert all(two[0] - one[0] > 0.05 for one, two in zip(ticks, ticks[1:])), ticks
    assert len({text for _, text in ticks}) == len(ticks), ticks


def test_metrics_are_picked_by_their_names_alone() -> None:
    assert picked.metrics(["Cpu.Seconds", "", "Cpu.Seconds"]) == ("Cpu.Seconds",)
    for wrong, why in ((["Owner"], "no metric is called 'Owner'"), (list(picked.BY_PATH)[:9], "pick at most 8")):
        with pytest.raises(JobLensError, match=why):
            picked.metrics(wrong)
    assert sum(len(group["metrics"]) for group in picked.picker(("Cpu.Seconds",))) == len(picked.BY_PATH) - 1
    shown = [picked.text("Memory.ResidentBytes", 2048), picked.text("Cpu.Seconds", 0.25)]
    shown.append(picked.text("Memory.MajorFaults", 1234))
    assert shown == ["2.0 KiB", "0.25 s", "1,234"] and picked.text("Cpu.Seconds", None) == "–"
