"""Entries for tests: for an hour, by somebody who may."""

from __future__ import annotations

import itertools
import time
from typing import Any

from condor_joblens.control.entries import Entry, Role

_NUMBERS = itertools.count()


def entry(**fields: Any) -> Entry:
    """An operator's, unless these say otherwise; each has a name of its own."""
    now = int(time.time() * 1000)
    usual = {"role": Role.OPERATOR, "author": "carol", "reason": "slow jobs", "begins": now, "ends": now + 3_600_000}
    return Entry(name=f"e{next(_NUMBERS):08x}", **{**usual, **fields})
