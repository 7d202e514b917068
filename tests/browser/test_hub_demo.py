"""`joblens-hub demo`, as a person starts it: three people log in by the addresses that it prints."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/service"))

from servers import Unavailable  # noqa: E402
from sinks import deliver, make, runs  # noqa: E402

from condor_joblens.export.records import RowEncoder  # noqa: E402
from condor_joblens.sinks import RecordKind  # noqa: E402
from condor_joblens.sinks.hub import HubSink  # noqa: E402

PATIENCE = 120_000


@pytest.fixture(scope="module")
def demo() -> Iterator[Path]:
    """The folder of a demo that is ready; its log is beside it."""
    from hub_server import libraries

    try:
        libraries()
    except Unavailable as error:
        pytest.skip(f"the hub's libraries can't be had here: {error}")
    folder = Path(tempfile.mkdtemp(prefix="joblens-demo-"))
    folder.chmod(0o755)
    try:
        command = [ROOT / "tests/pool/demo_hub", folder]
        done = subprocess.run(command, env={**os.environ, "POOL": "main"}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        yield folder / "demo"
        pid = int((folder / "pid").read_text())
        os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + PATIENCE / 1000
        while _lives(pid):  # and with it all that it started
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_three_people_log_in_and_see_what_they_may(demo: Path, browser: Browser) -> None:
    said = (demo.parent / "log").read_text()
    addresses = dict(re.findall(r"^  (\w+) .* (http://\S+/login\?code=\S+)$", said, re.M))
    assert list(addresses) == ["shifter", "alice", "bob"]
    node = "pool-main"
    token = demo.parent / "token"
    token.write_bytes((demo / "node.token").read_bytes())
    token.chmod(0o600)
    sink = make(HubSink, URL=f"http://{(demo / 'records').read_text().strip()}", TOKEN_FILE=str(token))
    rows = runs(2, 1)
    for number, owner in enumerate(("alice", "bob")):
        name = f"{node}#9.{number}#1700000000"
        rows["global_job_id"][number], rows["run"][number] = name, f"{name}#1"
        rows["owner"][number], rows["job_id"][number] = owner, f"9.{number}"
    rows["update_time"] = np.int64(time.time())
    deliver(sink, RowEncoder(node).records(rows, RecordKind.SAMPLE))
    for who, jobs in (("shifter", ["9.0", "9.1"]), ("alice", ["9.0"]), ("bob", ["9.1"])):
        for _ in range(2):  # as often as he likes, as long as the demo runs
            context = browser.new_context()
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(addresses[who])
            page.get_by_role("button", name="Log in").click()
            expect(page.locator("header")).to_contain_text(who)
            page.goto(f"{addresses[who].partition('/login')[0]}/jobs?state=all&sort=job")
            assert page.locator("tbody tr td:nth-child(2) a").all_inner_texts() == jobs
            context.close()


def test_the_shifter_may_say_entries(demo: Path, browser: Browser) -> None:
    """For that it runs as a user whose name is nobody else's, with a relay server beside it."""
    login = re.search(r"^  shifter .* (http://\S+/login\?code=\S+)$", (demo.parent / "log").read_text(), re.M)
    assert login
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(login[1])
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="Entries").click()
    expect(page.locator("main")).to_contain_text("No entry holds")
    expect(page.get_by_role("button", name="Preview")).to_be_visible()
    page.close()
