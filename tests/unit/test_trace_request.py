"""+JobLensTrace: what a job asks to be traced from its start, and what its note says of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.policy.trace_request import MOST_SPECS, TraceRequest, understand


@pytest.mark.parametrize(
    "ad, wanted, refused",
    [
        (b'JobLensTrace = "python:raises"\n', True, ""),
        (b'Owner = "alice"\njoblenstrace="python:raises" \n', True, ""),
        (b'JobLensTrace = "python:raises; reco:fit"', True, "reco:fit"),
        (b'JobLensTrace = " reco:fit ;python:raises;; "', True, "reco:fit"),
        (b'JobLensTrace = "python:raises"\nJobLensTrace = "python"', False, "python"),
        (b'JobLensTrace = strcat("python", ":raises")', False, "an expression"),
        (b'JobLensTrace = "\\"python:raises"', False, "an expression"),
        (b"JobLensTrace = undefined", False, ""),
        (b'JobLensTrace = ""', False, ""),
        (b'MyJobLensTrace = "python:raises"', False, ""),
        (b'Note = "JobLensTrace"', False, ""),
        (b"", False, ""),
    ],
)
def test_what_is_asked_for(ad: bytes, wanted: bool, refused: str) -> None:
    assert understand(ad) == TraceRequest(wanted, refused)


def test_the_note_names_what_is_not_understood() -> None:
    assert understand(b'JobLensTrace = "python:raises"').note() == TraceRequest().note() == ""
    assert "a\\nb is not traced" in TraceRequest(refused="a\\nb").note()


@given(st.binary(max_size=300))
def test_whatever_the_ad_has_is_bounded_and_fit_to_print(value: bytes) -> None:
    asked = understand(b"JobLensTrace = " + value + b"\n")
    assert len(asked.refused) <= 60 and asked.refused.isascii() and (not asked.refused or asked.refused.isprintable())


def test_so_many_are_looked_at() -> None:
    assert not understand(b'JobLensTrace = "' + b"a;" * MOST_SPECS + b'python:raises"').python_raises
