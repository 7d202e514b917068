"""Records: every row and every event, whatever is in it, is a line of JSON that its published schema allows."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.common import machine
from condor_joblens.export import records
from condor_joblens.export.records import EventEncoder, Owner, RowEncoder, from_line
from condor_joblens.export.shared_memory_reader import selected
from condor_joblens.model import servers
from condor_joblens.model.classes import SERVERS
from condor_joblens.model.endpoints import ENDPOINT, LISTED, Scope
from condor_joblens.model.events import EVENT, TOLD_TO_TRIGGERS, EventKind
from condor_joblens.model.metrics import FIELDS, METRICS, ROW, empty_rows
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.row_numbers import rows_of
from condor_joblens.sinks.schema import schemas
from condor_joblens.sinks.selection import metrics as parse_metrics

VALIDATORS = {kind: jsonschema.Draft202012Validator(schema) for kind, schema in schemas().items()}


def strictly(line: bytes) -> dict[str, Any]:
    """Parses as strict readers do: no NaN, no infinity, no bare control character, no newline, plain ASCII."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    assert b"\n" not in line and line.isascii()
    found: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return found


def row(**columns: object) -> np.ndarray:
    rows = empty_rows(1)
    rows["run"], rows["global_job_id"] = b"schedd#1.0#7#1", b"schedd#1.0#7"
    rows["run_number"], rows["sequence"], rows["update_time"] = 42, 3, 1_700_000_000
    for name, value in columns.items():
        rows[name] = value
    return rows


def encoded(rows: np.ndarray, kind: RecordKind = RecordKind.SAMPLE) -> list[dict[str, Any]]:
    found = [strictly(record.json) for record in RowEncoder("node1").records(rows, kind)]
    for fields in found:
        VALIDATORS[kind].validate(fields)
    return found


def test_a_last_record_that_replaces_another_says_so_and_no_other_does() -> None:
    assert ["Corrects" in fields for fields in encoded(row(), RecordKind.JOB)] == [False]
    assert [fields["Corrects"] for fields in encoded(row(corrects=True), RecordKind.JOB)] == [True]


def test_a_sink_that_asks_for_some_metrics_gets_these_and_what_says_whose_they_are() -> None:
    rows = row(cpu_user_seconds=1.5, fs_cvmfs_opens=7, process_live=3, owner=b"alice")
    rows["endpoints"]["scope"][0, 0] = Scope.OUTSIDE
    before = rows.tobytes()
    [fields] = encoded(selected(rows, parse_metrics("cpu.*, Fs.*.Opens")))
    assert fields["Cpu"] == {"UserSeconds": 1.5} and fields["Fs"] == {"Cvmfs": {"Opens": 7}}
    assert fields["Owner"] == "alice" and "Process" not in fields and "Endpoints" not in fields
    [fields] = encoded(selected(rows, parse_metrics("Endpoints")))
    assert "Cpu" not in fields and len(fields["Endpoints"]) == 1
    assert rows.tobytes() == before, "the other sinks' rows stay as they are"
    # sinks that take the row, such as otlp, find no more in it than in the JSON
    [record] = RowEncoder("node1").records(selected(rows, parse_metrics("Cpu.*")), RecordKind.SAMPLE)
    assert record.row is not None and record.row["process_live"] < 0 and record.row["cpu_user_seconds"] == 1.5
    assert selected(rows, parse_metrics("*")) is rows


def test_names_are_those_of_the_ad_and_absent_numbers_are_left_out() -> None:
    [fields] = encoded(row(cpu_user_seconds=1.5, fs_cvmfs_opens=7, owner=b"alice", slot=b"slot1_1"))
    assert fields["Cpu"] == {"UserSeconds": 1.5} and fields["Fs"] == {"Cvmfs": {"Opens": 7}}
    assert (fields["Owner"], fields["Slot"], fields["Type"], fields["Node"]) == ("alice", "slot1_1", "sample", "node1")
    assert fields["Id"] == "schedd#1.0#7#1/42/3" and fields["Time"] == 1_700_000_000
    assert "Memory" not in fields and "Policy" not in fields and fields["Final"] is False


