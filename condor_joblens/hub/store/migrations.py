"""Versions of the store: what makes the tables of an older hub as ours are, step by step and only forward.

New tables and columns need no step: they are made wherever they are not there. A step may be made twice, by two
processes that start together, or because one was killed within it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from condor_joblens.hub.store.schema import (
    LATEST,
    LIVE_DAYS,
    LIVE_NUMBERS,
    LIVE_SERVERS,
    NUMBERS_OF_LIVE,
    SERVERS_OF_LIVE,
    live_filled,
)

TABLE = "versions"
"""One row for each step that was made whole."""

ASK = f"SELECT max(Version) AS Version FROM {TABLE}"


def _few_files(there: Collection[str]) -> list[str]:
    """Tables of the first hubs had a file a column in each part, which is 400 of them for an insert of a few rows."""
    return [
        f"ALTER TABLE {name} MODIFY SETTING min_bytes_for_wide_part = {100 << 20}"
        for name in ("samples", "jobs", "events", "health", "other_schemas", "doubted", "latest", "failed_ends")
        if name in there
    ]


def _by_columns(there: Collection[str]) -> list[str]:
    """Parts of tables with 400 columns were merged row by row, until they were large."""
    return [
        f"ALTER TABLE {name} MODIFY SETTING vertical_merge_algorithm_min_rows_to_activate = 32768"
        for name in ("samples", "jobs", "latest")
        if name in there
    ]


def _filled_later(there: Collection[str]) -> list[str]:
    """There was no table of runs that live: `filling` has what it needs."""
    return []


STEPS: tuple[Callable[[Collection[str]], list[str]], ...] = (
    *(_few_files, _by_columns, _filled_later),
    _filled_later,  # nor of their numbers
)
"""The step at place N makes version N + 1 of version N. Each is given the names of the tables that are there."""

_LIVE_SINCE, _NUMBERS_SINCE = 3, 4

VERSION = len(STEPS)

DONE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (Version UInt32, Time Float64) ENGINE = MergeTree ORDER BY Version",
    f"INSERT INTO {TABLE} SELECT {VERSION}, toUnixTimestamp64Micro(now64(6)) / 1e6",
)
"""Notes that all of it is ours now."""


def statements(version: int | None, there: Collection[str]) -> list[str]:
    """What makes the tables that are there as ours are. version: theirs; None: there are none."""
    return [] if version is None else [one for step in STEPS[version:] for one in step(there)]


def filling(version: int | None) -> list[str]:
    """What fills tables that an older hub did not have, when they and their views are there: so no row is missed."""
    if version is None or version >= _NUMBERS_SINCE:
        return []
    if version >= _LIVE_SINCE:
        tables = ((LIVE_NUMBERS, NUMBERS_OF_LIVE), (LIVE_SERVERS, SERVERS_OF_LIVE))
        return [f"INSERT INTO {table.name} {rows}" for table, rows in tables]
    return [live_filled(LATEST.name, f"Time > toUnixTimestamp(now()) - {86400 * LIVE_DAYS}")]
