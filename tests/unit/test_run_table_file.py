"""The file of the table of runs: another version or size takes its numbers over, whatever else it is begins anew."""

from __future__ import annotations

import importlib.util
import json
import lzma
import os
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.common.errors import JobLensError
from condor_joblens.jobs import run_table_0_1, run_table_file
from condor_joblens.jobs.run_state import RENAMED, STATE
from condor_joblens.jobs.run_table import Runs
from condor_joblens.jobs.run_table_file import Tables, Unreadable, describe, open_file, parse_description
from condor_joblens.model.metrics import ABSENT, ROW, empty_rows

DATA = Path(__file__).parent / "data"


def _written_by() -> ModuleType:
    """What wrote slots.state-0.1.xz, in a checkout of 0.1."""
    found = importlib.util.spec_from_file_location("write_slots_state", DATA / "write_slots_state.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


WRITER = _written_by()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slots.state"


@pytest.fixture
def of_0_1(path: Path) -> Path:
    """A table that JobLens 0.1 wrote, with four jobs that live."""
    path.write_bytes(lzma.decompress((DATA / "slots.state-0.1.xz").read_bytes()))
    path.chmod(0o600)
    return path


def said_by_0_1(place: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and state of the run at `place`, as its writer filled them in, in the types of 0.1."""
    row: np.ndarray = np.zeros(1, parse_description(run_table_0_1.ROW))
    state: np.ndarray = np.zeros(1, parse_description(run_table_0_1.STATE))
    WRITER.fill(row, "", place)
    WRITER.fill(state, "", place)
    state["used"], state["cgroup_id"] = True, 4000 + place
    state["kernel_slot"] = place if row["level_number"][0] else -1
    return row, state


def check_same(old: np.ndarray, new: np.ndarray, name: str = "") -> int:
    """Compares what both have, value by value; how many values that were."""
    if old.dtype.names:
        return sum(
            check_same(old[column], new[RENAMED.get(column, column)], f"{name}.{column}")
            for column in old.dtype.names
            if RENAMED.get(column, column) in (new.dtype.names or ())
        )
    assert old.shape == new.shape and np.array_equal(old, new), name
    return old.size


# -- an upgrade from 0.1 ------------------------------------------------------------------------------------------


def test_every_number_of_0_1_survives(of_0_1: Path) -> None:
    log: list[str] = []
    runs = Runs(str(of_0_1), WRITER.CAPACITY, log.append)
    assert runs.by_cgroup == {4000 + place: place for place in WRITER.JOBS}
    for place in WRITER.JOBS:
        row, state = said_by_0_1(place)
        compared = check_same(row, runs.rows[place : place + 1]) + check_same(state, runs.state[place : place + 1])
        assert compared > 900
    assert log == [f"{of_0_1}: {len(WRITER.JOBS)} runs taken over from version 0.1"]


def test_no_column_of_0_1_has_been_forgotten() -> None:
    """A column that has another name takes its number along by run_state.RENAMED."""
    dropped = set(parse_description(run_table_0_1.ROW).names or ()) - set(ROW.names or ())
    dropped |= set(parse_description(run_table_0_1.STATE).names or ()) - set(STATE.names or ())
    assert dropped == set(RENAMED) and set(RENAMED.values()) <= set(STATE.names or ())


def test_the_second_start_finds_the_new_format(of_0_1: Path) -> None:
    first = Runs(str(of_0_1), WRITER.CAPACITY)
    first.rows["process_forked"][WRITER.JOBS[0]] = 12345
    log: list[str] = []
    second = Runs(str(of_0_1), WRITER.CAPACITY, log.append)
    assert not log and second.by_cgroup == first.by_cgroup
    assert second.rows["process_forked"][WRITER.JOBS[0]] == 12345
    assert of_0_1.read_bytes()[:8] == run_table_file.MAGIC
    assert of_0_1.stat().st_mode & 0o777 == 0o600


def test_an_upgrade_that_fails_half_way_leaves_the_old_file(of_0_1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = of_0_1.read_bytes()

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(JobLensError, match="make room or set JOBLENS_RUN_DIR"):
        Runs(str(of_0_1), WRITER.CAPACITY)
    assert of_0_1.read_bytes() == before
    assert os.listdir(of_0_1.parent) == [of_0_1.name]


def test_a_table_that_has_less_room_takes_over_what_fits_and_names_the_rest(of_0_1: Path) -> None:
    log: list[str] = []
    runs = Runs(str(of_0_1), 3, log.append)
    # 7 has no place of that number any more, 1 was free
    assert runs.by_cgroup == {4000: 0, 4002: 2, 4003: 1}
    name = said_by_0_1(7)[0]["run"][0].decode()
    assert [line for line in log if name in line and "JOBLENS_MAX_JOBS = 3, set it to 4" in line] == log[1:]


def test_a_table_that_has_more_room_takes_over_all(of_0_1: Path) -> None:
    runs = Runs(str(of_0_1), 1000)
    assert runs.by_cgroup == {4000 + place: place for place in WRITER.JOBS}
    assert runs.add(1) == 1


# -- any other change of the columns ------------------------------------------------------------------------------

TYPES = ("i1", "i4", "i8", "u4", "u8", "f8", "?", "S8", "S40", ("i8", (3,)), ("f8", (4,)), [("a", "i8"), ("b", "f8")])
FIXED_ROW = [("level_number", "i4"), ("run", "S16")]
FIXED_STATE = [("used", "?"), ("cgroup_id", "u8")]
columns = st.dictionaries(st.sampled_from([f"column_{n}" for n in range(8)]), st.sampled_from(TYPES), max_size=8)


def tables_of(row: dict[str, Any], state: dict[str, Any]) -> Callable[[int], Tables]:
    """A version of JobLens that has these columns besides those that it can't be without; its default is 77."""

    def fresh(count: int) -> Tables:
        found = []
        for fixed, some in ((FIXED_ROW, row), (FIXED_STATE, state)):
            made: np.ndarray = np.zeros(count, np.dtype([*fixed, *some.items()], align=True))
            for name, kind in some.items():
                if not isinstance(kind, list):
                    made[name] = 77
            found.append(made)
        return Tables(*found)

    return fresh


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(columns, columns, columns, columns, st.integers(1, 6), st.integers(1, 6), st.data())
def test_columns_come_and_go_and_the_others_keep_their_numbers(
    tmp_path: Path,
    row: dict[str, Any],
    state: dict[str, Any],
    next_row: dict[str, Any],
    next_state: dict[str, Any],
    capacity: int,
    next_capacity: int,
    data: st.DataObject,
) -> None:
    path = tmp_path / "table"
    path.unlink(missing_ok=True)
    log: list[str] = []
    old = open_file(str(path), tables_of(row, state), capacity, log.append)
    old.rows[:], old.state[:] = tables_of(row, state)(capacity).rows, tables_of(row, state)(capacity).state
    used = data.draw(st.lists(st.booleans(), min_size=capacity, max_size=capacity))
    for place in range(capacity):
        old.state["used"][place], old.state["cgroup_id"][place] = used[place], 100 + place
        for table, names in ((old.rows, row), (old.state, state)):
            for name in names:
                if not isinstance(names[name], list):
                    table[name][place] = data.draw(st.integers(0, 1))
                else:
                    table[name]["a"][place], table[name]["b"][place] = 9 + place, 0.5
    before = Tables(old.rows.copy(), old.state.copy())
    new = open_file(str(path), tables_of(next_row, next_state), next_capacity, log.append)
    assert not any("begin anew" in line for line in log if "no room" not in line)
    kept = [place for place in range(capacity) if used[place]][:next_capacity]
    assert sorted(new.state["cgroup_id"][new.state["used"]].tolist()) == [100 + place for place in kept]
    for place in np.flatnonzero(new.state["used"]).tolist():
        was = int(new.state["cgroup_id"][place]) - 100
        for table, their, names, next_names in (
            (new.rows, before.rows, row, next_row),
            (new.state, before.state, state, next_state),
        ):
            for name, kind in next_names.items():
                check_value(table[name][place], kind, their[name][was] if name in names else None, names.get(name))
    again = open_file(str(path), tables_of(next_row, next_state), next_capacity, log.append)
    assert again.rows.tobytes() == new.rows.tobytes() and again.state.tobytes() == new.state.tobytes()


def check_value(value: Any, kind: Any, before: Any, kind_before: Any) -> None:
    """A value of the new table is the old one's if it can be, else the default; 0 and 1 fit into any number."""
    old, new = np.dtype(kind_before if kind_before is not None else "V1"), np.dtype(kind)
    families = {"i": "number", "u": "number"}
    same = families.get(old.base.kind, old.base.kind) == families.get(new.base.kind, new.base.kind)
    if before is not None and same and old.shape == new.shape:
        assert np.array_equal(value, before)
    elif isinstance(kind, list):
        assert (value["a"], value["b"]) == (0, 0.0)
    else:
        assert np.all(value == (b"77" if new.kind == "S" else new.base.type(77)))


@pytest.mark.parametrize(
    ("old", "new", "value", "result"),
    [
        ("i4", "i8", -5, -5),
        ("i8", "i4", 2**40, 77),
        ("i8", "i4", -(2**31), -(2**31)),
        ("u8", "i8", 2**63, 77),
        ("u8", "i8", 2**63 - 1, 2**63 - 1),
        ("i8", "u8", -1, 77),
        ("S4", "S8", b"abcd", b"abcd"),
        ("S8", "S4", b"abcdef", b"abcd"),
        ("S8", "S4", "abcü".encode(), b"abc"),
        ("i8", "f8", 5, 77),
        ("f8", "i8", 5.0, 77),
        ("f4", "f8", 0.5, 0.5),
        ("f8", "f4", 0.5, 77),
        ("S8", "i8", b"5", 77),
        ("V16", "V16", b"x" * 16, b"x" * 16),
    ],
)
def test_a_value_is_converted_if_nothing_of_it_is_lost(old: str, new: str, value: Any, result: Any) -> None:
    source, target = np.zeros(1, [("a", old)]), np.zeros(1, [("a", new)])
    source["a"], target["a"] = np.void(value) if old[0] == "V" else value, np.void(b"") if new[0] == "V" else 77
    run_table_file.copy_columns(source, target)
    found = target["a"][0]
    assert (found.tobytes() if new[0] == "V" else found) == result


def test_a_description_is_the_structure() -> None:
    for kind in (ROW, STATE):
        assert parse_description(json.loads(json.dumps(describe(kind)))) == kind


def test_what_0_1_wrote_is_frozen() -> None:
    """Its hash was made from these two: a change here would read its files wrongly."""
    assert run_table_0_1.TAG.hex() == "bc112652bc4a5a7fa4bf8f84c9c550845da1a3d37a85e2ff09f8a204ea1b786b"
    row, state = parse_description(run_table_0_1.ROW), parse_description(run_table_0_1.STATE)
    assert (row.itemsize, state.itemsize, len(row.names or ()), len(state.names or ())) == (5968, 5328, 264, 41)


# -- what is no table of ours -------------------------------------------------------------------------------------


def begins_anew(path: Path, capacity: int = 4) -> str:
    """Opens it: the table is empty and works. The one line that was logged."""
    log: list[str] = []
    runs = Runs(str(path), capacity, log.append)
    assert not len(runs.living())
    assert runs.add(4711) == 0 and np.array_equal(runs.rows[0].tobytes(), empty_rows(1)[0].tobytes())
    assert Runs(str(path), capacity).by_cgroup == {4711: 0}
    (line,) = log
    assert line.startswith(f"{path} ") and line.endswith("the totals of the jobs that run now begin anew")
    return line


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 100, os.urandom(100_000), run_table_file.MAGIC])
def test_a_foreign_file_is_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    begins_anew(path)


