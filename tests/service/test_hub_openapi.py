"""schemathesis makes requests of the hub's OpenAPI document: each answer is one that the document has.

It is run as people would run it, over HTTP with a token. `make test` has a sample; `make test-hub` the whole of it,
with other requests each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis_hooks
from hub_server import ALICE, STAFF, Hub, token
from sinks import deliver, make, runs

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.web.api.endpoints import ENDPOINTS, ROOT
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

RULES = """
[[rule]]
name = "what programs post"
when = "outside"
"""
RUN = "ap.example.org#9.0#1700000000#1"
WHOLE = bool(os.environ.get("HUB_WHOLE"))


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "openapi", rules=RULES)
    started.people.write_text(ALICE + STAFF)
    with started:
        rows = runs(1, 1)
        rows["global_job_id"], rows["run"], rows["job_id"], rows["owner"] = RUN[:-2], RUN, "9.0", "alice"
        rows["start_time"], rows["update_time"], rows["period_seconds"] = time.time() - 600, time.time(), 86400
        batch = RowEncoder("node1").records(rows, RecordKind.SAMPLE)
        deliver(make(HubSink, URL=started.url, TOKEN_FILE=str(started.folder / "node1")), batch)
        yield started


@pytest.mark.sampled(2)
@pytest.mark.parametrize("person, scope", [("Alice", "jobs"), ("Olga", "jobs"), ("Adam", "jobs"), ("Adam", "alarm")])
def test_no_request_gets_an_answer_that_the_document_has_not(hub: Hub, person: str, scope: str, place: Path) -> None:
    _, secret = token(hub, person, scope)
    what = ["--include-method", "POST"] if scope == "alarm" else ["--exclude-method", "POST"]
    how = ["--phases", "fuzzing", "--max-examples", "8", "--seed", "1"]
    if WHOLE:
        how = ["--phases", "coverage,fuzzing", "--max-examples", "100"]
    folder = Path(__file__).parent
    done = subprocess.run(
        [Path(sys.executable).parent / "st", "run", f"{hub.pages}{ROOT}openapi.json", *what, *how, "--warnings", "off",
         "--continue-on-failure", "--no-shrink", "--header", f"Authorization: Bearer {secret}"],
        env={**os.environ, "PYTHONPATH": str(folder), "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
             schemathesis_hooks.RUN: RUN},
        cwd=place, capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    operations = 1 if scope == "alarm" else len(ENDPOINTS)
    assert f"Tested: {operations}" in done.stdout, "or nothing was asked"
