"""What the pool's collector says of its machines: asked, parsed, summed up, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.hub.ingest import collector
from condor_joblens.hub.ingest.collector import Collector, machines
from condor_joblens.hub.store.client import StoreGone
from condor_joblens.hub.store.schema import MACHINES

NOW = 1_700_000_000.0
LINES = (
    '"ep1" "Partitionable" "Unclaimed" 6 12000 "$CondorVersion: 25.4.0 2026-10-01 $" "Debian13" "X86_64"',
    '"ep1" "Dynamic" "Claimed" 2 4000 "$CondorVersion: 25.4.0 2026-10-01 $" "Debian13" "X86_64"',
    '"ep1" "Dynamic" "Preempting" 1 1000 "$CondorVersion: 25.4.0 2026-10-01 $" "Debian13" "X86_64"',
    '"ep2" "Static" "Owner" 4 8000 undefined undefined "X86_64"',
    '"ep2" undefined "Claimed" 4 8000 undefined undefined "X86_64"',
)


def test_a_machine_is_the_sum_of_its_slots() -> None:
    first, second = machines(LINES, NOW)
    assert first == {
        "Node": "ep1", "Time": NOW, "Slots": 2, "Cores": 9, "ClaimedCores": 3, "MemoryBytes": 17000 << 20,
        "ClaimedMemoryBytes": 5000 << 20, "Version": "25.4.0", "System": "Debian13 X86_64",
    }  # fmt: skip
    assert (second["Slots"], second["Cores"], second["ClaimedCores"]) == (2, 8, 4)
    assert (second["Version"], second["System"]) == ("", "X86_64")


def test_a_partitionable_slot_that_is_claimed_has_no_claimed_cores_of_its_own() -> None:
    (found,) = machines(['"ep" "Partitionable" "Claimed" 6 12000 undefined undefined undefined'], NOW)
    assert (found["Cores"], found["ClaimedCores"], found["Slots"]) == (6, 0, 0)


@pytest.mark.parametrize(
    "line",
    [
        '"ep" "Static" "Claimed" -4 8000 undefined undefined undefined',
        '"ep" "Static" "Claimed" error 8000 undefined undefined undefined',
        '"ep\\n" "Static" "Claimed" 4 8000 undefined undefined undefined',
        '"e p" "Static" "Claimed" 4 8000 undefined undefined undefined',
        'undefined "Static" "Claimed" 4 8000 undefined undefined undefined',
        '"ep" "Static" "Claimed" 4 8000 undefined undefined undefined "more"',
        f'"{"x" * 256}" "Static" "Claimed" 4 8000 undefined undefined undefined',
    ],
)
def test_a_strange_line_is_left_out(line: str) -> None:
    assert machines([line], NOW) == []


def test_who_advertises_ever_more_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MOST_MACHINES", 2)
    line = '"{}" "Static" "Claimed" 9999999 9999999999 undefined undefined undefined'
    found = machines([line.format(name) for name in ("a", "b", "c", "a")], NOW)
    assert [(one["Node"], one["Slots"]) for one in found] == [("a", 2), ("b", 1)]
    for one in found:
        those = {name: one[name] for name in collector.MOST_OF_ONE if name != "Slots"}
        assert those == {name: collector.MOST_OF_ONE[name] for name in those}, "no sum overflows in the store"


def test_hostile_words_are_no_version() -> None:
    (found,) = machines([r'"ep" "Static" "Claimed" 4 8000 "<b>\"1.2\"</b>" "<script>" "=cmd"'], NOW)
    assert (found["Version"], found["System"]) == ("", "script cmd")


@given(st.lists(st.text(max_size=80) | st.sampled_from(LINES)))
def test_whatever_is_said_rows_fit_the_table(lines: list[str]) -> None:
    for row in machines(lines, NOW):
        assert row.keys() == MACHINES.columns.keys() and row["ClaimedCores"] <= row["Cores"]


class Kept:
    """A store that notes what is inserted."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.is_gone = False

    def insert(self, table: Any, lines: list[bytes]) -> None:
        if self.is_gone:
            raise StoreGone("it does not answer")
        assert table is MACHINES
        self.rows += map(json.loads, lines)


def command(folder: Path, said: str, code: int = 0) -> str:
    """A condor_status that says this."""
    file = folder / "condor_status"
    (folder / "said").write_text(said)
    file.write_text(f'#!/bin/sh\necho "$@" >{folder}/asked\ncat {folder}/said\nexit {code}\n')
    file.chmod(0o755)
    return f"{file} -pool cm"


def test_it_is_asked_and_kept_and_what_goes_wrong_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    store: Any = Kept()
    asks = Collector(command(tmp_path, "\n".join(LINES)), store, said.append, lambda: NOW)
    asks.ask()
    assert [row["Node"] for row in store.rows] == ["ep1", "ep2"] and said == []
    assert (tmp_path / "asked").read_text().startswith("-pool cm -constraint Machine isnt undefined")
    command(tmp_path, "", 1)
    asks.ask()
    asks.ask()
    assert len(said) == 1 and "(--collector)" in said[0]
    command(tmp_path, "")
    asks.ask()
    assert "the collector has no machine" in said[1]
    command(tmp_path, "\n".join(LINES))
    store.is_gone = True
    asks.ask()
    assert len(said) == 3 and "can't be kept: it does not answer" in said[2]
    store.is_gone = False
    asks.ask()
    assert len(said) == 3 and len(store.rows) == 4


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    Collector(f"{tmp_path}/none", Kept(), said.append).ask()  # type: ignore[arg-type]
    assert len(said) == 1 and "No such file" in said[0]
