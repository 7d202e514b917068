"""A hub with pages for the tests of this layer, records to send it, and browsers of its people."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page

SERVICE = Path(__file__).parents[1] / "service"
sys.path.insert(0, str(SERVICE))  # its servers, and the sinks with records for them

from artifact_node import Node  # noqa: E402, F401
from entries_service import Entered, as_somebody, entry_server  # noqa: E402
from hub_server import Hub  # noqa: E402
from servers import Unavailable  # noqa: E402
from sinks import deliver as deliver  # noqa: E402
from sinks import deliver_all, make, runs  # noqa: E402

from condor_joblens.export.records import RowEncoder  # noqa: E402
from condor_joblens.model.servers import Scope  # noqa: E402
from condor_joblens.sinks import RecordKind  # noqa: E402
from condor_joblens.sinks.hub import HubSink  # noqa: E402

PATIENCE = 120_000
IS_WHOLE = bool(os.environ.get("HUB_WHOLE"))
"""Whether each page is to be seen in each theme and width, and with each hostile text: `make test-hub`."""

_EACH = [(scheme, wide) for scheme in ("light", "dark") for wide in (390, 1200)]
LOOKS = _EACH if IS_WHOLE else [("light", 390), ("dark", 1200)]
"""Themes and widths in pixels."""

ONE_LOOK = LOOKS if IS_WHOLE else LOOKS[1:]
"""For pages that differ little from others."""

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}{% x %}"
SERVER = "fs7.example.org"
PEOPLE = """
[Alice]
login = unix:daemon, remote:alice
jobs = alice@ap.example.org
[Bob]
login = unix:bin
jobs = bob@ap.example.org
[Olga]
role = operator
login = unix:sys
[Adam]
role = administrator
login = unix:games
"""
RULES = """
[[rule]]
name = "failures"
when = "wave"
[[rule]]
name = "disks"
when = "outside"
least = 1000
"""


def send(hub: Hub, sequences: Any, age: int = 0, owner: str = "", **columns: Any) -> None:
    """Samples of the jobs 7.0 and 7.1 of alice, 7.2 of bob, and 7.3 of another alice, of another schedd."""
    encoder, sink = RowEncoder("node1"), make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1"))
    now, records = int(time.time()) - age, []
    for sequence in sequences:
        rows = runs(4, sequence)
        for number, (who, schedd) in enumerate([("alice", "ap"), ("alice", "ap"), ("bob", "ap"), ("alice", "other")]):
            name = f"{schedd}.example.org#7.{number}#1700000000"
            rows["global_job_id"][number], rows["run"][number] = name, f"{name}#1"
            rows["owner"][number], rows["job_id"][number] = who, f"7.{number}"
        rows["executable"], rows["note"], rows["user_note"] = "fit.py", HOSTILE, HOSTILE
        rows["hang_suspected"] = rows["cpu_idle_seconds"] = 0
        rows["memory_limit_bytes"] = -1
        rows["servers"][:, 0]["name"], rows["servers"][:, 0]["scope"] = SERVER, Scope.SERVER
        rows["start_time"], rows["update_time"], rows["period_seconds"] = now - 600, now + sequence, 1
        for name, value in columns.items():
            rows[name] = value
        records += encoder.records(rows, RecordKind.SAMPLE)
    deliver_all(sink, records)


def leak(hub: Hub, rows: Any) -> None:
    """Samples of four hours of these runs, in which their memory has grown from one GiB to two."""
    encoder, sink = RowEncoder("node1"), make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1"))
    now, steps, gib, records = int(time.time()), 40, 1 << 30, []
    rows["start_time"], rows["period_seconds"] = now - 4 * 3600, 3600
    rows["memory_limit_bytes"], rows["memory_cgroup_kernel_bytes"] = 3 * gib, 0
    for step in range(steps + 1):
        rows["sequence"], rows["update_time"] = step + 1, now - 360 * (steps - step)
        rows["memory_cgroup_anon_bytes"] = gib + gib * step // steps
        records += encoder.records(rows, RecordKind.SAMPLE)
    deliver_all(sink, records)


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    folder = Path(tempfile.mkdtemp(prefix="joblens-pages-"))
    folder.chmod(0o755)
    try:
        with as_somebody():
            try:
                hub = Entered(folder / "hub", rules=RULES)
            except Unavailable as error:
                pytest.skip(f"the hub's libraries can't be had here: {error}")
            hub.people.write_text(PEOPLE)
            with hub, entry_server(hub, folder / "controller") as hub.entries:
                yield hub
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, to be evaluated in a page."""
    done = subprocess.run([Path(__file__).parents[1] / "axe"], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        pytest.skip(f"axe-core can't be had here: {(done.stderr.strip().splitlines() or ['it ended'])[-1]}")
    return Path(done.stdout.strip()).read_text()


class Visit:
    """A browser of one person."""

    def __init__(self, context: BrowserContext, hub: Hub) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.hub, self.trouble = hub, list[str]()
        page = self.page
        page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("console", lambda said: self.trouble.append(said.text) if "Security Policy" in said.text else None)
        page.on("request", lambda asked: None if self.is_ours(asked.url) else self.trouble.append(asked.url))

    def is_ours(self, url: str) -> bool:
        return url.startswith((self.hub.pages, "data:", "blob:"))

    def log_in(self, user: str) -> Page:
        self.page.goto(self.hub.login_address(user))
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(f"{self.hub.pages}/")
        return self.page

    def open(self, path: str) -> Page:
        """The page, once the hub has time for this person. One that it refuses for now asks again by itself."""
        end = time.monotonic() + PATIENCE / 1000
        while True:
            try:
                answer = self.page.goto(self.hub.pages + path)
            except Error as error:
                is_its_own = "ERR_ABORTED" in str(error) or "is interrupted by another navigation" in str(error)
                if not is_its_own or time.monotonic() > end:
                    raise
                continue
            if answer is None or answer.status != 429 or time.monotonic() > end:
                return self.page
            self.page.wait_for_timeout(500)


@pytest.fixture
def visit(browser: Browser, hub: Hub) -> Iterator[Any]:
    visits: list[tuple[BrowserContext, Visit]] = []

    def start(**options: Any) -> Visit:
        context = browser.new_context(viewport={"width": 1200, "height": 800}, **options)
        visits.append((context, Visit(context, hub)))
        return visits[-1][1]

    yield start
    for context, _ in visits:
        context.close()
    trouble = [line for _, one in visits for line in one.trouble]
    assert trouble == [], trouble


def preview(page: Page, **fields: str) -> None:
    """Asks by the form of the page of entries what an entry would do, as somebody who may."""
    page.goto(urllib.parse.urljoin(page.url, "/entries"))
    form = page.locator("form.entry")
    for name, text in {"reason": "slow reads", **fields}.items():
        form.locator(f"[name={name}]").fill(text)
    form.locator("[name=least]").select_option("io")
    form.get_by_role("button", name="Preview").click()
    page.wait_for_url("**/entries/preview")


def enter(page: Page, **fields: str) -> None:
    """Says it, too."""
    preview(page, **fields)
    page.get_by_role("button", name="Add it").click()
    page.wait_for_url("**/entries?done=*")


def job_path(number: int, schedd: str = "ap") -> str:
    return "/job/" + urllib.parse.quote(f"{schedd}.example.org#7.{number}#1700000000#1", safe="")
