"""What rules would have done in the last month: looked at hour by hour, with nobody told."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from condor_joblens.hub.rules.alarms import WATCHER, Alarm, alarms, fires
from condor_joblens.hub.rules.firings import SAME_SECONDS
from condor_joblens.hub.rules.settings import LOST, NODE, TRIGGER, WAVE, Settings
from condor_joblens.hub.store.client import Store
from condor_joblens.hub.web.reads import Reader

DAYS = 30
HOUR = 3600
REPLAYED = frozenset({WAVE, NODE, LOST, TRIGGER})
"""What last records and events tell. How long a node was silent is not kept."""

OF_EVENTS = frozenset({LOST, TRIGGER})
"""Of these, what events tell: they are kept for two weeks."""


@dataclass
class Would:
    """A firing that would have been."""

    rule: str
    begun: float
    seen: float
    alarm: Alarm


def would_have_fired(settings: Settings, store: Store, days: int = DAYS, now: float | None = None) -> list[Would]:
    """In the order of their begin. Raises JobLensError."""
    whens = {rule.when for rule in settings.rules} & REPLAYED
    found: list[Would] = []
    last: dict[tuple[str, str, str], Would] = {}
    for moment in _hours(days, time.time() if now is None else now):
        seen = alarms(Reader(store, WATCHER, moment), whens) if whens else []
        for rule in settings.rules:
            for alarm in seen:
                if fires(rule, alarm):
                    key = (rule.name, alarm.when, alarm.key)
                    if key in last and moment - last[key].seen <= SAME_SECONDS:
                        last[key].seen = moment
                    else:
                        last[key] = Would(rule.name, moment, moment, alarm)
                        found.append(last[key])
    return found


def _hours(days: int, now: float) -> Iterator[float]:
    end = HOUR * math.floor(now / HOUR)
    yield from (float(moment) for moment in range(end - days * 24 * HOUR, end + HOUR, HOUR))
    yield now
