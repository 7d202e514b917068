"""Level io's counters as columns of the one table."""

from __future__ import annotations

import numpy as np
import pytest
from condor_joblens.tracer._bpf import lib

from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS
from condor_joblens.sample import io_counters
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


def test_waits_for_locks_on_files_have_a_column_of_their_own() -> None:
    counters = counted()
    counters["file_lock_ns"][1] = 7
    columns = io_counters.columns(counters)
    assert {name: values.tolist() for name, values in columns.items() if values.any()} == {
        "wait_file_lock_seconds": [0, pytest.approx(7e-9)]
    }


def test_what_could_not_be_counted_is_named() -> None:
    found = io_counters.uncounted(counted(uncounted={lib.UNCOUNTED_32_BIT: 3, lib.UNCOUNTED_AIO: 1}))
    assert found == [[], ["32-bit calls by class", "asynchronous I/O (io_submit)"]]