def test_a_last_record_has_an_id_of_its_own() -> None:
    [sample] = RowEncoder("n").records(row(), RecordKind.SAMPLE)
    [job] = RowEncoder("n").records(row(), RecordKind.JOB)
    assert sample.id != job.id and sample.key == job.key == "schedd#1.0#7"


def test_rows_of_different_levels_in_one_batch_keep_their_own_numbers() -> None:
    rows = np.concatenate(
        [row(cpu_seconds=1.0), row(cpu_seconds=2.0, syscall_read_calls=5), row(), row(cpu_seconds=3.0)]
    )
    found = encoded(rows)
    assert [fields.get("Cpu", {}).get("Seconds") for fields in found] == [1.0, 2.0, None, 3.0]
    assert [fields.get("Syscall") for fields in found] == [None, {"Read": {"Calls": 5}}, None, None]


def test_endpoints_are_listed() -> None:
    listed: np.ndarray = np.zeros(LISTED + 1, ENDPOINT)
    listed["rtt_seconds"] = np.nan
    listed["scope"][:2] = Scope.OUTSIDE, Scope.REST
    listed["address"][0] = np.void(bytes(10) + b"\xff\xff" + bytes((192, 0, 2, 7)))
    listed["port"][0], listed["sent_bytes"][0] = 1094, 5
    [fields] = encoded(row(endpoints=listed))
    assert fields["Endpoints"][0]["Address"] == "192.0.2.7" and len(fields["Endpoints"]) == 2


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(seed=st.integers(0, 1 << 32), pattern=st.binary(max_size=40))
def test_any_bytes_for_a_row_are_a_valid_record(seed: int, pattern: bytes) -> None:
    content = np.random.default_rng(seed).bytes(ROW.itemsize) if not pattern else pattern * ROW.itemsize
    rows = np.frombuffer(content[: ROW.itemsize], ROW).copy()
    for flag in ("final", "complete"):
        rows[flag] = rows[flag].view("u1") & 1
    rows["endpoints"]["scope"] &= 3
    rows["endpoints"]["sent_bytes"] = np.abs(rows["endpoints"]["sent_bytes"] >> 1)
    rows["endpoints"]["received_bytes"] = np.abs(rows["endpoints"]["received_bytes"] >> 1)
    rows["endpoints"]["rtt_seconds"] = np.nan
    rows["servers"]["scope"] %= len(servers.Scope)
    rows["servers"]["class"] %= len(SERVERS)
    rows["servers"]["seconds"] = 1.5
    for name in ("requests", "sent_bytes", "received_bytes", "errors"):
        rows["servers"][name] = np.abs(rows["servers"][name] >> 1)
    rows["update_time"] = 5
    rows["run"] = b"r" + rows["run"][0][1:]
    encoded(rows)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0])
