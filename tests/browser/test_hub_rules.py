"""The page Rules, as its viewers see it: what is looked for, what fired with its evidence, and the light on Site."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hub_visits import ONE_LOOK, Hub, axe, hub, send, visit
from playwright.sync_api import expect

from condor_joblens.hub.rules.alarms import Alarm
from condor_joblens.hub.rules.firings import Firings

__all__ = ["axe", "hub", "visit"]  # fixtures

WAVE = Alarm(
    "wave", "SIGSEGV", 12, "12 jobs of one person failed in an hour: SIGSEGV (task)", "SIGSEGV in fit.so: one cluster.",
    "task", "alice", "ap.example.org", "SIGSEGV in fit.so: 12 of your jobs failed in an hour.",
    evidence={"cause": "SIGSEGV in fit.so", "count": 12, "usual": 0.25, "since": 1.7e9, "blamed": {"cluster": "ap#7"}},
)  # fmt: skip
DISK = Alarm("outside", "Bob/fs7", 1, "Bob: the disk of fs7 is full", "Bob: /srv/fs7", evidence={"free": 0.01})


def fire(hub: Hub, *alarms: Alarm, red: bool = True) -> None:
    Firings(hub.folder / "kept").see("failures", red, alarms, time.time())


@pytest.mark.parametrize("scheme, wide", ONE_LOOK)
def test_an_administrator_sees_rules_and_firings_with_their_evidence(
    hub: Hub, visit: Any, axe: str, scheme: str, wide: int
) -> None:
    send(hub, range(1, 4))
    fire(hub, WAVE, DISK)
    one = visit(color_scheme=scheme)
    page = one.log_in("games")
    page.set_viewport_size({"width": wide, "height": 800})
    one.open("/rules")
    expect(page.locator("#r1")).to_contain_text("failures")
    row = page.locator("#firings ~ .wide tr", has_text="SIGSEGV in fit.so: one cluster.").first
    expect(row).to_contain_text("goes on")
    row.locator("summary").click()
    expect(row.locator("dl")).to_contain_text("0.25")
    expect(page.locator("#firings ~ .wide")).to_contain_text("/srv/fs7")
    page.evaluate(axe)
    violations = page.evaluate("axe.run().then((said) => said.violations)")
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "only tables are wider than the page"
    one.open("/")
    expect(page.locator(".light.bad", has_text="Rules are red.")).to_have_count(1)


def test_what_fires_comes_to_the_page_while_it_is_looked_at(hub: Hub, visit: Any) -> None:
    page_of = {}
    for user in ("daemon", "bin", "sys"):
        one = visit()
        page_of[user] = one.log_in(user)
        one.open("/rules")
    fire(hub, Alarm(**{**vars(WAVE), "key": "new", "own": "SIGABRT: 9 of your jobs.", "sentence": "SIGABRT in x.so."}))
    fire(hub, Alarm("node", "node9", 7, "the node node9 fails jobs", "node9: 7 of 7.", evidence={"node": "node9"}))
    alice, olga, bob = (page_of[user].locator("#live") for user in ("daemon", "sys", "bin"))
    expect(alice).to_contain_text("SIGABRT: 9 of your jobs.")
    expect(olga).to_contain_text("node9: 7 of 7.")
    expect(olga).to_contain_text("12 jobs of one person failed")
    assert "SIGABRT" not in olga.inner_text() and "node9" not in alice.inner_text()
    expect(bob).to_contain_text("Nothing that concerns your jobs has fired")
    assert page_of["bin"].locator("#r1").count() == 0, "rules are shown to who sees others' jobs"
