"""Level io's counters as columns of the one table."""

from __future__ import annotations

import numpy as np
import pytest
from condor_joblens.tracer._bpf import lib
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.jobs.run_state import OFFSETS
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS, empty_rows
from condor_joblens.sample import io_counters, totals
from condor_joblens.tracer import map_layout

MINE = ("Syscall", "Fs", "Errors", "Wait")


def counted(**fields: dict[int, int]) -> np.ndarray:
    counters = np.zeros(2, map_layout.IO_COUNTERS)
    for field, values in fields.items():
        for index, value in values.items():
            counters[field][1, index] = value
    return counters


def test_every_metric_of_level_io_that_is_counted_here_has_a_column_and_a_place_of_its_own() -> None:
    columns = io_counters.columns(counted())
    assert set(columns) == {metric.column for metric in METRICS if metric.group in MINE and metric.level is Level.IO}
    assert len({(field, index) for _, field, index in io_counters.PLACES}) == len(io_counters.PLACES)
    assert set(io_counters.nothing(1)) == set(columns)


@pytest.mark.parametrize(
    ("field", "index", "column", "value"),
    [
        ("calls", 0 * lib.CALL_FIELDS + lib.CALL_BYTES, "syscall_read_bytes", 7),
        ("calls", 2 * lib.CALL_FIELDS + lib.CALL_ERRORS, "syscall_open_errors", 7),
        ("files", 0 * lib.FILE_FIELDS + lib.FILE_FAILED_OPENS, "fs_cvmfs_failed_opens", 7),
        ("files", 15 * lib.FILE_FIELDS + lib.FILE_WRITE_CALLS, "fs_other_write_calls", 7),
        ("files", 4 * lib.FILE_FIELDS + lib.FILE_BLOCKED_NS, "wait_nfs_blocked_seconds", 7e-9),
        ("errors", 1, "errors_enoent", 7),
        ("errors", lib.ERROR_CLASSES - 1, "errors_other", 7),
        ("waits", lib.WAIT_SLEEP, "wait_sleep_seconds", 7e-9),
    ],
)
def test_a_count_is_in_its_column_and_in_no_other(field: str, index: int, column: str, value: float) -> None:
    columns = io_counters.columns(counted(**{field: {index: 7}}))
    assert {name: values[1] for name, values in columns.items() if values.any()} == {column: pytest.approx(value)}
    assert columns[column][0] == 0


@pytest.mark.slow
@given(st.lists(st.integers(0, 2**53), min_size=216, max_size=216), st.integers(0, 2**40))
def test_blocks_of_columns_come_into_a_row_as_the_columns_do(words: list[int], offset: int) -> None:
    counters = np.array([words, words[::-1]], "u8").view(map_layout.IO_COUNTERS)[:, 0]
    tables = []
    for _ in range(2):
        tables.append((empty_rows(4), np.zeros(4, OFFSETS)))
        for column in io_counters.columns(counters):
            tables[-1][1][column][3] = offset
    (rows, offsets), (others, other_offsets) = tables
    runs = np.array([3, 1])
    totals.merge(rows, offsets, runs, io_counters.columns(counters))
    for columns, numbers in io_counters.blocks(counters).items():
        totals.merge_counters(others, other_offsets, runs, columns, numbers)
    assert rows.tobytes() == others.tobytes()
    # what comes later and is less changes nothing
    for columns, numbers in io_counters.blocks(counters[::-1]).items():
        totals.merge_counters(others, other_offsets, runs, columns, numbers)
    totals.merge(rows, offsets, runs, io_counters.columns(counters[::-1]))
    assert rows.tobytes() == others.tobytes()


def test_what_could_not_be_counted_is_named() -> None:
    found = io_counters.uncounted(counted(uncounted={lib.UNCOUNTED_32_BIT: 3, lib.UNCOUNTED_AIO: 1}))
    assert found == [[], ["32-bit calls by class", "asynchronous I/O (io_submit)"]]
