"""How long a job's system calls have waited, by class of call and by length: what is kept of a run as an artifact.

A call waits while its thread is off the CPU and not ready to run. Most calls never do. It is about calls that have
ended, and all of them: nothing is sampled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.model.classes import SYSCALLS

KIND, CONTENT_TYPE = "waits", "application/json"

LENGTHS_NS: tuple[float, ...] = (0.0, *(3906.25 * 2**step for step in range(21)))
"""The shortest wait of each length, as the kernel's program has them (joblens_io.h); the last one has no end."""

LONG_NS = 1_000_000
"""From here on a wait can have a stack in the profile of time off the CPU."""


@dataclass(frozen=True)
class ClassWaits:
    """Calls of one class."""

    did_not_wait: int = 0
    waits: tuple[int, ...] = (0,) * len(LENGTHS_NS)  # how many calls have waited so long
    short_ns: int = 0  # waited in those below LONG_NS, together
    long_ns: int = 0  # and in all others

    @property
    def short(self) -> int:
        """Calls that have waited for less than LONG_NS."""
        return sum(self.waits[: LENGTHS_NS.index(LONG_NS)])

    @property
    def long(self) -> int:
        """Calls that have waited for longer."""
        return sum(self.waits) - self.short


@dataclass
class CallWaits:
    """From `begun` to `ended`, epoch seconds."""

    begun: float
    ended: float
    classes: dict[str, ClassWaits] = field(default_factory=dict)  # by their names in SYSCALLS; others have no calls


def merged(found: Iterable[CallWaits]) -> CallWaits:
    """Of times that do not overlap. Raises ValueError if there is none."""
    each = list(found)
    if not each:
        raise ValueError("no waits")
    total = CallWaits(min(one.begun for one in each), max(one.ended for one in each))
    for name in SYSCALLS:
        parts = [one.classes[name] for one in each if name in one.classes]
        if parts:
            total.classes[name] = ClassWaits(
                sum(part.did_not_wait for part in parts),
                tuple(map(sum, zip(*(part.waits for part in parts)))),
                sum(part.short_ns for part in parts),
                sum(part.long_ns for part in parts),
            )
    return total


def record(found: CallWaits) -> dict[str, Any]:
    """In JSON, for people's programs too."""
    return {
        "BeginTime": found.begun,
        "EndTime": found.ended,
        "FromNanoseconds": [*LENGTHS_NS],
        "Classes": {
            name: {
                "DidNotWait": each.did_not_wait,
                "Waits": [*each.waits],
                "ShortNanoseconds": each.short_ns,
                "LongNanoseconds": each.long_ns,
            }
            for name, each in found.classes.items()
        },
    }


def encode(found: CallWaits) -> bytes:
    """As it is kept."""
    return json.dumps(record(found)).encode()


def decode(content: bytes) -> CallWaits:
    """Raises ValueError."""
    try:
        told = json.loads(content)
        if [*told["FromNanoseconds"]] != [*LENGTHS_NS]:
            raise ValueError("waits of other lengths, as another version keeps them")
        classes = {name: _of_class(told["Classes"][name]) for name in SYSCALLS if name in told["Classes"]}
        return CallWaits(float(told["BeginTime"]), float(told["EndTime"]), classes)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no waits: {type(error).__name__}") from None


def _of_class(told: Any) -> ClassWaits:
    waits: Sequence[int] = told["Waits"]
    if len(waits) != len(LENGTHS_NS):
        raise ValueError("waits of other lengths")
    return ClassWaits(
        int(told["DidNotWait"]), tuple(map(int, waits)), int(told["ShortNanoseconds"]), int(told["LongNanoseconds"])
    )
