"""Firings of rules, as far as their viewer may see them.

Who sees others' jobs sees of what concerns them as much as of these. An operator reads no cause in words, and nothing
of a posted alarm but its title. All others see what is of their own jobs alone, in words that compare with nobody's.
"""

from __future__ import annotations

from typing import Any

from condor_joblens.hub.rules.firings import LASTS_SECONDS, Firing
from condor_joblens.hub.rules.settings import LOST, NODE, OUTSIDE, SILENT, TRIGGER, WAVE
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.who_sees import Seen

MOST = 500
"""Of an answer; the newest."""

_WITHOUT_WORDS = {
    WAVE: ("count", "usual", "clusters", "nodes", "owners", "verdict", "since"),
    NODE: ("node", "ended", "failed", "why", "since"),
    SILENT: ("node", "time"),
    LOST: ("count",),
    TRIGGER: ("trigger", "count", "jobs", "since"),
    OUTSIDE: (),
}
"""What of the evidence names no program, path or server."""

_OF_OWN = {
    WAVE: ("cause", "count", "clusters", "nodes", "since"),
    TRIGGER: ("trigger", "message", "count", "jobs", "since"),
}
"""What of it is of the owner's jobs alone."""

_PLAIN = (NODE, SILENT, LOST)
"""Of these the sentence, too, names nothing but nodes."""


def reads_words(reader: Reader) -> bool:
    """Whether he may read the words of others' jobs."""
    return Seen.WORDS in reader.seen({"IsMine": False})


def firings_of(reader: Reader, since: float) -> list[dict[str, Any]]:
    """Those that were seen since then (epoch seconds), the newest first. Raises JobLensError."""
    firings = desk().firings
    if firings is None:
        return []
    found = firings.since(since)
    told = firings.told(found)
    shown = [_shown(reader, firing, told[firing.id]) for firing in found]
    return [one for one in shown if one is not None][:MOST]


def red_firings(reader: Reader) -> list[dict[str, Any]]:
    """What goes on and turns the light red, for who sees others' jobs. Raises JobLensError."""
    if not reader.sees_others:
        return []
    return [one for one in firings_of(reader, reader.now - LASTS_SECONDS) if one["red"] and one["lasts"]]


def _shown(reader: Reader, firing: Firing, told: dict[str, int]) -> dict[str, Any] | None:
    """None: it is not his to see."""
    if reader.sees_others and (reads_words(reader) or firing.kind in _PLAIN):
        sentence, names = firing.sentence, tuple(firing.evidence)
    elif firing.owner and reader.owns(firing.owner, firing.schedd):
        sentence, names = firing.own, _OF_OWN.get(firing.kind, ())
    elif reader.sees_others:
        sentence, names = "", _WITHOUT_WORDS.get(firing.kind, ())
    else:
        return None
    return {
        **{name: getattr(firing, name) for name in ("id", "rule", "kind", "red", "begun", "seen", "count", "title")},
        "sentence": sentence,
        "evidence": {name: value for name, value in firing.evidence.items() if name in names},
        "lasts": firing.lasts(reader.now),
        "told": told,
    }
