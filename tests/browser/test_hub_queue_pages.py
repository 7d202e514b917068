"""Jobs that wait, on pages in a browser: what their users wrote is text, axe finds no barrier, and a step appears."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any

import pytest
from hub_visits import HOSTILE, IS_WHOLE, ONE_LOOK, PATIENCE, Hub, HubSink, axe, deliver, hub, make, visit
from test_hub_hostile import PAYLOADS

from condor_joblens.sinks import Record, RecordKind

__all__ = ["axe", "hub", "visit"]  # fixtures

AP = "ap.example.org"


def tell(hub: Hub, steps: Sequence[tuple[str, str, str, str]]) -> None:
    """Of alice's jobs: the job, the step, its state and its words, as joblens-eventlog sends them."""
    token = hub.folder / "ap"
    if not token.exists():
        token.write_text("swordfish-of-ap")
        token.chmod(0o600)
        with open(hub.folder / "tokens", "a", encoding="ascii") as file:
            file.write(f"access-point {AP} {hashlib.sha256(b'swordfish-of-ap').hexdigest()}\n")
    batch = []
    for job, kind, state, words in steps:
        name, now = f"{AP}#{job}#1700000000", time.time()
        said = {"Type": "job_event", "Schema": 1, "Node": AP, "Time": now, "Id": f"{name}/{kind}", "GlobalJobId": name}
        said |= {"Owner": "alice", "Executable": words, "AccountingGroup": words, "Slot": words, "Reason": words}
        said |= {"Kind": kind, "State": state, "Sequence": int(now * 1e6), "Code": 13}
        batch.append(Record(RecordKind.EVENT, f"{name}/{kind}", name, now, json.dumps(said).encode()))
    deliver(make(HubSink, URL=hub.url, TOKEN_FILE=str(token)), batch)


def queued(job: str) -> str:
    return "/queued/" + urllib.parse.quote(f"{AP}#{job}#1700000000", safe="")


def test_nothing_of_hostile_text_runs(hub: Hub, visit: Any) -> None:
    payloads = PAYLOADS[:: 7 if IS_WHOLE else 20]
    tell(hub, [(f"80.{number}", "hold", "held", payload) for number, payload in enumerate(payloads)])
    one = visit()
    page = one.log_in("daemon")
    for path in ("/", "/jobs?state=held", *(queued(f"80.{number}") for number in range(len(payloads)))):
        one.open(path)
        assert page.evaluate("window.joblensRan === undefined"), path
        strange = page.locator("main script, main img, main iframe, main style, main [onerror], main [hx-get], main b")
        assert strange.count() == 0, path
        assert "joblensRan" in page.locator("main").inner_text() or path != "/jobs?state=held"


@pytest.mark.parametrize("scheme, wide", ONE_LOOK)
def test_axe_finds_no_barrier(scheme: str, wide: int, hub: Hub, visit: Any, axe: str) -> None:
    tell(hub, [("81.0", "hold", "held", HOSTILE), ("81.1", "submit", "idle", ""), ("81.2", "execute", "running", "")])
    one = visit(color_scheme=scheme)
    page = one.log_in("daemon")
    page.set_viewport_size({"width": wide, "height": 800})
    for path in ("/", "/jobs?state=held", "/jobs?state=idle", "/jobs?state=unwatched", queued("81.0")):
        one.open(path)
        page.evaluate(axe)
        found = page.evaluate("axe.run().then((said) => said.violations)")
        assert found == [], (path, [(each["id"], [node["html"] for node in each["nodes"]]) for each in found])
        wider = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wider, path


def test_a_step_appears_on_the_page_that_is_open(hub: Hub, visit: Any) -> None:
    tell(hub, [("82.0", "submit", "idle", "")])
    one = visit()
    page = one.log_in("daemon")
    one.open(queued("82.0"))
    page.locator(".health", has_text="idle").wait_for()
    tell(hub, [("82.0", "hold", "held", "no such file")])
    page.locator(".health", has_text="held").wait_for(timeout=PATIENCE)
    assert "no such file" in page.locator("tbody").inner_text()
    assert "code 13 (TransferInputError)" in page.locator("tbody").inner_text()