def test_a_link_is_replaced_and_not_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    path.symlink_to(tmp_path / "target")
    begins_anew(path)
    assert (tmp_path / "target").read_bytes() == b"precious" and not path.is_symlink()


def test_a_pipe_is_replaced_and_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    assert "is no plain file" in begins_anew(path)


def test_a_file_that_others_can_write_is_replaced(of_0_1: Path) -> None:
    of_0_1.chmod(0o666)
    assert "could have been written by others" in begins_anew(of_0_1, WRITER.CAPACITY)


def test_a_folder_in_its_place_is_told(path: Path) -> None:
    path.mkdir()
    with pytest.raises(JobLensError, match="make room or set JOBLENS_RUN_DIR"):
        Runs(str(path), 4)


@pytest.mark.parametrize("version", ["0.1", "now"])
@pytest.mark.parametrize("left", [40, 100, 5000, 50_000, -1])
def test_a_truncated_file_is_replaced(of_0_1: Path, version: str, left: int) -> None:
    if version == "now":
        Runs(str(of_0_1), WRITER.CAPACITY)
    content = of_0_1.read_bytes()
    of_0_1.write_bytes(content[:left])
    line = begins_anew(of_0_1, WRITER.CAPACITY)
    assert "is truncated" in line or "is damaged" in line


