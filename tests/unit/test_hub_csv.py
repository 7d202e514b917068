"""Rows as CSV: no cell is a formula, and every text can be read back."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.hub.web.csv_text import harmless, text


@pytest.mark.parametrize(
    "cell, there",
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("  =1", "'  =1"),
        ("\r=1", "'\r=1"),
        ("fit.py", "fit.py"),
        ("a=b", "a=b"),
        ("", ""),
        (None, ""),
        (-5, -5),
        (-0.5, -0.5),
        (True, "true"),
        (["=x"], '["=x"]'),
    ],
)
def test_a_text_is_a_formula_nowhere_and_a_number_stays_one(cell: object, there: object) -> None:
    assert harmless(cell) == there


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.text(st.characters(exclude_categories=["Cs"])))))
def test_cells_come_back_as_they_were_but_for_the_apostrophe(rows: list[dict[str, str]]) -> None:
    found = list(csv.reader(io.StringIO(text("ab", rows), newline="")))
    assert found[0] == ["a", "b"] and len(found) == len(rows) + 1
    for cells, row in zip(found[1:], rows):
        for cell, name in zip(cells, "ab"):
            given = row.get(name, "").replace("\0", "")
            assert cell in (given, f"'{given}") and cell[:1] not in ("=", "+", "-", "@", "\t", "\r")
