"""Rules that make entries of the controller, at a real server of entries: whose, for whom, and how many an hour."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_entry_server import Place, place, runs

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.rules.alarms import Alarm
from condor_joblens.hub.rules.entering import Entering
from condor_joblens.hub.rules.firings import Firings
from condor_joblens.hub.rules.settings import Rule, RuleEntry, read
from condor_joblens.hub.web.access import Access
from condor_joblens.hub.web.people import read_people
from condor_joblens.model.levels import Level

__all__ = ["place"]  # a fixture

PEOPLE = read_people("[Olga]\nrole = operator\nlogin = unix:x\n[Alice]\nlogin = unix:y\njobs = alice@ap1\n")
RULE = Rule("waves", "wave", entry=RuleEntry("Olga", "io", hours=2.0, an_hour=2))
NODES = Rule("nodes", "node", entry=RuleEntry("Olga", "io"))
NOW = 1_800_000_000.0


def wave(owner: str, schedd: str = "ap1", count: int = 5) -> Alarm:
    return Alarm("wave", f"{owner}@{schedd}", count, f"{count} jobs failed", "", owner=owner, schedd=schedd)


def test_an_entry_is_for_the_owner_or_node_once_a_cause_and_bounded_by_the_hour(place: Place, tmp_path: Path) -> None:
    firings, access = Firings(tmp_path), Access(tmp_path)
    entering = Entering(place.socket, access)
    place.asker = "pages"

    async def enters(rule: Rule, now: float) -> None:
        await asyncio.to_thread(entering.enter, rule, firings, PEOPLE, now)

    async def course() -> None:
        hostile = wave('x"=="', count=9)
        firings.see("waves", False, [hostile, wave("", count=8), wave("alice")], NOW)
        await enters(RULE, NOW)
        (entry,) = place.store.holding()
        assert (entry.author, entry.role.value, entry.least, entry.user) == ("hub:Olga", "operator", Level.IO, "alice")
        assert entry.expression == 'substr(GlobalJobId, 0, 4) == "ap1#"' and entry.ends - entry.begins == 7200 * 1000
        assert entry.reason == "rule waves: 5 jobs failed"
        await enters(RULE, NOW)
        assert len(place.store.holding()) == 1, "of one cause there is one"
        firings.see("waves", False, [wave("bob"), wave("carol")], NOW + 60)
        with pytest.raises(JobLensError, match="2 entries in an hour"):
            await enters(RULE, NOW + 60)
        assert [each.user for each in place.store.holding()] == ["alice", "bob"]
        firings.see("nodes", False, [Alarm("node", "wn1", 5, "wn1 fails jobs", "", evidence={"node": "wn1"})], NOW)
        await enters(NODES, NOW)
        assert place.store.holding()[-1].node == "wn1"
        assert [row.what for row in access.audit()] == ["entry asked for", "entry added"] * 3

    runs(place, course)


def test_whoever_may_not_say_it_for_the_site_or_has_no_server_makes_none(place: Place, tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    firings.see("waves", False, [wave("bob")], NOW)
    for path, by, why in (
        (place.socket, "Alice", "Alice is no operator or administrator"),
        (place.socket, "Eve", "Eve is no operator or administrator"),
        ("", "Olga", "knows no relay server"),
        (str(tmp_path / "gone"), "Olga", "joblens-hub relay"),
    ):
        rule = Rule("waves", "wave", entry=RuleEntry(by, "io"))
        for _ in range(2):  # it is tried again at the next look
            with pytest.raises(JobLensError, match=why):
                Entering(path, Access(tmp_path)).enter(rule, firings, PEOPLE, NOW)


@pytest.mark.parametrize(
    ("when", "entry", "why"),
    [
        ("wave", '{by = "Olga"}', "`least` or `most`"),
        ("wave", '{by = "Olga", least = "all"}', "`least` or `most`"),
        ("wave", '{least = "io"}', "has `by`"),
        ("lost", '{by = "Olga", least = "io"}', "owners of waves"),
        ("wave", '{by = "Olga", least = "io", hours = 25}', "0.01 to 24 hours"),
        ("wave", '{by = "Olga", least = "io", an_hour = 0}', "an_hour is 1 to 20"),
        ("wave", '{by = "Olga", least = "io", trace = "x"}', "there is no trace"),
        ("wave", "1", "NAME = VALUE"),
    ],
)
def test_what_is_wrong_with_an_entry_is_said(when: str, entry: str, why: str) -> None:
    with pytest.raises(JobLensError, match=why):
        read(f'[[rule]]\nname = "x"\nwhen = "{when}"\nentry = {entry}\n')
    assert read('[[rule]]\nname = "x"\nwhen = "wave"\nentry = {by = "Olga", most = "basic"}\n').rules[0].entry == (
        RuleEntry("Olga", most="basic")
    )
