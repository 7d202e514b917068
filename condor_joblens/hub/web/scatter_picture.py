"""Points of two metrics as SVG, with no script: one path for all of them, and a number at each that is named below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from condor_joblens.hub.web import picked

WIDTH, HEIGHT = 520.0, 340.0
"""Of the picture, in its own units: a phone shows it at three quarters of that, and text stays readable."""

LEFT, RIGHT, TOP, BOTTOM = 74.0, 14.0, 12.0, 26.0
"""What is kept free for the axes' numbers."""

TICKS = 5
"""Of an axis, at most."""

GREATEST, LEAST = 1e18, 1e-18
"""Of what is drawn. A node may say any number: what is farther out lies at the edge, and what is less is nothing."""


class Axis:
    """Where a value is, between 0 and 1, and which values are written beside it."""

    def __init__(self, path: str, values: Sequence[float], is_log: bool) -> None:
        self.path = path
        self._is_bytes = picked.BY_PATH[path].unit == "bytes"
        values = [_drawn(value) for value in values]
        positive = [value for value in values if value > 0]
        self.is_log = is_log and bool(positive)
        self.low, self.high = (min(positive), max(positive)) if self.is_log else _widened(values)
        if self.is_log and self.low == self.high:
            self.low /= 2

    def place(self, value: float) -> float:
        """Of a logarithmic axis, what is not positive is at the edge."""
        value = _drawn(value)
        if not self.is_log:
            return (value - self.low) / (self.high - self.low)
        if value <= self.low:
            return 0.0
        return math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Place and text."""
        values = self._powers() if self.is_log else self._steps()
        found = [(self.place(value), picked.text(self.path, value)) for value in values]
        return [one for one in found if -1e-9 <= one[0] <= 1 + 1e-9]

    def _powers(self) -> list[float]:
        base = 2.0 if self._is_bytes else 10.0
        first, last = math.floor(math.log(self.low, base)), math.ceil(math.log(self.high, base))
        step = max(1, -(-(last - first) // (TICKS - 1)))
        step = -(-step // 10) * 10 if self._is_bytes and step > 5 else step
        powers = [base**power for power in range(first - first % step, last + 1, step)]
        # one below the axis would stand at its edge, beside a point that is more
        return [power for power in powers if self.low * (1 - 1e-9) <= power <= self.high * (1 + 1e-9)] or [self.low]

    def _steps(self) -> list[float]:
        rough = (self.high - self.low) / (TICKS - 1)
        if self._is_bytes:
            step = 2.0 ** math.ceil(math.log2(rough))
        else:
            size = 10.0 ** math.floor(math.log10(rough))
            step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * (1 - 1e-9))
        first = math.ceil(self.low / step)
        return [step * number for number in range(first, first + TICKS + 1) if step * number <= self.high * (1 + 1e-9)]


def _drawn(value: float) -> float:
    return 0.0 if abs(value) < LEAST else min(max(value, -GREATEST), GREATEST)


def _widened(values: Sequence[float]) -> tuple[float, float]:
    """From nothing to the greatest; or from the least, if that is below nothing. Never both the same."""
    low, high = min([0.0, *values]), max([0.0, *values])
    return low, high if high > low else low + 1.0


def picture(found: Mapping[str, Any]) -> dict[str, Any]:
    """For a template."""
    rows = found["points"]
    axes = {axis: Axis(found[axis], [row[axis] for row in rows], found["is_log"][axis]) for axis in ("x", "y")}
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(row: Mapping[str, Any]) -> tuple[float, float]:
        return LEFT + wide * axes["x"].place(row["x"]), TOP + high * (1 - axes["y"].place(row["y"]))

    by_run = {row["Run"]: row for row in rows}
    far = [at(by_run[run]) for run in found["far"]]
    usual = [at(row) for row in rows if row["Run"] not in set(found["far"])]
    return {
        **{"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT},
        **{"top": TOP, "bottom": HEIGHT - BOTTOM},
        "path": "".join(f"M{x:.1f} {y:.1f}h0" for x, y in usual),
        "marks": [
            {
                **{"x": f"{x:.1f}", "y": f"{y:.1f}", "number": number},
                **{"text_x": f"{x - 6 if x > WIDTH / 2 else x + 6:.1f}", "anchor": "end" if x > WIDTH / 2 else "start"},
                "text_y": f"{max(y + 4, TOP + 8):.1f}",
            }
            for number, (x, y) in enumerate(far, 1)
        ],
        "x_ticks": [
            {"at": f"{LEFT + wide * place:.1f}", "text": text, "anchor": _anchor(place)}
            for place, text in axes["x"].ticks()
        ],
        "y_ticks": [
            {"at": f"{TOP + high * (1 - place):.1f}", "text": text} for place, text in axes["y"].ticks()
        ],
        "logarithmic": [axes[axis].path for axis in ("x", "y") if axes[axis].is_log],
    }  # fmt: skip


def _anchor(place: float) -> str:
    """So that a text at the end of the axis is whole."""
    return "end" if place > 0.93 else "start" if place < 0.04 else "middle"
