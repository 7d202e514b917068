"""The requests that Grafana's Infinity data source makes of our example's panels, sent to a hub.

They are made as its documentation says: https://grafana.com/docs/plugins/yesoreyeram-infinity-datasource. They have
macros of time, parameters in the order of their names, and an Accept by the kind of query. There is a bearer token, a
cursor for pages, and a health check that wants status 200. No Grafana runs here.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import ALICE, Hub, fetched, token
from sinks import deliver, make, runs

from condor_joblens.export.records import RowEncoder
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
PANELS: list[dict[str, Any]] = json.loads((EXAMPLES / "hub_grafana.json").read_text())["panels"]
ACCEPT = {"json": "application/json;q=0.9,text/plain", "csv": "text/csv; charset=utf-8"}
RUNS, SAMPLES = 5, 20
NOW = int(time.time())


def run(number: int) -> str:
    return f"ap.example.org#9.{number}#1700000000#1"


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "grafana")
    started.people.write_text(ALICE)
    with started:
        sink = make(HubSink, URL=started.url, TOKEN_FILE=str(started.folder / "node1"))
        encoder = RowEncoder("node1")
        for sequence in range(1, SAMPLES + 1):
            rows = runs(RUNS + 1, sequence)
            for number in range(RUNS + 1):  # one more that goes on
                rows["global_job_id"][number], rows["run"][number] = run(number)[:-2], run(number)
                rows["job_id"][number], rows["owner"][number] = f"9.{number}", "alice"
            rows["start_time"], rows["update_time"], rows["period_seconds"] = NOW - 600, NOW - SAMPLES + sequence, 86400
            rows["cpu_recent_cores"], rows["death"][:RUNS] = sequence, "signal 11"
            last = RecordKind.JOB if sequence == SAMPLES else RecordKind.SAMPLE
            deliver(sink, encoder.records(rows[:RUNS], last) + encoder.records(rows[RUNS:], RecordKind.SAMPLE))
        yield started


def replaced(text: str) -> str:
    """With the macros of six hours until now."""
    for macro, value in {"timeFrom": NOW - 6 * 3600, "timeTo": NOW + 60}.items():
        text = text.replace(f"${{__{macro}:date:seconds}}", str(value)).replace(f"${{__{macro}}}", str(1000 * value))
    text = text.replace("${run:percentencode}", urllib.parse.quote(run(0), safe=""))
    return re.sub(r"\$__customInterval\(([^)]*)\)", lambda found: found[1].split(",")[3], text)  # 6 h: of 1d


def sent(hub: Hub, secret: str, query: dict[str, Any], more: dict[str, str] | None = None) -> tuple[int, bytes, str]:
    """Status, body and address."""
    given = {one["key"]: replaced(one["value"]) for one in query["url_options"]["params"]} | (more or {})
    path = f"{replaced(query['url'])}?{urllib.parse.urlencode(sorted(given.items()))}"
    headers = {
        "User-Agent": "Grafana/12.0.0", "Accept": ACCEPT[query["type"]], "Accept-Encoding": "gzip",
        "X-Grafana-Org-Id": "1",
    }  # fmt: skip
    status, body, head = fetched(hub, "", path, secret=secret, more=headers)
    assert head["Content-Encoding"] is None
    return status, body, path


@pytest.fixture(scope="module")
def secret(hub: Hub) -> str:
    return token(hub, "Alice", "jobs")[1]


def test_each_panel_has_rows_with_its_columns(hub: Hub, secret: str) -> None:
    counts = []
    for panel in PANELS:
        (query,) = panel["targets"]
        status, body, path = sent(hub, secret, query)
        assert status == 200, (path, body)
        if query["type"] == "csv":
            rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(body.decode(), newline="")))
        else:
            rows = json.loads(body)[query["root_selector"]]
        assert all(column["selector"] in row for column in query["columns"] for row in rows), path
        counts.append(len(rows))
    assert counts == [SAMPLES - 1, 1, RUNS]


def test_pages_follow_a_cursor_until_there_is_none(hub: Hub, secret: str) -> None:
    query = PANELS[2]["targets"][0]
    assert query["pagination_mode"] == "cursor"
    found, more = [], {"limit": "2"}
    while True:
        status, body, path = sent(hub, secret, query, more)
        answer = json.loads(body)
        assert status == 200, (path, answer)
        found += [row["JobId"] for row in answer[query["root_selector"]]]
        cursor = answer[query["pagination_param_cursor_extraction_path"]]
        if not cursor:
            break
        more[query["pagination_param_cursor_field_name"]] = cursor
    assert found == [f"9.{number}" for number in range(RUNS)]


def test_the_health_check_tells_a_token_that_is_none(hub: Hub, secret: str) -> None:
    source = (EXAMPLES / "hub_grafana_source.yaml").read_text()
    (address,) = re.findall(r"customHealthCheckUrl: https://[^/]+(/\S+)", source)
    assert [fetched(hub, "", address, secret=word)[0] for word in (secret, "joblens_x")] == [200, 401]


def test_milliseconds_are_refused_in_a_sentence(hub: Hub, secret: str) -> None:
    """As `${__timeFrom}` without a format, and `${__from}`, are."""
    query = PANELS[2]["targets"][0]
    status, body, _ = sent(hub, secret, query, {"since": replaced("${__timeFrom}")})
    assert status == 400 and "since is a number" in json.loads(body)["error"]
