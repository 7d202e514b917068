"""A rule makes an entry of the controller: for the owner whose jobs it is about, or for the node.

It is said as one of the hub's people, by whose role it ranks, and so many times an hour at most. What can't be noted in
the audit is not said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.entry_server import ADDED, ASKED, Away, Unknown, of_schedd, said, sentence
from condor_joblens.hub.rules.firings import Firing, Firings
from condor_joblens.hub.rules.settings import NODE, Rule
from condor_joblens.hub.web.access import Access
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.who_sees import Role

WAY = "entry"
"""As firings have it: it is told to the rule's name."""

HOUR = 3600.0
_MOST_REASON = 200
_PLAIN = re.compile(r"[A-Za-z0-9._@-]{1,200}")


class Entering:
    """By the relay server's socket; empty: there is none, and a rule that needs one is told so."""

    def __init__(self, path: str, access: Access) -> None:
        self._path, self._access = path, access

    def enter(self, rule: Rule, firings: Firings, people: Iterable[Person], now: float) -> None:
        """What the rule has found and not entered yet. Raises JobLensError with what was in the way."""
        assert rule.entry is not None
        left = rule.entry.an_hour - firings.told_since(WAY, rule.name, now - HOUR)
        untold = [one for one in firings.untold(WAY, rule.name, rule.name, now) if one.lasts(now)]
        for firing in untold:
            whom = _whom(firing)
            if not whom:
                continue
            if left <= 0:
                raise JobLensError(f"the rule {rule.name} has made {rule.entry.an_hour} entries in an hour: no more")
            self._add(rule, firing, whom, _author(rule, people), firings, now)
            left -= 1

    def _add(
        self, rule: Rule, firing: Firing, whom: dict[str, str], author: Person, firings: Firings, now: float
    ) -> None:
        entry = rule.entry
        assert entry is not None
        reason = printable(f"rule {rule.name}: {firing.title}", _MOST_REASON)
        given = {**whom, "seconds": str(round(HOUR * entry.hours)), "reason": _ascii(reason)[:_MOST_REASON]}
        given |= {name: level for name, level in (("least", entry.least), ("most", entry.most)) if level}
        self._access.note(author.name, ASKED, f"by the rule {rule.name}: {', '.join(whom.values())}")
        firings.tell(WAY, rule.name, [firing], now)  # first: never twice, and never more than is allowed
        try:
            added = said(self._path, "add", author, given)["Added"]
        except Unknown:
            raise
        except Away:
            firings.untell(WAY, rule.name, firing)
            raise
        self._access.note(author.name, ADDED, sentence(added))


def _author(rule: Rule, people: Iterable[Person]) -> Person:
    """Raises JobLensError: he is nobody's, or may say nothing for the whole site."""
    assert rule.entry is not None
    found = next((one for one in people if one.name == rule.entry.by), None)
    if found is None or found.role not in (Role.OPERATOR, Role.ADMINISTRATOR):
        raise JobLensError(f"the rule {rule.name}: {rule.entry.by} is no operator or administrator of the hub")
    return found


def _whom(firing: Firing) -> dict[str, str]:
    """Empty: it is about several people, or its names can be no part of an entry."""
    if firing.kind == NODE:
        node = str(firing.evidence.get("node", ""))
        return {"node": node} if _PLAIN.fullmatch(node) else {}
    if not (_PLAIN.fullmatch(firing.owner) and _PLAIN.fullmatch(firing.schedd)):
        return {}
    return {"user": firing.owner, "expression": of_schedd(firing.schedd)}


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()
