"""Which values of its knobs a daemon works with, so that `joblens doctor` can tell what has not been read again.

Digests: the file with them is for everybody, and a value of the configuration may not be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from condor_joblens.common.config import KNOBS, Knob

_AT_RESTART = frozenset(knob.name for knob in KNOBS if knob.taken == "restart")


def digests(macros: Mapping[str, str], started_with: Mapping[str, str] | None = None) -> dict[str, str]:
    """Knob -> digest of the value that these macros (name -> value) give it, if that is not its default.

    `started_with`: the digests at the daemon's start, which stand for knobs that are taken then.
    """
    given = {name.upper(): value.strip() for name, value in macros.items()}
    found = {knob.name: _digest(given[knob.name]) for knob in KNOBS if given.get(knob.name) and _counts(knob, given)}
    if started_with is not None:
        found = {name: digest for name, digest in found.items() if name not in _AT_RESTART}
        found.update({name: digest for name, digest in started_with.items() if name in _AT_RESTART})
    return found


def changed(now: Mapping[str, str], in_force: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The knobs whose digests differ: those that condor_reconfig is enough for, and those that need a restart."""
    names = sorted(name for name in {*now, *in_force} if now.get(name) != in_force.get(name))
    return [name for name in names if name not in _AT_RESTART], [name for name in names if name in _AT_RESTART]


def _counts(knob: Knob, given: Mapping[str, str]) -> bool:
    """Whether what is given to the knob is in force, and not its default: of a wrong value the default is."""
    try:
        return bool(knob.parse(given[knob.name]) != knob.parse(knob.default))
    except ValueError:
        return False


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:16]
