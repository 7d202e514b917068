"""What joblensd and the process that loads programs say to each other: whole, bounded, and never believed blindly."""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.errors import JobLensError
from condor_joblens.tracer import loader_messages as messages
from condor_joblens.tracer.loader import Loaded
from condor_joblens.tracer.loader_messages import Asked
from condor_joblens.tracer.makers import Wanted


def test_a_request_comes_as_it_was_made() -> None:
    asked = Asked(1024, Wanted("recorder", 64, 1 << 20))
    packet, given = messages.request(asked, {"jl_node": 7, "jl_counters": 9})
    assert len(packet) < messages.MOST_REQUEST_BYTES and given == [7, 9]
    assert messages.asked_of(packet, [17, 19]) == (asked, {"jl_node": 17, "jl_counters": 19})


def test_an_answer_comes_as_it_was_made_and_its_descriptors_are_closed_with_it() -> None:
    made = Loaded()
    made.take_loaded({"jl_map": 3}, {"jl_one": 4, "jl_two": 5}, {"jl_iter": 6})
    made.missing = {"UDP": "x" * 100_000}
    packet, given = messages.answer(made, {"jl_two": 7})
    assert len(packet) < messages.MOST_ANSWER_BYTES and given == [3, 4, 5, 6, 7]
    ours = [os.open(os.devnull, os.O_RDONLY) for _ in given]
    loaded = messages.loaded_of(packet, ours)
    assert (loaded.maps, loaded.iterators) == ({"jl_map": ours[0]}, {"jl_iter": ours[3]})
    assert list(loaded.programs) == ["jl_one", "jl_two"] and set(loaded.missing) == {"UDP"}
    loaded.unload()
    for descriptor in ours:
        with pytest.raises(OSError):
            os.fstat(descriptor)


def test_a_refusal_is_one() -> None:
    with pytest.raises(JobLensError, match="no such tracepoint"):
        messages.loaded_of(messages.refusal("no such tracepoint"), [])
    assert len(messages.refusal("x" * 100_000)) < messages.MOST_ANSWER_BYTES


@pytest.mark.parametrize("said", [[], 7, {}, {"maps": []}, {"maps": ["a", "a"]}, {"maps": [1]}])
def test_what_is_no_answer_is_refused(said: object) -> None:
    with pytest.raises(ValueError):
        messages.loaded_of(json.dumps(said).encode(), [])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["sensor", "slots", "jobs", "job_bytes", "shared", "other"]), values), st.binary()
)
def test_whatever_comes_is_a_request_or_refused(said: dict[str, object], other: bytes) -> None:
    for packet in (json.dumps(said).encode(), other):
        with contextlib.suppress(ValueError):
            asked, shared = messages.asked_of(packet, [])
            assert isinstance(asked.wanted.sensor, str) and shared == {}
            assert all(0 <= size <= messages.MOST_SLOTS for size in (asked.slots, asked.wanted.jobs))
            assert 0 <= asked.wanted.job_bytes <= messages.MOST_JOB_BYTES
