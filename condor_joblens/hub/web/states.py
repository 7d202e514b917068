"""Whether a run's numbers still come: one condition, for the store and for one record.

A run is silent if three of its samples in a row never came, and after two minutes at the earliest. How often they come
is its own period (`JOBLENS_PERIOD`, or what its policy says), or that of its node's sink, where that is longer.
"""

from __future__ import annotations

AT_LEAST = 120.0
"""Seconds that a run may say nothing, whatever its period."""

MISSED = 3
"""Samples in a row that never came."""

AT_MOST = 3 * 86400.0
"""Seconds after which every run is silent that has said nothing, whatever its node says of its period."""


def patience_of(period: str) -> str:
    """`patience`, as the store reckons it. period: an expression."""
    return f"least({AT_MOST:.0f}, greatest({AT_LEAST:.0f}, {MISSED} * {period}))"


PATIENCE = patience_of("greatest(ifNull(PeriodSeconds, 0), SinkPeriodSeconds)")
"""`patience` of a row, as the store reckons it."""


def patience(period: float | None, sink_period: float | None) -> float:
    """Seconds for which a run may say nothing, by its own period and its sink's (None and 0: none)."""
    return min(AT_MOST, max(AT_LEAST, MISSED * max(period or 0.0, sink_period or 0.0)))


def running(now: float) -> str:
    """Runs whose numbers come, as a condition on the newest record of each."""
    return f"(Type = 'sample' AND Time > {now - AT_MOST} AND UpdateTime + {PATIENCE} > {now})"


def silent(now: float) -> str:
    """Those that have not ended, as far as their nodes have said, and of which nothing comes any more."""
    return f"(Type = 'sample' AND UpdateTime + {PATIENCE} <= {now})"
