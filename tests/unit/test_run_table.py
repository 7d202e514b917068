"""The tables of runs: what a killed agent leaves to the next one, and a run that goes on after all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.common.errors import JobLensError
from condor_joblens.jobs.run_table import COUNTERS, Ended, Runs, carry_on
from condor_joblens.model.metrics import ABSENT, cut, empty_rows, text

FORKED, SECONDS = "process_forked", "cpu_seconds"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "slots.state")


def row(run: str, forked: int = 1) -> np.void:
    rows = empty_rows(1)
    rows["run"], rows[FORKED] = cut(run, "run"), forked
    found: np.void = rows[0]
    return found


def test_next_agent_finds_the_table_as_it_was(path: str) -> None:
    killed = Runs(path, 8)
    run = killed.add(4711)
    assert run is not None
    killed.rows[FORKED][run] = 12
    killed.state["offset"][FORKED][run] = 5
    found = Runs(path, 8)
    assert found.by_cgroup == {4711: run}
    assert (found.rows[FORKED][run], found.state["offset"][FORKED][run]) == (12, 5)


def test_table_of_another_size_is_not_taken_over(path: str) -> None:
    Runs(path, 8).add(4711)
    assert not len(Runs(path, 16).living())


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 100, os.urandom(100_000)])
def test_file_that_is_none_of_ours_is_begun_anew(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)
    assert not len(Runs(path, 8).living())


def test_link_is_not_followed(path: str, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    os.symlink(tmp_path / "target", path)
    with pytest.raises(JobLensError, match="make room or set JOBLENS_RUN_DIR"):
        Runs(path, 8)
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_place_of_a_run_that_is_over_has_nothing_of_it(path: str) -> None:
    runs = Runs(path, 2)
    first, second = runs.add(1), runs.add(2)
    assert (first, second, runs.add(3)) == (0, 1, None)
    runs.rows[FORKED][0], runs.state["offset"][FORKED][0] = 9, 9
    runs.remove(0)
    assert runs.add(3) == 0
    assert (runs.rows[FORKED][0], runs.state["offset"][FORKED][0], runs.state["named"][0]) == (ABSENT, 0, False)
    assert runs.by_cgroup == {3: 0, 2: 1}


def test_last_thousand_are_kept_and_found_again(tmp_path: Path) -> None:
    ended = Ended(str(tmp_path / "ended"), os.getgid())
    for number in range(Ended.KEPT + 5):
        ended.add(row(f"job#{number}"))
    ended.publish(1.0)
    names = [text(run) for run in Ended(str(tmp_path / "ended"), os.getgid()).rows["run"]]
    assert names == [f"job#{number}" for number in range(5, Ended.KEPT + 5)]


def test_run_that_goes_on_is_not_ended(tmp_path: Path) -> None:
    ended = Ended(str(tmp_path / "ended"), os.getgid())
    for run in ("a#1", "b#1"):
        ended.add(row(run, forked=7))
    before = ended.resume("a#1")
    assert before is not None and before[FORKED] == 7
    assert [text(run) for run in ended.rows["run"]] == ["b#1"]
    assert ended.resume("a#1") is None


@given(before=st.integers(ABSENT, 1 << 40), now=st.integers(ABSENT, 1 << 40))
def test_totals_never_go_backwards_where_a_run_goes_on(before: int, now: int) -> None:
    last, rows = row("a#1", before), empty_rows(1)
    rows[FORKED] = now
    state = np.zeros(1, [("offset", [(FORKED, "i8"), (SECONDS, "f8")])])
    carry_on(rows, state, 0, last, [FORKED, SECONDS])
    assert rows[FORKED][0] == (max(before, 0) + max(now, 0) if before != ABSENT else now)
    assert state["offset"][FORKED][0] == max(before, 0)
    assert np.isnan(rows[SECONDS][0])


def test_every_counter_has_an_offset() -> None:
    assert FORKED in {metric.column for metric in COUNTERS}
    assert SECONDS in {metric.column for metric in COUNTERS}
