"""+JobLensPeek: which variables of its programs a job asks for, and what its note says of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.model import peek_spec
from condor_joblens.policy.peek_request import MOST_SPECS, PeekRequest, of_text, understand


@pytest.mark.parametrize(
    "ad, specs, refused",
    [
        (b'JobLensPeek = "reco:event"\n', ["reco:event"], ""),
        (b'Owner = "a"\njoblenspeek=" reco:event;lib*.so:w::state.run[3];; reco:event" \n', None, ""),
        (b'JobLensPeek = "reco:n as long; event"', ["reco:n as long"], "event is not read: write FILE:NAME"),
        (b'JobLensPeek = strcat("reco", ":event")', [], "an expression is not read"),
        (b"JobLensPeek = undefined", [], ""),
        (b'JobLensPeek = ""', [], ""),
        (b'MyJobLensPeek = "reco:event"', [], ""),
        (b"", [], ""),
    ],
)
def test_what_is_asked_for(ad: bytes, specs: list[str] | None, refused: str) -> None:
    asked = understand(ad)
    assert list(asked.specs) == (["reco:event", "lib*.so:w::state.run[3]"] if specs is None else specs)
    assert refused in asked.refused and bool(refused) == bool(asked.refused)
    assert asked.note() == (f"JobLensPeek: {asked.refused}" if refused else "") and PeekRequest().note() == ""


def test_so_many_are_read() -> None:
    asked = of_text(";".join(f"reco:v{number}" for number in range(MOST_SPECS + 1)))
    assert (len(asked.specs), asked.refused) == (MOST_SPECS, f"only the first {MOST_SPECS} variables are read")


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: f'"{text}"'.encode())))
def test_whatever_the_ad_has_is_bounded_fit_to_print_and_can_be_read(value: bytes) -> None:
    asked = understand(b"JobLensPeek = " + value + b"\n")
    assert len(asked.refused) <= 200 and (
        not asked.refused or (asked.refused.isascii() and asked.refused.isprintable())
    )
    assert len(asked.specs) <= MOST_SPECS and all(peek_spec.parse(spec) for spec in asked.specs)
