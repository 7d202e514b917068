"""The tables of runs: what a killed agent leaves to the next one, and a run that goes on after all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.jobs.run_state import COUNTERS
from condor_joblens.jobs.run_table import Ended, Runs
from condor_joblens.jobs.run_table_file import describe
from condor_joblens.model import servers
from condor_joblens.model.endpoints import ENDPOINT, LISTED
from condor_joblens.model.metrics import ABSENT, ROW, cut, empty_rows, text
from condor_joblens.shm import layout, writer

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
    before = ended.resume(row("a#1"))
    assert before is not None and before[FORKED] == 7
    assert [text(run) for run in ended.rows["run"]] == ["b#1"]
    assert ended.resume(row("a#1")) is None


def test_a_row_that_was_put_right_stands_for_the_first_one(tmp_path: Path) -> None:
    ended = Ended(str(tmp_path / "ended"), os.getgid())
    for number, run in enumerate(("a#1", "b#1", "c#1")):
        last = row(run)
        last["run_number"] = number + 1
        ended.add(last)
    right, unknown = row("b#1", forked=7), row("d#1")
    right["run_number"], unknown["run_number"] = 2, 4
    ended.correct(right)
    ended.correct(unknown)
    assert [text(run) for run in ended.rows["run"]] == ["a#1", "c#1", "b#1"]
    assert ended.rows[FORKED].tolist() == [1, 1, 7]


@pytest.mark.parametrize("column", ["slot", "execute", "job_id", "owner"])
def test_a_run_with_the_name_of_another_jobs_gets_nothing_of_it(tmp_path: Path, column: str) -> None:
    """The schedd lets a job's owner edit GlobalJobId, which is most of the name."""
    ended = Ended(str(tmp_path / "ended"), os.getgid())
    ended.add(row("a#1", forked=7))
    other = row("a#1")
    other[column] = b"other"
    assert ended.resume(other) is None
    assert [text(run) for run in ended.rows["run"]] == ["a#1"]


def written_by_another_version(path: Path, monkeypatch: pytest.MonkeyPatch, rows: np.ndarray) -> None:
    """The file of ended runs of a version whose rows are of this type."""
    with monkeypatch.context() as patched:
        patched.setattr(writer, "ROW", rows.dtype)
        patched.setattr(writer, "SCHEMA_HASH", 4711)
        patched.setattr(writer, "_WHOLE", np.dtype(f"V{rows.dtype.itemsize}"))
        writer.Writer(str(path), Ended.KEPT, os.getgid()).publish(rows, 1.0)


def test_ended_runs_of_another_version_are_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = [(name, ROW[name]) for name in ROW.names or () if name != "tcp_failed"]
    rows = np.zeros(3, np.dtype([("of_the_future", "f8"), *other], align=True))
    rows["run"], rows[FORKED], rows["endpoints"]["sent_bytes"] = [b"a#1", b"b#1", b"c#1"], [5, 6, 7], 8
    written_by_another_version(tmp_path / "ended", monkeypatch, rows)
    log: list[str] = []
    ended = Ended(str(tmp_path / "ended"), os.getgid(), log.append)
    assert not log and ended.rows[FORKED].tolist() == [5, 6, 7]
    assert (ended.rows["endpoints"]["sent_bytes"] == 8).all() and (ended.rows["tcp_failed"] == ABSENT).all()
    before = ended.resume(row("b#1"))
    assert before is not None and before[FORKED] == 6
    assert [text(run) for run in Ended(str(tmp_path / "ended"), os.getgid()).rows["run"]] == ["a#1", "b#1", "c#1"]


def test_an_opaque_column_changes_its_size_or_its_name() -> None:
    """Of another version's lists only the name and the size are known (run_table_file.copy_columns).

    If an entry changes otherwise than by its size, give the column another name, and this test the new layout.
    """
    assert [name for name in ROW.names or () if ROW[name].subdtype] == ["endpoints", "servers"]
    for entry, listed, size, expected in (
        (ENDPOINT, LISTED, 104, "cfd27d8e7fadbdae"),
        (servers.SERVER, servers.LISTED, 104, "87863502d75df59c"),
    ):
        known = hashlib.sha256(repr((describe(entry), listed)).encode()).hexdigest()[:16]
        assert (known, entry.itemsize) == (expected, size)


@pytest.mark.parametrize("content", [b"", b"x" * 10_000, b"JLROWS\0\0" + b"\xff" * 10_000])
def test_ended_runs_that_can_not_be_read_are_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ended").write_bytes(content)
    log: list[str] = []
    assert not len(Ended(str(tmp_path / "ended"), os.getgid(), log.append).rows)
    (line,) = log
    assert line.startswith(str(tmp_path)) and line.endswith("the runs that have ended are no longer known")


@given(columns=st.binary(min_size=64, max_size=64), which=st.integers(0, 263))
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_description_of_columns_is_not_believed(tmp_path: Path, columns: bytes, which: int) -> None:
    path = tmp_path / "ended"
    path.unlink(missing_ok=True)
    writer.Writer(str(path), 2, os.getgid(), empty_rows(1))
    content = bytearray(path.read_bytes())
    content[16:24] = b"another "  # the schema's hash
    content[layout.PAGE + 64 * which : layout.PAGE + 64 * (which + 1)] = columns
    path.write_bytes(content)
    assert len(Ended(str(path), os.getgid()).rows) in (0, 1)


def test_every_counter_has_an_offset() -> None:
    assert FORKED in {metric.column for metric in COUNTERS}
    assert SECONDS in {metric.column for metric in COUNTERS}
