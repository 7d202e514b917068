"""Time lines in a browser: zoom, the window's width, and names that would do harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page
from timeline_samples import BEGUN, HOSTILE, material

from condor_joblens.profiles import timeline
from condor_joblens.profiles.last_events import Event
from condor_joblens.profiles.timeline import Material
from condor_joblens.profiles.timeline_picture import picture

TICKS = "Array.from(document.querySelectorAll('#ticks text'), t => t.textContent)"
LEAVES = """() => Array.from(document.querySelectorAll("g.b:not(.hidden)")).filter(g => {
    const text = g.querySelector("text"), box = g.querySelector("rect").getBBox();
    const right = box.x + box.width, wide = window.innerWidth;
    return right > wide - 9 || (text.textContent && text.getBBox().x + text.getBBox().width > right);
}).map(g => g.getAttribute("data-n"))"""


def opened(page: Page, tmp_path: Path, found: Material) -> Page:
    path = tmp_path / "timeline.svg"
    path.write_text(picture(timeline.made_of(found)))
    page.goto(path.as_uri())
    page.wait_for_function("document.getElementById('details').textContent")  # the script has done its work
    return page


def shown(page: Page) -> int:
    return page.locator("g.b.call:not(.hidden)").count()


def test_a_drag_or_a_click_shows_a_part_and_escape_all(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path, material())
    whole, every = page.evaluate(TICKS), shown(page)
    assert whole[:2] == ["07:03:02", "07:03:03"] or len(whole) > 3
    assert not page.locator("#reset").is_visible()
    page.mouse.move(400, 300)
    page.mouse.down()
    page.mouse.move(500, 310)
    page.mouse.up()
    part = page.evaluate(TICKS)
    assert part != whole and "." in part[0] and 0 < shown(page) < every
    page.keyboard.press("Escape")
    assert page.evaluate(TICKS) == whole and shown(page) == every

    page.locator('g.b[data-n^="xrdcp"]').click()
    assert page.locator("#reset").is_visible() and shown(page) < every
    assert page.locator("g.m[data-t]:not(.hidden)").count() < 25
    page.locator("#reset").click()
    assert page.evaluate(TICKS) == whole


def test_what_the_mouse_is_on_is_told(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path, material())
    page.locator('g.b[data-n^="main"]').hover()
    assert "9.3 s, returned" in (page.locator("#details").text_content() or "")
    page.locator("svg.c").nth(1).hover()
    assert (page.locator("#details").text_content() or "").startswith("Memory: ")


@pytest.mark.parametrize("wide", [500, 1200, 2500])
def test_it_fits_the_window(page: Page, tmp_path: Path, wide: int) -> None:
    opened(page, tmp_path, material())
    page.set_viewport_size({"width": wide, "height": 800})
    page.wait_for_function(f"Number(document.documentElement.getAttribute('width')) === {wide}")
    assert page.evaluate(LEAVES) == []
    assert page.evaluate(TICKS) and page.evaluate("document.documentElement.scrollWidth") <= wide


def test_hostile_names_are_text(page: Page, tmp_path: Path) -> None:
    """No dialog, no error, no request (the fixture looks), and nothing in the document but what we draw."""
    found = material()
    found.job = found.node = HOSTILE
    found.events += [
        Event(BEGUN + 1, 90, HOSTILE, what, HOSTILE, HOSTILE, HOSTILE) for what in ("exec", "open", "exit")
    ]
    opened(page, tmp_path, found)
    kinds = page.evaluate("[...new Set([...document.querySelectorAll('*')].map(e => e.localName))].sort()")
    assert kinds == ["g", "line", "path", "rect", "script", "style", "svg", "text", "title"]
    assert page.evaluate("document.querySelectorAll('script').length") == 1