def test_a_format_of_the_future_is_replaced(path: Path) -> None:
    Runs(str(path), 4).add(1)
    content = bytearray(path.read_bytes())
    content[8:12] = struct.pack("=I", run_table_file.FORMAT + 1)
    path.write_bytes(content)
    assert "in a format that this version of JobLens does not know" in begins_anew(path)


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 30_000), value=st.integers(1, 255))
def test_a_header_in_which_a_bit_is_wrong_is_replaced(tmp_path: Path, at: int, value: int) -> None:
    path = tmp_path / "slots.state"
    path.unlink(missing_ok=True)
    Runs(str(path), 1).add(1)
    content = bytearray(path.read_bytes())
    described = struct.unpack_from("=Q", content, 24)[0]
    content[at % (run_table_file._HEADER.size + described)] ^= value
    path.write_bytes(content)
    begins_anew(path, 1)


numbers = st.integers(-(2**70), 2**70) | st.integers(0, 64)
leaves = st.none() | st.booleans() | numbers | st.sampled_from(["<i8", "|S8", "<f8", "|V999", "a", ">i8", "O"])


def described(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    column = st.tuples(st.sampled_from("abc"), inner, st.integers(0, 64)).map(list)
    return st.fixed_dictionaries({"bytes": inner | st.just(64), "columns": st.lists(column, max_size=4)})


json_values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | described(inner), max_leaves=12)


