"""Numbers that a job's process had a hand in: what they can't be is refused."""

from __future__ import annotations

import math
from typing import Any


class Checked:
    """Each raises ValueError with the same words, and `seconds` also TypeError."""

    def __init__(self, wrong: str) -> None:
        """wrong: what is said of a number that can't be."""
        self._wrong = wrong

    def integer(self, value: object) -> int:
        """Of any sign; no bool."""
        if type(value) is not int:
            raise ValueError(self._wrong)
        return value

    def count(self, value: object) -> int:
        """From 0 to what 63 bits have."""
        number = self.integer(value)
        if not 0 <= number < 1 << 63:
            raise ValueError(self._wrong)
        return number

    def seconds(self, value: Any) -> float:
        """Finite, and not below 0."""
        number = float(value)
        if not math.isfinite(number) or number < 0:
            raise ValueError(self._wrong)
        return number
