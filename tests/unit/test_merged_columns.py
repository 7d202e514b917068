"""What C puts into rows in one pass is what numpy makes of the same columns, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.structs import taken
from condor_joblens.jobs.run_state import OFFSETS, STATE
from condor_joblens.model.metrics import METRICS, empty_rows
from condor_joblens.sample import (
    endpoint_counters,
    endpoint_rows,
    io_counters,
    kernel_counters,
    merged_columns,
    server_counters,
    totals,
)
from condor_joblens.tracer import map_layout

RUNS = np.array([3, 1])


def structs(dtype: np.dtype[Any], seed: int, greatest: int = 2**40) -> np.ndarray:
    """Two elements whose words are anything."""
    words = np.random.default_rng(seed).integers(0, greatest, (2, dtype.itemsize // 8))
    return words.astype("u8").view(dtype)[:, 0]


class Tables:
    """Rows into which the one way puts them, and those of the other."""

    def __init__(self, seed: int) -> None:
        self.by_columns, self.at_once = empty_rows(5), empty_rows(5)
        self.offsets: np.ndarray = np.zeros(5, STATE)["offset"]
        numbers = np.random.default_rng(seed)
        for name in OFFSETS.names or ():
            self.offsets[name] = numbers.integers(0, 2**30, 5)

    def merge(
        self, columns: Mapping[str, np.ndarray], merged: merged_columns.MergedColumns, *sources: np.ndarray | None
    ) -> None:
        totals.merge(self.by_columns, self.offsets, RUNS, dict(columns))
        merged.merge(self.at_once, self.offsets, RUNS, sources)
        for name in (metric.column for metric in METRICS):
            one, other = self.by_columns[name], self.at_once[name]
            if one.dtype.kind == "f":
                np.testing.assert_allclose(other, one, rtol=1e-12, err_msg=name)
            else:
                assert one.tobytes() == other.tobytes(), name


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=4), st.sets(st.sampled_from(["io_read_calls", "tcp_open"])))
def test_the_kernels_counters(seeds: list[int], left_out: set[str]) -> None:
    tables = Tables(seeds[0])
    merged = kernel_counters.merged(frozenset(left_out))
    for seed in seeds:
        ended = structs(map_layout.COUNTERS, seed)
        living, walked = (structs(map_layout.LIVING, seed + more) for more in (1, 2))
        found = kernel_counters.columns(ended, living, walked)
        tables.merge({name: found[name] for name in found.keys() - left_out}, merged, ended, living, walked)


@given(st.integers(0, 2**32))
def test_what_was_not_looked_at_is_nothing(seed: int) -> None:
    ended, nothing = structs(map_layout.COUNTERS, seed), np.zeros(2, map_layout.LIVING)
    ended["rtt_count"] = 0
    found = kernel_counters.columns(ended, nothing, nothing)
    assert np.isnan(found["tcp_rtt_seconds"]).all()
    Tables(seed).merge(found, kernel_counters.merged(frozenset()), ended, None, None)


@given(st.integers(0, 2**32), st.integers(1, 2**20))
def test_sums_wrap_as_the_kernels_do(seed: int, begin: int) -> None:
    """A slot's counter of a job that is older than the programs can begin below 0 (as an unsigned number)."""
    ended, living = structs(map_layout.COUNTERS, seed), structs(map_layout.LIVING, seed + 1)
    ended["call_read_bytes"] = np.uint64(2**64 - begin)
    nothing = np.zeros(2, map_layout.LIVING)
    found = kernel_counters.columns(ended, living, nothing)
    assert found["io_call_read_bytes"].tolist() == (living["call_read_bytes"].astype("i8") - begin).tolist()
    Tables(seed).merge(found, kernel_counters.merged(frozenset()), ended, living, None)


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=3), st.booleans())
def test_what_endpoints_are_shares_of(seeds: list[int], with_udp: bool) -> None:
    tables = Tables(seeds[0])
    merged = endpoint_counters.merged(with_udp)
    for seed in seeds:
        ended, walked = structs(map_layout.COUNTERS, seed), structs(map_layout.LIVING, seed + 1)
        tables.merge(endpoint_counters.columns(ended, walked, with_udp), merged, ended, walked)


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=3))
def test_what_level_io_counts(seeds: list[int]) -> None:
    tables = Tables(seeds[0])
    for seed in seeds:
        counted = structs(map_layout.IO_COUNTERS, seed)
        tables.merge(io_counters.columns(counted), io_counters.MERGED, counted)


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=3), st.sampled_from([frozenset(), frozenset({"nfs"})]))
def test_what_was_asked_of_servers(seeds: list[int], refused: frozenset[str]) -> None:
    tables = Tables(seeds[0])
    for seed in seeds:
        ended = structs(map_layout.COUNTERS, seed)
        found = server_counters.columns(ended)
        known = {name: found[name] for name in server_counters.known_columns(refused)}
        assert len(known) == len(found) - (len(found) // map_layout.SERVER_CLASSES if refused else 0)
        tables.merge(known, server_counters.merged(refused), ended)


@given(st.integers(0, 2**32))
def test_totals_of_lists_are_sums_of_columns(seed: int) -> None:
    rows = empty_rows(5)
    numbers = np.random.default_rng(seed)
    names = {name for columns in endpoint_rows.TOTALS.values() for name in columns} | {"tcp_failed"}
    for name in names:
        rows[name] = numbers.integers(-1, 100, 5)
    for name in server_counters.COLUMNS:
        rows[name] = numbers.integers(0, 100, 5)
    of_network, of_files = endpoint_rows.totals(rows, RUNS), server_counters.sums(rows, RUNS)
    for place, run in enumerate(RUNS.tolist()):
        row = rows[run]
        wanted = [sum(max(0, row[name]) for name in columns) for columns in endpoint_rows.TOTALS.values()]
        assert of_network[place].tolist() == [*wanted, max(0, max(0, row["tcp_failed"]) - sum(wanted[-3:]))]
        of_kinds = [[row[name] for name in server_counters.COLUMNS[kind::5]] for kind in range(5)]
        assert of_files[place].tolist() == [sum(kinds) for kinds in of_kinds]


def test_nothing_beyond_a_table_is_touched() -> None:
    rows, offsets, source = empty_rows(2), np.zeros(2, OFFSETS), np.zeros(1, map_layout.IO_COUNTERS)
    before = rows.tobytes()
    for run in (-1, 2):
        with pytest.raises(IndexError):
            io_counters.MERGED.merge(rows, offsets, np.array([run]), (source,))
        with pytest.raises(IndexError):
            merged_columns.GatheredColumns(["process_live"]).of(rows, np.array([run]))
    with pytest.raises(ValueError, match="source"):
        io_counters.MERGED.merge(rows, offsets, np.array([0, 1]), (source,))
    io_counters.MERGED.merge(rows, offsets, np.zeros(0, "i8"), (source[:0],))
    assert rows.tobytes() == before


@given(st.lists(st.integers(0, 4), max_size=8))
def test_structs_are_taken_whole(places: list[int]) -> None:
    table: np.ndarray = np.zeros(5, map_layout.LIVING)
    table["processes"], table["unsent_bytes"] = range(5), range(10, 15)
    found = taken(table, np.array(places, "i8"))
    assert found.tobytes() == table[np.array(places, "i8")].tobytes()
    found["processes"] = 99  # it is a copy
    assert table["processes"].tolist() == list(range(5))
    assert taken(table, table["processes"] > 2)["unsent_bytes"].tolist() == [13, 14]
