"""Bars of what ended in equal steps of time: how many, and how many of them failed. Drawn as SVG, with no script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT = 30, 120
"""Of a bar with the room beside it, and of the highest, in the units of the picture."""


def bars(counts: Sequence[tuple[int, int]], begins: Sequence[str], urls: Sequence[str]) -> list[dict[str, Any]]:
    """Two rectangles a step: what failed, below what did not. counts: ended, and of them failed; begins: in words."""
    most = max([ended for ended, _ in counts], default=0) or 1
    found = []
    for place, ((ended, failed), begin, url) in enumerate(zip(counts, begins, urls)):
        low, high = HEIGHT * failed / most, HEIGHT * (ended - failed) / most
        found.append(
            {
                "x": place * WIDTH + 2,
                "width": WIDTH - 4,
                **{"failed_y": f"{HEIGHT - low:.1f}", "failed_height": f"{low:.1f}"},
                **{"well_y": f"{HEIGHT - low - high:.1f}", "well_height": f"{high:.1f}"},
                "ended_url": url,
                "text": f"{begin}: {ended} ended, {failed} of them failed",
            }
        )
    return found


def plain_bars(values: Sequence[float], texts: Sequence[str]) -> list[dict[str, Any]]:
    """One rectangle a step, the greatest value as high as the picture. texts: what each says."""
    most = max(values, default=0.0) or 1.0
    found = []
    for place, (value, text) in enumerate(zip(values, texts)):
        high = HEIGHT * value / most
        found.append(
            {
                **{"x": place * WIDTH + 2, "width": WIDTH - 4},
                **{"y": f"{HEIGHT - high:.1f}", "height": f"{high:.1f}", "text": text},
            }
        )
    return found
