"""Hostile text in every field that a job's user can write: on every page it is text, and nothing of it runs."""

from __future__ import annotations

import time
import urllib.parse
from typing import Any

from hub_visits import (
    IS_WHOLE,
    Entered,
    Hub,
    HubSink,
    RowEncoder,
    deliver,
    enter,
    hub,
    leak,
    make,
    preview,
    runs,
    visit,
)
from playwright.sync_api import Page

from condor_joblens.control.entries import MOST_ENTRIES, Entry, Role
from condor_joblens.hub.rules.alarms import Alarm
from condor_joblens.hub.rules.firings import Firings
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import FIELDS
from condor_joblens.model.servers import Scope
from condor_joblens.sinks import RecordKind

__all__ = ["hub", "visit"]  # fixtures

_SCRIPT = "window.joblensRan=1"
_SHAPES = (
    "<script>{0}</script>",
    "<img src=x onerror={0}>",
    "<svg onload={0}>",
    '"><script>{0}</script>',
    "'><b>x</b>",
    '" onmouseover="{0}',
    "' onfocus='{0}' autofocus='",
    "javascript:{0}",
    "<a href=javascript:{0}>x</a>",
    "<iframe srcdoc='<script>{0}</script>'>",
    "<math><mtext><script>{0}</script>",
    "</td></tr></table><script>{0}</script>",
    "<!--><script>{0}</script>",
    "]]><script>{0}</script>",
    "{{{{ 7|add:7 }}}}",
    "{{% debug %}}",
    "${{{0}}}",
    "<style>*{{display:none}}</style>",
    "<form action=//x><input name=q>",
    "<base href=//x/>",
    "<meta http-equiv=refresh content=0;url=//x/>",
    "<link rel=stylesheet href=//x/>",
    "<object data=//x>",
    "<embed src=//x>",
    "<video src=x onerror={0}>",
    "<details open ontoggle={0}>",
    "<template><script>{0}</script></template>",
    '<noscript><p title="</noscript><img src=x onerror={0}>">',
    "<div hx-get=/logout hx-trigger=load>",
    "<div hx-on:load='{0}'>",
    "<hx-partial hx-target=body><h1>x</h1>",
    "event: over\n\ndata: x",
    "\r\nSet-Cookie: a=b",
    "\u202egnp.exe",
    "\u2028\u2029",
    "\ufeff<script>{0}</script>",
    "＜script＞{0}＜/script＞",
    "%3Cscript%3E{0}%3C/script%3E",
    "&lt;script&gt;{0}&lt;/script&gt;",
    "\\u003cscript\\u003e{0}",
)
_BEFORE = ("", "x", "../../", "#", "?q=1&")
PAYLOADS = [before + shape.format(_SCRIPT) for before in _BEFORE for shape in _SHAPES]
"""200."""

TEXTS = [one.name for one in FIELDS if one.type.startswith("S") and one.name not in ("run", "global_job_id")]
"""Every column of a record that is a text, whoever writes it; a job's name too, below."""

_ODD = "window.joblensRan"
_STRANGE = (
    "main script, main img, main iframe, main style, main object, main embed, main base, main meta, main link,"
    " main video, main math, main template, main hx-partial, main [hx-get], main b, main a[href^='javascript:'],"
    " main a[href^='//'], main [onerror], main [onload], main [onmouseover]"
)
"""What no page of ours has."""


def fill(hub: Hub, payloads: list[str]) -> list[str]:
    """A run that goes on and one that failed for each, with it in all texts and in its name; their names."""
    encoder, sink = RowEncoder("node1"), make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1"))
    names = []
    for kind, cluster in ((RecordKind.SAMPLE, 50), (RecordKind.JOB, 60)):
        rows, now = runs(len(payloads), 1), int(time.time())
        for number, payload in enumerate(payloads):
            raw = payload.encode()[:60].decode("utf-8", "ignore")
            name = f"ap.example.org#{cluster}.{number}#{raw.replace('/', '_')}"
            for column in TEXTS:
                width = rows.dtype[column].itemsize
                rows[column][number] = payload.encode()[: width - 1].decode("utf-8", "ignore").encode()
            rows["servers"][number, 0]["name"], rows["servers"][number, 0]["scope"] = ascii_of(payload), Scope.SERVER
            rows["global_job_id"][number], rows["run"][number] = name.encode(), name.encode()
            rows["owner"][number], rows["level"][number] = b"alice", b"basic"
            names.append(name)
        rows["start_time"], rows["update_time"], rows["period_seconds"] = now - 600, now, 3600
        if kind is RecordKind.SAMPLE:
            leak(hub, rows)
        else:
            deliver(sink, encoder.records(rows, kind))
    return names


