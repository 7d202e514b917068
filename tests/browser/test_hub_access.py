"""The hub's pages for everybody: axe-core finds no barrier in either theme, and a keyboard reaches all of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hub_visits import (
    IS_WHOLE,
    LOOKS,
    ONE_LOOK,
    SERVER,
    Hub,
    HubSink,
    RowEncoder,
    axe,
    deliver,
    enter,
    hub,
    job_path,
    leak,
    make,
    runs,
    send,
    visit,
)  # fmt: skip
from playwright.sync_api import Page, expect

from condor_joblens.sinks import RecordKind

__all__ = ["axe", "hub", "visit"]  # fixtures

PATHS = ("/", "/jobs?state=all", "/jobs?state=all&node=node1&since=1", "/jobs?state=1", "/nodes", "/nodes?only=lost",
         "/node/node1", job_path(0), "/trends", "/trends?by=node&days=1", "/leaks", "/rules", "/servers",
         f"/servers/{SERVER}", "/missing", "/jobs?state=all&column=Cpu.Seconds&sort=-Cpu.Seconds",
         "/scatter?state=all&x=Cpu.Seconds&y=Memory.ResidentBytes", f"{job_path(0)}?metric=Cpu.Seconds")  # fmt: skip


def fill(hub: Hub) -> None:
    """Something of each kind: what runs, seems to hang, and failed together."""
    send(hub, range(1, 20))
    encoder, sink = RowEncoder("node1"), make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1"))
    rows = runs(12, 1)
    for number in range(12):
        name = f"ap.example.org#{40 + number % 4}.{number}#1700000000"
        rows["global_job_id"][number], rows["run"][number] = name, f"{name}#1"
        rows["owner"][number], rows["job_id"][number] = "alice", f"{40 + number % 4}.{number}"
    rows["death"], rows["first_failure"] = "SIGSEGV in fit.so", ""
    rows["start_time"], rows["update_time"] = int(time.time()) - 60, int(time.time())
    deliver(sink, encoder.records(rows, RecordKind.JOB))
    rows["owner"], rows["job_id"], rows["death"] = "alice", "50.0", ""
    rows["run"] = rows["global_job_id"] = "ap.example.org#50.0#1700000000"
    leak(hub, rows[:1])


@pytest.mark.parametrize("scheme, wide", LOOKS)
def test_axe_finds_no_barrier(hub: Hub, visit: Any, axe: str, scheme: str, wide: int) -> None:
    """In `make test` each page is seen in one of the looks, in `make test-hub` in all."""
    paths = PATHS if IS_WHOLE else PATHS[LOOKS.index((scheme, wide)) :: len(LOOKS)]
    fill(hub)
    one = visit(color_scheme=scheme)
    page = one.log_in("daemon")
    page.set_viewport_size({"width": wide, "height": 800})
    found = []
    one.open("/leaks")
    expect(page.locator("tbody tr")).to_have_count(1)
    for path in (*paths, "/login"):
        one.open(path)
        page.wait_for_load_state("load")
        found += barriers(page, path, axe)
    assert found == []


@pytest.mark.parametrize("scheme, wide", ONE_LOOK)
def test_axe_finds_no_barrier_on_the_page_of_entries(hub: Hub, visit: Any, axe: str, scheme: str, wide: int) -> None:
    """With one that holds, a preview, and what is wrong with one."""
    one = visit(color_scheme=scheme)
    page = one.log_in("games")
    page.set_viewport_size({"width": wide, "height": 800})
    enter(page, user="alice")
    found = barriers(page, "holds", axe)
    form = page.locator("form.entry")
    form.locator("[name=reason]").fill("again")
    form.locator("[name=user]").fill("alice")
    for least, expected in (("io", "It would be for"), ("", "say")):
        form.locator("[name=least]").select_option(least)
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("main")).to_contain_text(expected)
        found += barriers(page, expected, axe)
    assert found == []


def barriers(page: Page, path: str, axe: str) -> list[tuple[str, str, str]]:
    page.evaluate(axe)
    said = page.evaluate("axe.run().then((said) => said.violations)")
    return [(path, each["id"], node["html"][:200]) for each in said for node in each["nodes"]]


def test_all_of_a_page_is_reached_by_keyboard_and_the_focus_is_seen(hub: Hub, visit: Any) -> None:
    """Tab goes through every link, button and field, in the order of the page; a renewal takes no focus away."""
    fill(hub)
    one = visit()
    page = one.log_in("daemon")
    one.open("/jobs?state=all&node=node1")
    places = page.evaluate(
        "[...document.querySelectorAll('a[href], button, select, input:not([type=hidden]), [tabindex=\"0\"]')].length"
    )
    page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(places):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(() => { const one = document.activeElement, look = getComputedStyle(one);"
                " return [one.tagName, look.outlineStyle !== 'none' || look.boxShadow !== 'none']; })()"
            )
        )
    assert "BODY" not in [name for name, _ in reached] and all(is_seen for _, is_seen in reached), reached
    one.open("/jobs?state=all&sort=job")
    page.get_by_role("link", name="7.1").focus()
    send(hub, [30], cpu_recent_cores=77.0)
    expect(page.locator("tbody")).to_contain_text("77.00")
    assert page.evaluate("document.activeElement.textContent") == "7.1"
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Job 7.1")


def test_a_list_is_narrowed_and_widened_by_keyboard(hub: Hub, visit: Any) -> None:
    fill(hub)
    one = visit()
    page = one.log_in("daemon")
    one.open("/jobs?state=all&node=node1&cluster=ap.example.org%2340")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_label("Words").focus()
    page.keyboard.type("40.4")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=40.4**")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.locator(".chips li").count() == 2, "the exact parameters stay"
    page.get_by_role("link", name="without cluster").press("Enter")
    expect(page.locator(".chips li")).to_have_count(1)
    expect(page.locator("tbody tr")).to_have_count(1)
