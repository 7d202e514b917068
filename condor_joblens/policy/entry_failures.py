"""Entries at whose expressions the policy child dies: when one is at fault itself, and is evaluated no more."""

from __future__ import annotations

from dataclasses import dataclass, field

from condor_joblens.policy.policy_answers import Expressions

MOST_ASIDE = 5
"""Entries that are set aside, after which none of any entry is evaluated."""

REMEMBERED_SECONDS = 3600.0
"""How long an entry's deaths are remembered at least; then for as long as it holds. So many hostile ones an hour."""


@dataclass
class _Deaths:
    last_at: float  # time.monotonic()
    persons: set[str] = field(default_factory=set)  # on whose jobs it was; no more than tell that it is its own fault

    @property
    def are_its_fault(self) -> bool:
        """One user's ads prove nothing: it can be what they give it to evaluate."""
        return len(self.persons) > 1


class EntryFailures:
    """Counts the children that died at each entry's expression."""

    def __init__(self) -> None:
        self._deaths: dict[str, _Deaths] = {}  # by the entry's name

    def killed(self, entry: str, person: str, now: float) -> list[str]:
        """A child died at its expression, on a job of this person (empty: nobody knows whose). Lines for the log."""
        deaths = self._deaths.setdefault(entry, _Deaths(now))
        deaths.last_at = now
        if deaths.are_its_fault:
            return []
        deaths.persons.add(person)
        if not deaths.are_its_fault:
            return []
        lines = [f"entry {entry} has ended the policy child on jobs of two users: it is for no job of this node"]
        return lines + (
            [f"{self._aside} entries have: none is by its expression for any job"] if self._are_many else []
        )

    def evaluated(self, expressions: Expressions, now: float) -> Expressions:
        """Those of the entries that hold whose expressions are evaluated."""
        held = {name for name, _ in expressions}
        self._deaths = {
            name: deaths
            for name, deaths in self._deaths.items()
            if name in held or now - deaths.last_at < REMEMBERED_SECONDS
        }
        if self._are_many:
            return ()
        return [each for each in expressions if each[0] not in self._deaths or not self._deaths[each[0]].are_its_fault]

    @property
    def _aside(self) -> int:
        return sum(deaths.are_its_fault for deaths in self._deaths.values())

    @property
    def _are_many(self) -> bool:
        return self._aside >= MOST_ASIDE
