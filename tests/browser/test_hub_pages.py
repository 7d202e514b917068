"""The hub's pages in a real browser, with a real store: two people, each sees his own; hostile text is text."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any

import pytest
from hub_visits import (
    HOSTILE,
    LOOKS,
    PATIENCE,
    PEOPLE,
    SERVER,
    Hub,
    HubSink,
    RowEncoder,
    deliver,
    enter,
    hub,
    job_path,
    make,
    runs,
    send,
    visit,
)
from playwright.sync_api import Route, expect

from condor_joblens.hub.web.streams import PERIOD
from condor_joblens.sinks import Record, RecordKind

__all__ = ["hub", "visit"]  # fixtures


def end(hub: Hub, deaths: Sequence[str], codes: Sequence[int]) -> None:
    """Runs of alice and bob, in turn, that end: by a death, or with an exit code, of which their events tell."""
    encoder, sink = RowEncoder("node1"), make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1"))
    rows, now = runs(len(deaths), 1), int(time.time())
    events = []
    for number, (death, code) in enumerate(zip(deaths, codes)):
        name = f"ap.example.org#8.{number}#1700000000"
        rows["global_job_id"][number], rows["run"][number] = name, f"{name}#1"
        rows["owner"][number], rows["job_id"][number] = ("alice", "bob")[number % 2], f"8.{number}"
        rows["death"][number] = death
        if code:
            said = {"Type": "event", "Id": f"node1/e/{number}", "Schema": 1, "Node": "node1", "Time": now}
            said |= {
                "Kind": "RunEnd",
                "Run": f"{name}#1",
                "RunNumber": int(rows["run_number"][number]),
                "ExitCode": code,
            }
            line = json.dumps(said).encode()
            events.append(Record(RecordKind.EVENT, str(said["Id"]), name, float(now), line, frozenset()))
    rows["start_time"], rows["update_time"], rows["first_failure"] = now - 60, now, ""
    deliver(sink, [*events, *encoder.records(rows, RecordKind.JOB)])


def test_each_sees_his_own_jobs_and_no_other(hub: Hub, visit: Any) -> None:
    send(hub, [1])
    for user, mine, others in (("daemon", ("7.0", "7.1"), (2, 3)), ("bin", ("7.2",), (0, 1, 3))):
        one = visit()
        page = one.log_in(user)
        assert page.locator("#my-runs").count() == 1
        assert "Fewer than five people" in page.content()
        one.open("/jobs?state=all&sort=job")
        assert page.locator("tbody tr td:nth-child(2) a").all_inner_texts() == list(mine)
        for number in others:
            answer = page.request.get(hub.pages + job_path(number, "other" if number == 3 else "ap") + ".json")
            assert answer.status == 404
        found = page.request.get(f"{hub.pages}/jobs.json?state=all").json()["jobs"]
        assert sorted(row["JobId"] for row in found) == list(mine)


def test_an_operator_sees_all_jobs_and_no_words_of_theirs(hub: Hub, visit: Any) -> None:
    send(hub, [1])
    one = visit()
    page = one.log_in("sys")
    one.open("/jobs?state=all&sort=job")
    assert page.locator("tbody tr").count() == 4
    assert "alice" in page.content() and "fit.py" not in page.content()
    one.open(job_path(2))
    assert "bob" in page.content() and "alert" not in page.locator("main").inner_html()


def test_who_has_not_logged_in_sees_nothing(hub: Hub, visit: Any) -> None:
    one = visit()
    for path in (
        "/",
        "/jobs",
        job_path(0),
        "/stream/",
        "/stream/jobs",
        "/stream" + job_path(0),
        "/nodes",
        "/node/node1",
        "/trends",
        "/trends.csv",
        "/leaks",
        "/servers",
        "/entries",
        "/leaks.csv",
        "/scatter",
        "/scatter.csv",
        "/stream/scatter",
    ):
        answer = one.page.request.get(hub.pages + path)
        assert answer.status == 401 and "node1" not in answer.text()
    assert one.page.request.get(f"{hub.pages}/jobs.json").status == 401
    assert one.page.request.get(f"{hub.pages}/favicon.ico").headers["content-type"].startswith("image/svg+xml")
    forged = {
        "X-Remote-User": "alice",
        "X_Remote_User": "alice",
        "X-Forwarded-For": "peer:1",
        "Forwarded": "for=peer:1",
    }
    assert one.page.request.get(f"{hub.pages}/jobs.json", headers=forged).status == 401
    assert one.page.request.get(f"{hub.pages}/login?code=guess").status == 200
    assert one.page.request.post(f"{hub.pages}/login", form={"code": "guess"}).status == 403, "no token against forgery"


def answer_late(route: Route) -> None:
    """The page's stream ends, as its session has, before the browser is told where to go."""
    answer = route.fetch(max_redirects=0)
    time.sleep(3 * PERIOD)
    route.fulfill(response=answer)