@settings(max_examples=examples(150), deadline=None)
@given(json_values)
def test_any_description_is_a_structure_or_refused(description: Any) -> None:
    try:
        kind = parse_description(description)
    except Unreadable:
        return
    assert kind.itemsize <= run_table_file.MAX_RECORD_BYTES
    assert parse_description(json.loads(json.dumps(describe(kind)))) == kind


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(json_values, st.integers(0, 2**64 - 1) | st.integers(0, 3), st.integers(0, 2**64 - 1) | st.just(4096))
def test_a_header_with_a_right_checksum_is_not_believed_either(
    tmp_path: Path, described: Any, capacity: int, rows_at: int
) -> None:
    path = tmp_path / "slots.state"
    text = json.dumps({"row": described, "state": described}).encode()
    known = (run_table_file.MAGIC, run_table_file.FORMAT, run_table_file.BYTE_ORDER, capacity, len(text), rows_at, 8192)
    header = run_table_file._HEADER.pack(*known, run_table_file._checksum(known, text))
    path.write_bytes((header + text).ljust(20_000, b"\0"))
    path.chmod(0o600)
    begins_anew(path)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("rows", "level_number", 77),
        ("rows", "level_number", -1),
        ("state", "policy_level", -7),
        ("state", "override_level", 5),
        ("state", "cgroup_id", 0),
        ("state", "cgroup_id", 4002),
        ("rows", "cgroup", b"a\0b"),
    ],
)
def test_a_run_with_impossible_numbers_begins_anew_and_the_others_go_on(
    of_0_1: Path, table: str, column: str, value: Any
) -> None:
    runs = Runs(str(of_0_1), WRITER.CAPACITY)
    getattr(runs, table)[column][3] = value
    log: list[str] = []
    again = Runs(str(of_0_1), WRITER.CAPACITY, log.append)
    assert again.by_cgroup == {4000: 0, 4002: 2, 4007: 7}
    assert ["impossible numbers: its totals begin anew" in line for line in log] == [True]
    assert again.add(99) == 1 and again.rows["process_forked"][1] == ABSENT


def test_any_other_number_of_uses_means_that_there_is_one(of_0_1: Path) -> None:
    runs = Runs(str(of_0_1), WRITER.CAPACITY)
    runs.state["used"].view("u1")[3] = 255
    assert Runs(str(of_0_1), 8).by_cgroup == {4000 + place: place for place in WRITER.JOBS}
