"""The hub's pages of profiles, hang reports and traces in a real browser: pictures move, and nothing of a job runs."""

from __future__ import annotations

from typing import Any

import pytest
from hub_visits import ONE_LOOK, PATIENCE, Hub, Node, axe, deliver, hub, job_path, send, visit
from playwright.sync_api import expect
from profile_samples import HOSTILE, hostile, profile

from condor_joblens.profiles import pprof

__all__ = ["axe", "hub", "visit"]  # fixtures

RUN = "ap.example.org#7.0#1700000000#1"


@pytest.fixture(scope="module")
def filled(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """With a picture, one of hostile names, and a text of them."""
    send(hub, [1])
    node = Node(hub, tmp_path_factory.mktemp("node"))
    contents = {
        "profile": pprof.encode(profile()),
        "off_cpu": pprof.encode(hostile()),
        "traceback": "\n".join(HOSTILE).encode("utf-8", "replace"),
    }
    deliver(node.sink, [node.event(RUN, kind, content) for kind, content in contents.items()])
    return hub


def opened(one: Any, name: str) -> Any:
    """The page of an artifact, by the link on the job's page."""
    page = one.log_in("daemon")
    one.open(job_path(0))
    page.get_by_role("link", name=name).click()
    expect(page.locator("h1")).to_contain_text(name)
    return page


@pytest.mark.parametrize("scheme, wide", ONE_LOOK)
def test_axe_finds_no_barrier_on_pages_of_artifacts(
    filled: Hub,
    visit: Any,
    axe: str,
    scheme: str,
    wide: int,
) -> None:
    found = []
    one = visit(color_scheme=scheme)
    page = opened(one, "where it was on the CPU")
    page.set_viewport_size({"width": wide, "height": 800})
    for name in ("where it was on the CPU", "Traceback"):
        one.open(job_path(0))
        page.get_by_role("link", name=name).click()
        expect(page.locator("h1")).to_contain_text(name)
        page.wait_for_load_state("load")
        page.evaluate(axe)
        for each in page.evaluate("axe.run().then((said) => said.violations)"):
            found += [(name, each["id"], node["html"][:200]) for node in each["nodes"]]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself does not scroll"
    assert found == []


def test_a_flame_graph_is_seen_and_moves_by_itself(filled: Hub, visit: Any) -> None:
    page = opened(visit(), "where it was on the CPU")
    page.wait_for_function("document.querySelector('img').naturalWidth == 1200", timeout=PATIENCE)
    assert "Fill" in str(page.locator("img").get_attribute("alt"))
    page.get_by_role("link", name="The picture by itself").click()
    page.wait_for_url("**.svg")
    frames = page.locator("g.f")
    expect(frames.first).to_be_attached(timeout=PATIENCE)
    frames.filter(has_text="Tree::Fill").first.click()
    expect(page.locator("#reset")).to_be_visible(timeout=PATIENCE)
    assert page.evaluate("self.origin") == "null", "it is apart from all pages"


def test_nothing_of_hostile_artifacts_runs(filled: Hub, visit: Any) -> None:
    one = visit()
    page = opened(one, "where it waited off the CPU")
    assert page.locator("main script, main svg, main iframe, main b, main [onerror]").count() == 0
    page.get_by_role("link", name="The picture by itself").click()
    page.wait_for_url("**.svg")
    expect(page.locator("g.f").first).to_be_attached(timeout=PATIENCE)
    assert page.locator("script").count() == 1
    one.open(job_path(0))
    page.get_by_role("link", name="Traceback").click()
    expect(page.locator("pre")).to_contain_text("<script>alert(1)</script>")
    assert page.locator("main script, main iframe, main b, main [onerror]").count() == 0
