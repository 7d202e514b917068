"""Quantiles of numbers that nobody keeps: how many were in each range, ranges that grow by a tenth.

A quantile is within 5 % of the number at its rank. Sketches of parts add up to that of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

GROWTH = 1.1
MOST_RANGES = 512
"""Further ones can't be: 1.1 to the power of 512 is beyond all numbers that are put in (nanoseconds in an int64)."""

_LOG = math.log(GROWTH)


class QuantileSketch:
    """Of positive numbers; what is below 1 counts as 1."""

    def __init__(self, counts: Iterable[Sequence[int]] = ()) -> None:
        """From `counts()`. Raises ValueError for anything else."""
        self._counts: dict[int, int] = {}
        for place, count in counts:
            if type(place) is not int or type(count) is not int or not 0 <= place < MOST_RANGES or count < 0:
                raise ValueError("no sketch of quantiles")
            self._counts[place] = self._counts.get(place, 0) + count

    def add(self, number: float) -> None:
        """Puts it in."""
        place = min(MOST_RANGES - 1, math.ceil(math.log(number) / _LOG)) if number > 1 else 0
        self._counts[place] = self._counts.get(place, 0) + 1

    def counts(self) -> list[list[int]]:
        """Place of each range, and how many numbers are in it: range n is from 1.1**(n - 1) to 1.1**n."""
        return [[place, count] for place, count in sorted(self._counts.items())]

    def quantile(self, share: float) -> float | None:
        """The number that `share` (0 to 1) of all are not above; None without any."""
        total = sum(self._counts.values())
        rank = max(1, math.ceil(share * total))
        for place, count in sorted(self._counts.items()):
            rank -= count
            if rank <= 0 < total:
                return 2 * GROWTH**place / (1 + GROWTH) if place else 1.0
        return None