def test_numbers_that_are_none_are_left_out(value: float) -> None:
    [fields] = encoded(row(cpu_seconds=value, request_cpus=value, period_seconds=value))
    assert "Cpu" not in fields and "RequestCpus" not in fields


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\nb\x1b[31m\0c", b'"quotes" \\ and \x7f', "Köln".encode()])
def test_text_of_strangers_is_text(name: bytes) -> None:
    [fields] = encoded(row(owner=name))
    assert isinstance(fields["Owner"], str) and fields["Owner"]


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(
    content=st.binary(min_size=EVENT.itemsize, max_size=EVENT.itemsize),
    kind=st.sampled_from(sorted(set(EventKind) - TOLD_TO_TRIGGERS)),
    named=st.booleans(),
)
def test_any_bytes_for_an_event_are_a_valid_record(content: bytes, kind: EventKind, named: bool) -> None:
    event = np.frombuffer(content, EVENT).copy()
    event["kind"] = kind
    event["value"] = abs(int(event["value"][0]) >> 1) % 5
    owner = Owner("schedd#1.0#7#1", "slot1") if named else None
    record = EventEncoder("node1").record(event[0], 0xABC, owner)
    fields = strictly(record.json)
    VALIDATORS[RecordKind.EVENT].validate(fields)
    assert record.id == f"node1/0000000000000abc/{int(event['sequence'][0])}"
    assert record.key == ("schedd#1.0#7" if named else "node1")


def event(kind: EventKind, **columns: object) -> dict[str, Any]:
    made: np.ndarray = np.zeros(1, EVENT)
    made["kind"], made["sequence"], made["limit"] = kind, 9, -1
    for name, value in columns.items():
        made[name] = value
    found = strictly(EventEncoder("n").record(made[0], 1, None).json)
    VALIDATORS[RecordKind.EVENT].validate(found)
    return found


def test_an_exit_says_code_or_signal() -> None:
    assert event(EventKind.EXIT, exit_code=3 << 8)["ExitCode"] == 3
    killed = event(EventKind.EXIT, exit_code=11 | 0x80, lived_seconds=1.5)
    assert (killed["ExitSignal"], killed["CoreDumped"], killed["LivedSeconds"]) == (11, True, 1.5)
    assert not {"ExitCode", "ExitSignal"} & set(event(EventKind.RUN_END, exit_code=-1))


def test_other_events_say_what_they_mean() -> None:
    assert event(EventKind.OOM, value=5, limit=7, pid=3)["LimitBytes"] == 7
    assert "LimitBytes" not in event(EventKind.OOM, value=5)
    assert event(EventKind.LEVEL, value=2, text=b"policy: because")["Level"] == "io"
    assert event(EventKind.LOSS, value=12, text=b"in the kernel")["Count"] == 12
    announced = event(EventKind.ARTIFACT, value=5, text=b"1700000000000000.profile")
    assert (announced["Artifact"], announced["ArtifactKind"]) == ("1700000000000000.profile", "profile")
    assert announced["Bytes"] == 5
    assert event(EventKind.DEATH, text=b"out of memory")["Reason"] == "out of memory"
    raised = event(EventKind.TRACEBACK, pid=3, text=b"KeyError: 7 (fit.py:3)")
    assert (raised["Kind"], raised["Pid"], raised["Exception"]) == ("Traceback", 3, "KeyError: 7 (fit.py:3)")


def test_losses_and_health_fit_their_schemas() -> None:
    loss = records.loss("n", "kafka", "overflow", 3, "id", 1.0)
    VALIDATORS[RecordKind.EVENT].validate(strictly(loss.json))
    assert loss.sinks == {"kafka"}
    node = {**machine.machine(), **machine.disk("Execute", "/")}
    process = {"CpuSeconds": 1.5, "ResidentBytes": 1 << 20}
    for about in (process, {**process, "Machine": node}, {**process, "Machine": machine.machine()}):
        VALIDATORS[RecordKind.HEALTH].validate(strictly(records.health("n", [], about, "id", 1.0).json))


def test_a_record_is_the_same_after_the_spool() -> None:
    for record in RowEncoder("n").records(row(cpu_seconds=1.0), RecordKind.JOB):
        assert from_line(record.json) == record
    beyond_floats = b'{"Type":"event","Id":1,"Node":"n","Time":1%b}' % (b"0" * 400)
    wrong = (b"", b"{}", b"[]", b'{"Type":"what","Id":1,"Node":"n","Time":1}', b'{"Type":"event"}', b"\xff")
    for line in (*wrong, beyond_floats, b"[" * 100_000):
        with pytest.raises(ValueError):
            from_line(line)


def test_the_row_of_a_record_is_the_same_after_the_spool() -> None:
    full = row(**{metric.column: place + 0.25 for place, metric in enumerate(METRICS)}, final=True)
    full["owner"], full["note"] = "j\u00fcrgen".encode(), b'a "quoted" \\ note'
    sparse = row(cpu_seconds=1.5)
    for rows in (full, sparse):
        [record] = RowEncoder("n").records(rows, RecordKind.JOB)
        assert rows_of([record]).tobytes() == rows.tobytes()
        assert rows_of([from_line(record.json), record]).tobytes() == 2 * rows.tobytes()


def test_every_column_is_in_the_schema() -> None:
    properties = schemas()[RecordKind.SAMPLE]["properties"]
    assert {field.record_name for field in FIELDS} <= set(properties)
    full = row(**{metric.column: 1 for metric in METRICS})
    assert len(encoded(full)) == 1
