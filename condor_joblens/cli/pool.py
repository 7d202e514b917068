"""`joblens pool`: the nodes of a pool, a line each, the worst first, from what the collector knows of their startds.

Each startd's first slot carries the attribute JobLensNode (publish/node_ad.py).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.cli import terminal, units
from condor_joblens.cli.accesspoint import is_number
from condor_joblens.cli.status import below_headers
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common.condor_commands import EXPRESSION, ask
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.model.levels import Level

HEADERS = ("NODE", "STATE", "VERSION", "SOURCE", "JOBS", "LEVELS", "INCOMPLETE", "LOST")
LEFT = "NODE STATE VERSION SOURCE LEVELS"
SPARE = "SOURCE INCOMPLETE VERSION"

FIRST_SLOTS = "SlotID == 1 && DynamicSlot =!= true"
ATTRIBUTES = ("Name", "Machine", "JobLensNode", "JobLensVersion", "JobLensNote")
TIMEOUT_SECONDS = 60

STALE_SECONDS = 1200.0
"""An ad is renewed every 300 s and sent every 300 s (UPDATE_INTERVAL): what is older comes from nobody."""

ORDER = ("FAIL", "silent", "absent", "without", "unknown", "warn", "ok")
"""States, the worst first: the words of doctor, and these.

- silent: joblens_publish has ended
- absent: the startd is gone
- without: it has no JobLens, or an older one
- unknown: doctor has not looked yet
"""


@dataclass(frozen=True)
class Startd:
    """One startd of the pool."""

    name: str  # its host, with the startd's own name before it if it has one
    state: str  # of ORDER
    says: str = ""
    version: str = ""
    source: str = ""
    levels: Mapping[str, int] | None = None  # word of a level -> jobs; None if joblensd is silent
    incomplete: int = 0
    lost: int = 0

    def record(self) -> dict[str, Any]:
        """As JSON; what is not known is not there."""
        found = {
            "Node": self.name, "State": self.state, "Says": self.says, "Version": self.version, "Source": self.source,
            "Levels": dict(self.levels) if self.levels is not None else None,
            "Incomplete": self.incomplete, "Lost": self.lost,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value not in (None, "")}


def run(options: argparse.Namespace) -> int:
    """Asks the collector; exit code 1 if a node fails or is silent. Raises JobLensError if it knows no startd."""
    found = [startd(ad, time.time()) for ad in _ads(options)]
    found += [Startd(_name(ad), "absent", "its startd is gone") for ad in _ads(options, "-absent")]
    if not found:
        raise JobLensError("the collector knows no startd: is this the right pool? see condor_status")
    found.sort(key=lambda one: (ORDER.index(one.state), one.name))
    print(json.dumps([one.record() for one in found], indent=2) if options.json else "\n".join(lines(found, style())))
    return int(any(one.state in ("FAIL", "silent") for one in found))


def _ads(options: argparse.Namespace, *more: str) -> list[dict[str, Any]]:
    pool = ["-pool", options.pool] if options.pool else []
    constraint = FIRST_SLOTS + (f" && ({options.constraint})" if options.constraint else "")
    words = [*pool, *more, "-constraint", constraint, "-json", "-attributes", ",".join(ATTRIBUTES)]
    told = ask("condor_status", *words, timeout=TIMEOUT_SECONDS)
    try:
        ads = json.loads(told) if told.strip() else []
    except ValueError:
        raise JobLensError(f"condor_status -json prints no JSON: {printable(told, 120)}") from None
    return [ad for ad in ads if isinstance(ad, dict)]


def startd(ad: Mapping[str, Any], now: float) -> Startd:
    """What the ad of a startd's first slot says, at `now` (epoch seconds)."""
    node = ad.get("JobLensNode")
    if not isinstance(node, dict):
        older = _text(ad.get("JobLensVersion"))
        why = f"JobLens {older} is older than this attribute" if older else "nothing of JobLens is published there"
        return Startd(_name(ad), "without", why, older)
    levels = node.get("Levels")
    known = Startd(
        _name(ad), _text(node.get("Doctor")), _text(node.get("Says")), _text(node.get("Version")),
        _text(node.get("Source")), _levels(levels) if isinstance(levels, dict) else None,
        _count(node.get("Incomplete")), _count(node.get("Lost")),
    )  # fmt: skip
    age = now - (_count(node.get("UpdateTime")) or now)
    if age > STALE_SECONDS:
        words = f"nothing for {units.duration(age)}: see StartLog there, and joblens doctor"
        return Startd(known.name, "silent", words, known.version)
    if known.state not in ORDER:
        return Startd(**{**known.__dict__, "state": "unknown"})
    return known


def _levels(levels: Mapping[str, Any]) -> dict[str, int]:
    return {level.word: _count(levels.get(level.word.capitalize())) for level in Level}


def _name(ad: Mapping[str, Any]) -> str:
    """`node7.example.org`, or `second@node7.example.org` of a startd that has a name."""
    return _text(ad.get("Name")).partition("@")[2] or _text(ad.get("Machine")) or "?"


def _text(value: Any) -> str:
    return printable(value, 240) if isinstance(value, str) and not value.startswith(EXPRESSION) else ""


def _count(value: Any) -> int:
    return int(value) if is_number(value) else 0


def lines(found: Sequence[Startd], look: Style) -> list[str]:
    """The table, and below it what is wrong with which nodes."""
    states = Counter(one.state for one in found)
    versions = Counter(one.version for one in found if one.version)
    words = ", ".join(f"{states[name]} {name}" for name in ORDER if states[name])
    title = f"{units.count(len(found), 'node')}: {words}"
    if len(versions) > 1:
        title += "; versions " + ", ".join(f"{version} ({count})" for version, count in versions.most_common())
    short = _short([one.name for one in found])
    rows = [_cells(one, short[one.name]) for one in found]
    body = table(HEADERS, rows, LEFT, look.width, SPARE)
    said = terminal.notes(((short[one.name], one.says) for one in found), look)
    return [*(look.paint(line, "bold") for line in look.wrapped(title)), *below_headers(body, look), *said]


def _cells(one: Startd, name: str) -> tuple[str, ...]:
    if one.levels is None:
        return name, one.state, one.version or "-", one.source or "-", "-", "-", "-", "-"
    watched = ", ".join(f"{count} {word}" for word, count in one.levels.items() if count) or "-"
    return (
        name, one.state, one.version or "-", one.source or "-", str(sum(one.levels.values())), watched,
        str(one.incomplete), str(one.lost),
    )  # fmt: skip


def _short(names: Iterable[str]) -> dict[str, str]:
    """Names without their domain, where that leaves each its own."""
    shortened = {name: name.partition(".")[0] for name in names}
    is_own = len(set(shortened.values())) == len(shortened)
    return shortened if is_own else {name: name for name in shortened}
