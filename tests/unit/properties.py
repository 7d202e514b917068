"""How many examples the property-based tests take."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Examples of a test that does not say how many."""


def examples(count: int) -> int:
    """So many in `make test`, where they are the same each time; in `make fuzz` in proportion more, at random."""
    return count * settings.default.max_examples // USUAL
