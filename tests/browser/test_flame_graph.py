"""Flame graphs in a browser: zoom, search, and names that would do harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page
from profile_samples import FILL, HOSTILE, START, hostile, profile, random_profile

from condor_joblens.profiles.flame_graph import flame_graph
from condor_joblens.profiles.profile import Frame, Kind, Profile, Stack, under

TOO_WIDE = """() => Array.from(document.querySelectorAll("g.f:not(.hidden)")).filter(g => {
    const text = g.querySelector("text"), box = g.querySelector("rect").getBBox();
    return text.textContent && text.getBBox().x + text.getBBox().width > box.x + box.width;
}).map(g => g.querySelector("text").textContent)"""


def opened(page: Page, tmp_path: Path, found: Profile, other: Profile | None = None) -> Page:
    path = tmp_path / "flame.svg"
    path.write_text(flame_graph(found, other))
    page.goto(path.as_uri())
    page.wait_for_selector("#search")  # the script has done its work
    return page


def frame(page: Page, name: str) -> Locator:
    return page.locator(f'g.f[data-n="{name}"]')


def width(found: Locator) -> float:
    return float(found.locator("rect").get_attribute("width") or 0)


def test_a_click_shows_one_function_in_full_width(page: Page, tmp_path: Path) -> None:
    found = profile()
    found.add(Stack((START, Frame("beside")), 100, "python3", "python3"), 30)
    opened(page, tmp_path, found)
    all_of_it = width(frame(page, "all"))
    assert all_of_it > 1100 and width(frame(page, "Tree::Fill(int)")) < all_of_it / 3
    assert not page.locator("#reset").is_visible()

    frame(page, "Tree::Fill(int)").click()
    assert width(frame(page, "Tree::Fill(int)")) == pytest.approx(all_of_it)
    assert width(frame(page, "vfs_read")) == pytest.approx(all_of_it / 3, abs=1), "what it called keeps its share of it"
    assert frame(page, "_start").is_visible() and "above" in (frame(page, "_start").get_attribute("class") or "")
    assert not frame(page, "beside").is_visible()

    page.locator("#reset").click()
    assert frame(page, "beside").is_visible() and not page.locator("#reset").is_visible()
    frame(page, "beside").click()
    assert not frame(page, "vfs_read").is_visible()
    page.keyboard.press("Escape")
    assert frame(page, "vfs_read").is_visible()


def test_a_search_marks_and_counts_each_sample_once(page: Page, tmp_path: Path) -> None:
    found = profile()
    found.add(Stack((START, FILL, FILL)), 10)
    opened(page, tmp_path, found)
    page.locator("#search").fill("TREE::fill")
    assert page.locator("g.hit").count() == 3
    assert page.locator("#found").text_content() == "3 places, 95.00 %"
    page.locator("#search").fill("no such function")
    assert page.locator("#found").text_content() == "0 places, 0.00 %"
    page.locator("#search").fill("")
    assert page.locator("#found").text_content() == "" and page.locator("g.hit").count() == 0
    page.keyboard.press("Control+f")
    page.keyboard.type("/opt/lib/libTree")
    assert page.locator("g.hit").count() == 3, "files are searched too"


def test_what_the_mouse_is_on_is_told(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path, profile())
    frame(page, "fit_tracks").hover()
    said = page.locator("#details").text_content() or ""
    assert "fit_tracks" in said and "/home/alice/reco/fit.py" in said and "10 samples, 100.00 %" in said


@pytest.mark.parametrize("wide", [500, 1200, 2500])
def test_it_fits_the_window_and_no_text_leaves_its_box(page: Page, tmp_path: Path, wide: int) -> None:
    opened(page, tmp_path, random_profile(3))
    page.set_viewport_size({"width": wide, "height": 800})
    page.wait_for_function(f"Number(document.documentElement.getAttribute('width')) === {wide}")
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate("document.querySelectorAll('g.f text:not(:empty)').length") > 3


HEADING = """() => {
    const part = (name) => { const b = document.querySelector(name).getBoundingClientRect(); return b; };
    const box = part("#search"), wide = window.innerWidth;
    const apart = (a) => a.right <= box.left || a.left >= box.right || a.bottom <= box.top || a.top >= box.bottom;
    const texts = Array.from(document.querySelectorAll("svg > text")).filter(t => t.textContent);
    return texts.filter(t => !apart(t.getBoundingClientRect()) || t.getBoundingClientRect().right > wide)
        .map(t => t.textContent);
}"""


@pytest.mark.parametrize("wide", [500, 800, 1000, 1200, 2500])
@pytest.mark.parametrize("is_compared", [False, True])
def test_the_heading_leaves_the_search_box_free(page: Page, tmp_path: Path, wide: int, is_compared: bool) -> None:
    """Also with the longest numbers; what is cut is there when the mouse is on it."""
    found = random_profile(3)
    found.lost = found.broken = found.not_ours = 123_456_789
    found.node = "n" * 40
    for number in range(3000):
        found.add(Stack((START, Frame(f"narrow{number}"))), 1)
    page.set_viewport_size({"width": wide, "height": 800})
    opened(page, tmp_path, found, found if is_compared else None)
    page.locator("#search").fill("Tree")
    assert page.evaluate(HEADING) == []
    whole = page.locator("text.said.line title").first.text_content() or ""
    assert "too narrow to draw" in whole and "123,456,789 not looked at" in whole


def test_hostile_names_are_text(page: Page, tmp_path: Path) -> None:
    """No dialog, no error, no request (the fixture looks), and nothing in the document but what we draw."""
    opened(page, tmp_path, under(hostile(), process=True, thread=True), hostile())
    kinds = page.evaluate("[...new Set([...document.querySelectorAll('*')].map(e => e.localName))].sort()")
    assert kinds == ["foreignObject", "g", "input", "rect", "script", "style", "svg", "text", "title"]
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    attributes = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
    assert page.evaluate(f"{attributes}.filter(a => /^on|href/.test(a.name)).length") == 0
    for name in ("<script>alert(1)</script>", "a'b\"c&d]]>e--><!--"):
        assert name in page.evaluate("[...document.querySelectorAll('g.f')].map(g => g.dataset.n)")
    for each in HOSTILE:
        page.locator("#search").fill(each[:300])
    for number in range(0, page.locator("g.f").count(), 7):
        each = page.locator("g.f").nth(number)
        if each.is_visible():
            each.dispatch_event("click")
            each.dispatch_event("mouseover")
            page.keyboard.press("Escape")
    assert page.evaluate(TOO_WIDE) == []


def test_a_long_template_is_cut_and_can_be_read_and_searched(page: Page, tmp_path: Path) -> None:
    found = Profile(0, 1)
    found.add(Stack((START, Frame(f"tuple<{'int, ' * 2000}int>", Kind.NATIVE, "/x/lib.so"))), 1)
    opened(page, tmp_path, found)
    page.locator("#search").fill("tuple<int, int")
    assert page.locator("#found").text_content() == "1 place, 100.00 %"
    assert page.evaluate(TOO_WIDE) == []
    assert len(page.locator("g.hit title").text_content() or "") < 500


def test_a_deep_stack(page: Page, tmp_path: Path) -> None:
    found = Profile(0, 1)
    found.add(Stack(tuple(Frame(f"f{depth}") for depth in range(400))), 1)
    opened(page, tmp_path, found)
    frame(page, "f399").click()
    assert width(frame(page, "f399")) == width(frame(page, "all"))