def ascii_of(payload: str) -> bytes:
    """As much of it as a server's name can be."""
    return payload.encode("ascii", "replace")[:60]


def fire(hub: Hub, payloads: list[str]) -> None:
    """A firing for each, of alice's, with it in all that pages show of one."""
    alarms = [
        Alarm(
            "trigger", f"{number}", number, payload, payload, owner="alice", schedd="ap.example.org", own=payload,
            evidence={"trigger": payload, "jobs": [{"job": payload, "run": payload, "node": payload}]},
        )
        for number, payload in enumerate(payloads)
    ]  # fmt: skip
    Firings(hub.folder / "kept").see("failures", True, alarms, time.time())


def test_nothing_of_hostile_text_runs_on_any_page(hub: Hub, visit: Any) -> None:
    """In `make test` every fourteenth of them, in `make test-hub` all 200. The fixture fails for each dialog, error,
    request elsewhere and script that the policy of the page had to stop."""
    assert len(PAYLOADS) == 200
    payloads = PAYLOADS if IS_WHOLE else PAYLOADS[::14]
    names = fill(hub, payloads)
    fire(hub, payloads)
    one = visit()
    page = one.log_in("daemon")
    paths = ["/", "/nodes", "/node/node1", "/trends", "/trends?by=group", "/rules", "/leaks", "/servers"]
    paths += ["/scatter?state=all"]
    paths += [f"/jobs?state={state}&page={number}" for state in ("all", "failed") for number in range(3)]
    paths += [f"/job/{urllib.parse.quote(name, safe='')}" for name in names]
    paths += [f"/servers/{urllib.parse.quote(ascii_of(payload), safe='')}" for payload in payloads[::5]]
    paths += [f"/jobs?q={urllib.parse.quote(payload)}&owner={urllib.parse.quote(payload)}" for payload in payloads[::5]]
    for path in paths:
        one.open(path)
        assert page.title().endswith("JobLens"), path
        assert page.evaluate("window.joblensRan === undefined"), path
        strange = page.locator(f"{_STRANGE}, main form:not(.filters)")
        assert strange.count() == 0, path
        assert page.locator("header nav a").count() == 6, path
    one.open("/jobs?state=failed")
    assert _ODD in page.locator("tbody").inner_text(), "it is there to be read"
    one.open("/leaks")
    assert _ODD in page.locator("tbody").inner_text(), "it is there to be read"
    one.open("/rules")
    assert _ODD in page.locator("tbody").inner_text(), "it is there to be read"
    for path in ("/jobs.csv?state=all", "/scatter.csv?state=all", "/nodes.csv", "/servers.csv"):
        answer = page.request.get(hub.pages + path)
        assert answer.status == 200 and answer.headers["content-type"].startswith("text/csv")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_nothing_of_hostile_text_runs_on_the_page_of_entries(hub: Entered, visit: Any) -> None:
    """Who says entries may be hostile: in what holds, the history, a preview, and the form that comes back."""
    one = visit()
    page = one.log_in("games")
    enter(page, executable=_SHAPES[0], reason=_SHAPES[1])
    page.get_by_role("button", name="End").click()
    page.wait_for_url("**/entries?done=*ended")
    words = [one for one in PAYLOADS if one.isascii() and one.isprintable()]
    for begin in range(0, len(words), MOST_ENTRIES) if IS_WHOLE else [0]:
        there = words[begin : begin + MOST_ENTRIES]
        hold(hub, there)
        page.goto(f"{hub.pages}/entries")
        assert page.locator("main tbody").first.locator("tr").count() == len(there)
        assert_plain(page)
        for entry in hub.entries.holding():
            hub.entries.end(entry.name)
    for asked in (PAYLOADS[1], PAYLOADS[-1], "\ufeff<script>"):
        preview(page, executable=asked, reason=asked)
        assert_plain(page)


def hold(hub: Entered, words: list[str]) -> None:
    """Entries that hold, each with one of these in all of its texts."""
    now = int(1000 * time.time())
    for number, word in enumerate(words):
        whom = {"user": word, "group": word, "vo": word, "executable": word, "node": word}
        hub.entries.add(
            Entry(
                name=f"e{number:08x}", role=Role.ADMINISTRATOR, author=word, begins=now, ends=now + 3_600_000,
                reason=word, least=Level.IO, **whom,
            )
        )  # fmt: skip


def assert_plain(page: Page) -> None:
    assert page.evaluate("window.joblensRan === undefined")
    assert page.locator(_STRANGE).count() == 0
    assert "script>" in page.locator("main").inner_text(), "it is there to be read"
