"""Owners whose jobs kill the policy child again and again: what that costs is not for others to wait for."""

from __future__ import annotations

from dataclasses import dataclass

ENOUGH = 3
"""Deaths of the child, with less than FORGET_SECONDS between two of them."""

FORGET_SECONDS = 60.0
"""Without a death for so long, an owner begins at none again."""

PAUSE_SECONDS = 20.0
"""Between two requests of an owner who has killed ENOUGH children."""


@dataclass
class _Deaths:
    count: int = 0
    last_at: float = float("-inf")  # time.monotonic()


class OwnerFailures:
    """Counts the children that each owner's jobs killed.

    A job that kills the child costs the decision about it, and the start of another child if none stands by. So an
    owner who has killed ENOUGH gets a decision only now and then, and only while another child stands by.
    """

    def __init__(self) -> None:
        self._deaths: dict[str, _Deaths] = {}

    def killed(self, owner: str, now: float) -> int:
        """The child died on a job of this owner; how often that has happened."""
        self._deaths = {name: deaths for name, deaths in self._deaths.items() if _is_recent(deaths, now)}
        deaths = self._deaths.setdefault(owner, _Deaths())
        deaths.count, deaths.last_at = deaths.count + 1, now
        return deaths.count

    def refuses(self, owner: str, now: float, has_spare: bool) -> str:
        """Why no job of this owner is decided about now; empty if one may be."""
        deaths = self._deaths.get(owner, _Deaths())
        if deaths.count < ENOUGH or not _is_recent(deaths, now):
            return ""
        if has_spare and now - deaths.last_at >= PAUSE_SECONDS:
            return ""
        return f"jobs of this user or slot have killed the policy child {deaths.count} times"

    def forgive(self) -> None:
        """Other policies are in force: the ones before may have been at fault."""
        self._deaths.clear()


def _is_recent(deaths: _Deaths, now: float) -> bool:
    return now - deaths.last_at < FORGET_SECONDS