def test_a_code_is_good_once_and_a_session_ends(hub: Hub, visit: Any) -> None:
    address = hub.login_address("bin")
    first, second = visit(), visit()
    first.page.goto(address)
    first.page.get_by_role("button", name="Log in").click()
    first.page.wait_for_url(f"{hub.pages}/")
    second.page.goto(address)
    second.page.get_by_role("button", name="Log in").click()
    expect(second.page.locator("main")).to_contain_text("this code is over")
    assert first.page.request.get(f"{hub.pages}/jobs.json").status == 200
    first.page.route("**/logout", answer_late)
    first.page.get_by_role("button", name="Log out").click()
    first.page.wait_for_url(f"{hub.pages}/login")
    assert first.page.request.get(f"{hub.pages}/jobs.json").status == 401


def test_the_proxy_is_believed_and_nobody_else(hub: Hub) -> None:
    """By the proxy's socket, as its user (daemon) and as another."""
    socket_file = str(hub.folder / "sockets/proxy.sock")
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-Remote-User: alice"]
    for user, status in (("daemon", "200"), ("bin", "401")):
        done = subprocess.run(
            ["setpriv", f"--reuid={user}", "--clear-groups", *command, "--unix-socket", socket_file, "http://localhost/site.json"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stdout == status, done


def test_hostile_text_is_text(hub: Hub, visit: Any) -> None:
    """No dialog, no error, no request elsewhere (the fixture looks), and no element of theirs."""
    send(hub, [1, 2], executable=HOSTILE[:60], level="<b>")
    one = visit()
    page = one.log_in("daemon")
    for path in ("/", "/jobs?state=all", "/jobs?q=" + urllib.parse.quote(HOSTILE), job_path(0)):
        one.open(path)
        assert page.locator("main img, main script, main b").count() == 0
    page.wait_for_selector("canvas")
    assert "<script>alert(1)</script>" in page.locator("main").inner_text()


def test_a_page_renews_itself(hub: Hub, visit: Any) -> None:
    send(hub, [50], process_live=41)
    one = visit()
    page = one.log_in("daemon")
    one.open(job_path(1))
    expect(page.locator("#live")).to_contain_text("41")
    send(hub, [60], process_live=4711)
    expect(page.locator("#live")).to_contain_text("4711")


def test_a_session_that_ends_ends_its_streams(hub: Hub, visit: Any) -> None:
    """Both tabs have one session: what is still open after the log-out shows the login, and no job."""
    send(hub, [61])
    one = visit()
    one.log_in("daemon")
    one.open("/jobs?state=all")
    other = one.page.context.new_page()
    other.goto(hub.pages)
    other.get_by_role("button", name="Log out").click()
    expect(one.page.locator("h1")).to_have_text("Log in")
    assert "7.0" not in one.page.locator("main").inner_text()


def say_people(hub: Hub, text: str) -> None:
    """In one step: in a file that is half written, nobody is somebody, and who looks then is logged out."""
    new = hub.people.with_name("people.new")
    new.write_text(text)
    new.replace(hub.people)


def test_who_may_see_less_sees_less_on_an_open_page(hub: Hub, visit: Any) -> None:
    """The file of people changes: nobody reloads anything."""
    send(hub, [62])
    one = visit()
    page = one.log_in("sys")
    one.open("/jobs?state=all&sort=job")
    expect(page.locator("tbody tr")).to_have_count(4)
    try:
        say_people(hub, PEOPLE.replace("role = operator", "jobs = bob@ap.example.org"))
        expect(page.locator("tbody tr")).to_have_count(1)
        assert "7.2" in page.locator("tbody").inner_text()
        say_people(hub, PEOPLE.replace("unix:sys", "unix:nobody"))
        expect(page.locator("h1")).to_have_text("Log in")
    finally:
        say_people(hub, PEOPLE)


def test_a_hole_in_sequence_is_drawn_as_a_gap(hub: Hub, visit: Any) -> None:
    """Both the numbers and the ink: in the middle of the hole nothing is drawn but the grey band."""
    for sequences in (range(100, 110), range(125, 135)):
        send(hub, sequences, age=100, cpu_recent_cores=1.0, memory_resident_bytes=1 << 30)
    one = visit()
    page = one.log_in("bin")
    found = page.request.get(hub.pages + job_path(2) + ".json").json()["series"]
    gap = next(gap for gap in found["gaps"] if gap["missing"] == 15)
    assert (found["sequence"][gap["after"]], found["sequence"][gap["after"] + 1]) == (109, 125)
    one.open(job_path(2))
    expect(page.locator("#gaps")).to_contain_text("never came")
    blue = """() => {
        const canvas = document.querySelector("canvas"), ink = canvas.getContext("2d");
        const { width, height } = canvas, data = ink.getImageData(0, 0, width, height).data;
        let columns = 0;
        for (let x = 0; x < width; x++)
            for (let y = 0; y < height; y++) {
                const at = 4 * (y * width + x);
                if (data[at + 2] > 150 && data[at] < 90 && data[at + 3] > 200) { columns++; break; }
            }
        return [columns, width];
    }"""
    page.wait_for_function(f"() => ({blue})()[0] > 0")
    drawn, width = page.evaluate(blue)
    assert 0 < drawn < 0.9 * width


@pytest.mark.parametrize("scheme, wide", LOOKS)
def test_pages_fit_in_both_themes(hub: Hub, visit: Any, scheme: str, wide: int) -> None:
    send(hub, [1])
    one = visit(color_scheme=scheme)
    page = one.log_in("daemon")
    page.set_viewport_size({"width": wide, "height": 800})
    for path in ("/", "/jobs?state=all", job_path(0), "/nodes", "/node/node1", "/servers", f"/servers/{SERVER}"):
        one.open(path)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
    staff = visit(color_scheme=scheme).log_in("games")
    staff.set_viewport_size({"width": wide, "height": 800})
    enter(staff, executable="x" * 100, reason="y" * 200)
    assert staff.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "/entries"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 21, 21)"}[scheme]


def test_a_store_that_is_gone_is_said_and_comes_back(hub: Hub, visit: Any) -> None:
    send(hub, [1])
    one = visit()
    page = one.log_in("daemon")
    assert hub.kill_one("store")
    end, status = time.monotonic() + PATIENCE / 1000, 0
    while status != 200:
        assert time.monotonic() < end
        answer = page.request.get(f"{hub.pages}/jobs.json?state=all")
        status = answer.status
        assert status in (200, 503), answer.text()
    assert len(answer.json()["jobs"]) == 2


def test_what_failed_is_told_by_cause_to_those_who_may_know(hub: Hub, visit: Any) -> None:
    """alice's own jobs alone; to an operator all, without words; an exit code is known from the run's events."""
    end(hub, ["SIGSEGV in secret.so", "SIGSEGV in secret.so"] * 6 + ["", ""], [0] * 12 + [3, 0])
    seen = {}
    for user in ("daemon", "sys"):
        one = visit()
        page = one.log_in(user)
        expect(page.locator("#what-fails")).to_be_visible(timeout=PATIENCE)
        found = page.request.get(f"{hub.pages}/site.json").json()["failures"]
        seen[user] = {wave["cause"]: (wave["count"], wave["verdict"]) for wave in found}
        assert ("secret.so" in page.content()) == (user == "daemon")
        one.open("/jobs?state=failed&sort=job")
        ids = page.locator("tbody tr td:nth-child(2) a").all_inner_texts()
        assert ids[-1] == "8.9" if user == "sys" else set(ids) == {f"8.{n}" for n in range(0, 14, 2)}
    assert seen["daemon"] == {"SIGSEGV in secret.so": (6, "unclear"), "exit code 3": (1, "")}
    assert seen["sys"] == {"SIGSEGV": (12, "unclear"), "exit code 3": (1, "")}
    beside = page.request.get(f"{hub.pages}/job/{urllib.parse.quote('ap.example.org#8.2#1700000000#1', safe='')}.json")
    spreads = {one["name"]: one for one in beside.json()["siblings"]}
    assert spreads["Time"]["count"] == 14 and spreads["Time"]["own"] == 60, "all of the cluster, as an operator may see"
    one.open("/job/" + urllib.parse.quote("ap.example.org#8.2#1700000000#1", safe=""))
    expect(page.locator("#gaps")).to_contain_text("No samples of this job")
    assert page.locator("canvas").count() == 0
    page = visit().log_in("daemon")
    page.goto(f"{hub.pages}/jobs?state=failed&q=8.12")
    expect(page.locator("tbody tr")).to_contain_text("exit code 3")


def over(hub: Hub, node: str, count: int, death: str, owners: Sequence[str]) -> None:
    """Runs of the same three clusters that are over, of the owners in turn."""
    encoder, sink = RowEncoder(node), make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / node))
    rows, now = runs(count, 1), int(time.time())
    for number in range(count):
        job = f"{20 + number % 3}.{number if death else number + 100}"
        name = f"ap.example.org#{job}#1700000000"
        rows["global_job_id"][number], rows["run"][number] = name, f"{name}#1"
        rows["owner"][number], rows["job_id"][number] = owners[number % len(owners)], job
    rows["death"], rows["first_failure"], rows["start_time"], rows["update_time"] = death, "", now - 9, now
    deliver(sink, encoder.records(rows, RecordKind.JOB))


