"""What a hub gives as Parquet, read by pyarrow: the numbers of its JSON, for each viewer those that he sees."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import ALICE, STAFF, Hub, ask, fetched
from sinks import deliver, make, runs

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.web.parquet import KIND
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

RUNS, SAMPLES = 3, 5
OWNERS = ("alice", "bob", "=cmd")
WORD = 'a"b\\c\n\u00e9'
"""Of a job: it comes out as it went in."""

_READ = """
import io, json, os, sys
import pyarrow.parquet
table = pyarrow.parquet.read_table(io.BytesIO(sys.stdin.buffer.read()))
print(json.dumps([{field.name: str(field.type) for field in table.schema}, table.to_pylist()], default=str), flush=True)
os._exit(0)  # its threads abort the end of some processes
"""


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "parquet")
    started.people.write_text(ALICE + STAFF)
    with started:
        sink = make(HubSink, URL=started.url, TOKEN_FILE=str(started.folder / "node1"))
        encoder, now = RowEncoder("node1"), int(time.time())
        for sequence in range(1, SAMPLES + 1):
            rows = runs(RUNS, sequence)
            for number, owner in enumerate(OWNERS):
                rows["global_job_id"][number], rows["run"][number] = run(number)[:-2], run(number)
                rows["job_id"][number], rows["owner"][number] = f"9.{number}", owner
                rows["executable"][number] = WORD.encode()
            rows["start_time"], rows["update_time"], rows["period_seconds"] = now - 600, now, 86400
            rows["cpu_recent_cores"], rows["io_call_read_bytes"] = sequence, (1 << 53) + 1
            deliver(sink, encoder.records(rows, RecordKind.SAMPLE))
        yield started


def run(number: int) -> str:
    return f"ap.example.org#9.{number}#1700000000#1"


def table(hub: Hub, person: str, path: str, **words: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Types by column, and rows; as pyarrow reads them."""
    more = {"Accept": KIND} if path.startswith("/api/") else {}
    status, body, head = fetched(hub, person, path, more=more, **words)
    assert status == 200 and head["Content-Type"] == KIND, body[:300]
    done = subprocess.run(
        [sys.executable, "-c", _READ], input=body, capture_output=True, timeout=120, check=False,
        env={"PYTHONPATH": str(hub.files)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    types, rows = json.loads(done.stdout)
    return types, rows


def test_jobs_are_the_rows_of_the_json_with_types(hub: Hub) -> None:
    asked = {"columns": "JobId,Owner,Executable,StartTime,Cpu.RecentCores,Final,Io.CallReadBytes"}
    for person in ("alice", "olga", "adam"):
        types, rows = table(hub, person, "/api/v1/jobs", **asked)
        wanted = ask(hub, person, "/api/v1/jobs", **asked)[1]["jobs"]
        for row, there in zip(rows, wanted, strict=True):
            assert row.pop("StartTime") == time.strftime("%Y-%m-%d %H:%M:%S+00:00", time.gmtime(there.pop("StartTime")))
            assert {name: row[name] for name in there} == there, "what he may not see is not there"
    assert types["StartTime"].startswith("timestamp") and types["Cpu.RecentCores"] == "double"
    assert types["Executable"] == "string" and types["Final"] == "bool" and types["ExitCode"] == "int64"
    assert rows[2]["Executable"] == WORD and rows[2]["Owner"] == "=cmd", "no spreadsheet opens it"
    assert fetched(hub, "adam", "/api/v1/jobs", more={"Accept": KIND}, limit=1)[2]["JobLens-Next"]


def test_a_series_is_a_row_a_part_of_the_time(hub: Hub) -> None:
    path = f"/api/v1/job/{urllib.parse.quote(run(0), safe='')}/series"
    types, rows = table(hub, "alice", path, metrics="Cpu.RecentCores", points=1)
    assert [(row["samples"], row["Cpu.RecentCores.max"], row["first_sequence"]) for row in rows] == [(5, 5.0, 1)]
    assert types["begin"].startswith("timestamp")
    status, body, _ = fetched(hub, "alice", path, more={"Accept": "text/csv"}, metrics="Cpu.RecentCores", points=1)
    assert status == 200 and body.split(b"\r\n")[0].endswith(
        b"Cpu.RecentCores.min,Cpu.RecentCores.max,Cpu.RecentCores.mean"
    )
    assert fetched(hub, "alice", path.replace("9.0", "9.1"), more={"Accept": KIND}, metrics="Cpu.Seconds")[0] == 404


@pytest.mark.parametrize("page", ["jobs", "nodes", "trends", "servers", "leaks"])
def test_a_page_that_has_csv_has_it_too(hub: Hub, page: str) -> None:
    types, rows = table(hub, "adam", f"/{page}.parquet")
    count = {"jobs": RUNS, "nodes": 1}.get(page, 0)
    assert len(rows) == count and ask(hub, "adam", f"/{page}.csv")[2].count("\r\n") == 1 + count
    if page == "nodes":
        assert types["memory_bytes"] == "double" and types["told"].startswith("timestamp")
    assert fetched(hub, "stranger", f"/{page}.parquet")[0] != 200


def test_what_is_wrong_is_a_sentence(hub: Hub) -> None:
    assert fetched(hub, "adam", "/jobs.parquet?state=x")[0] == 400
    status, body, _ = fetched(hub, "adam", "/api/v1/jobs?limit=0", more={"Accept": KIND})
    assert status == 400 and json.loads(body)["error"]
    assert json.load(io.BytesIO(fetched(hub, "adam", "/api/v1/schema", more={"Accept": KIND})[1])), "no table"
