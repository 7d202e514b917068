"""Times at which nobody looked at a job: kept with its profile, and in the title of a picture."""

from __future__ import annotations

import dataclasses
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_samples import profile, waits

from condor_joblens.cli.flame import record
from condor_joblens.profiles import pprof, unseen
from condor_joblens.profiles.flame_graph import counts, flame_graph
from condor_joblens.profiles.profile import merged, wall

BEGIN = 1.7e9


def clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(BEGIN + seconds))


def at(*pairs: tuple[float, float]) -> unseen.Times:
    return tuple((BEGIN + begun, BEGIN + ended) for begun, ended in pairs)


def test_a_hole_is_kept_with_a_segment_and_said_in_each_picture() -> None:
    """That of the segment behind it lies before that segment: it is not said of this one alone."""
    first = profile()
    second = dataclasses.replace(profile(), begun=BEGIN + 75, ended=BEGIN + 135, unseen=at((60, 75)))
    second = pprof.decode(pprof.encode(second))
    assert second.unseen == at((60, 75)) and "not seen" not in counts(second)
    whole = merged([first, second])
    said = f"not seen from {clock(60)} to {clock(75)}; "
    assert counts(whole).startswith(said) and said in flame_graph(whole)
    off_cpu = dataclasses.replace(waits(), ended=BEGIN + 135, unseen=at((60, 75)))
    assert counts(wall(whole, off_cpu)).startswith(said)
    assert record(whole)["Unseen"] == [{"BeginTime": BEGIN + 60, "EndTime": BEGIN + 75}]


def test_of_several_jobs_some_may_have_been_seen() -> None:
    found = dataclasses.replace(profile(), job="12.0 12.1", unseen=at((10, 20)))
    assert counts(found).startswith("some jobs not seen from ")


def test_many_holes_are_added_up() -> None:
    found = dataclasses.replace(profile(), unseen=at((1, 2), (10, 20), (30, 32)))
    assert counts(found).startswith(f"not seen at 3 times, 13 s in all, the longest from {clock(10)} to {clock(20)}; ")


TIMES = st.tuples(st.integers(0, 10_000), st.integers(0, 100)).map(lambda pair: (float(pair[0]), float(sum(pair))))


@given(st.lists(TIMES, max_size=200))
def test_nothing_of_holes_is_lost_when_they_become_fewer(times: list[tuple[float, float]]) -> None:
    found = unseen.together(times)
    assert len(found) <= unseen.MOST and all(one[1] < other[0] for one, other in zip(found, found[1:]))
    assert all(any(begun <= first and last <= ended for begun, ended in found) for first, last in times)
    assert unseen.decode(unseen.encode(found)) == found


@pytest.mark.parametrize("text", ["", "x", "1", "5-4", "nan-inf", "-1-2", "1e999-2", "1-1e300", "-", ",,,"])
def test_what_is_no_time_is_left_out(text: str) -> None:
    assert unseen.decode(text) == ()