def test_a_node_on_which_all_fails_is_named_with_what_failed(hub: Hub, visit: Any) -> None:
    """Jobs of three clusters died there, and did well elsewhere: an operator sees why in a word,
    alice sees her own alone, both find them."""
    over(hub, "node1", 60, "", ("alice",))
    over(hub, "node2", 9, "SIGBUS in x.so", ("alice", "carol"))
    for user, failed in (("sys", 9), ("daemon", 5)):
        one = visit()
        page = one.log_in(user)
        one.open("/nodes")
        row = page.locator("tbody tr", has_text="node2")
        expect(row).to_contain_text("failing")
        expect(row).to_contain_text(f"{failed} of {failed} jobs of 3 clusters failed")
        row.get_by_role("link", name="node2").click()
        expect(page.locator("h1")).to_have_text("Node node2")
        page.wait_for_load_state()  # what follows the title may not be there yet
        expect(page.locator("svg.bars rect.failing")).to_have_count(24)
        assert ("x.so" in page.content(), "carol" in page.content()) == (user == "daemon", False)
        found = page.request.get(f"{hub.pages}/node/node2.json").json()
        assert (sum(hour["failed"] for hour in found["hours"]), found["tells_of_itself"]) == (failed, user == "sys")
        page.get_by_role("link", name=f"{failed} of them failed").click()
        expect(page.locator("tbody tr")).to_have_count(failed)
    stranger = visit()
    page = stranger.log_in("bin")
    assert page.request.get(f"{hub.pages}/node/node2.json").status == 404, "none of his jobs was there"
    assert "node2" not in stranger.open("/nodes").content()
