"""Numbers as text: the same numbers come back, with orjson and without."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.sinks import decimals as module
from condor_joblens.sinks.decimals import decimals

FLOATS = st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=1, max_size=4)
INTEGERS = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3), min_size=1, max_size=4)


@pytest.fixture(params=["orjson", "Python"], autouse=True, scope="module")
def writer(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Python":
            patch.setattr(module, "_encode", None)
        else:
            assert module._encode is not None, "orjson is not installed"
        yield


@given(INTEGERS)
def test_integers_come_back(table: list[list[int]]) -> None:
    assert [[int(text) for text in row] for row in decimals(np.array(table, "i8"))] == table


@given(FLOATS)
def test_floats_come_back_and_what_is_none_keeps_its_place(table: list[list[float]]) -> None:
    for texts, row in zip(decimals(np.array(table)), table):
        assert len(texts) == len(row)
        for text, number in zip(texts, row):
            assert not np.isfinite(number) or json.loads(text) == number == float(text)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (1, 1)])
def test_small_tables(shape: tuple[int, int]) -> None:
    assert decimals(np.ones(shape)) == [[b"1.0"] * shape[1]] * shape[0]


def test_columns_of_a_table_that_lies_otherwise_in_memory() -> None:
    table = np.arange(6).reshape(2, 3)
    assert decimals(table.T) == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]
