"""What single words of a command line mean: each takes a word and returns its value, or says what is wrong with it.

argparse calls them, and tells the user what an ArgumentTypeError has.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from typing import Any

from condor_joblens.control.verbs import MOST_LINES, MOST_TRACE_SECONDS


def share(value: str) -> str:
    """A share from 0 to 1, which may be given in percent, with six digits."""
    try:
        part = float(value[:-1]) / 100 if value.endswith("%") else float(value)
    except ValueError:
        part = -1.0
    if not 0 <= part <= 1:
        raise argparse.ArgumentTypeError(f"{value!r} is no share from 0 to 1: write 0.3, or 30%")
    return f"{part:.6f}"


def count(value: str) -> int:
    """A whole number above 0."""
    if not value.isdecimal() or int(value) == 0:
        raise argparse.ArgumentTypeError(f"{value!r} is no whole number above 0")
    return int(value)


def line_count(value: str) -> int:
    """A number of lines, from 0."""
    if not value.isdecimal() or int(value) > MOST_LINES:
        raise argparse.ArgumentTypeError(f"{value!r} is no whole number up to {MOST_LINES}")
    return int(value)


def seconds(value: str) -> float:
    """Seconds, from 0.1 to an hour."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0.1 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{value!r} is no number of seconds from 0.1 to 3600")
    return number


def few_seconds(value: str) -> float:
    """Seconds, from 0.1 to 20."""
    seconds = float(value) if value.replace(".", "", 1).isdecimal() and len(value) < 9 else 0
    if not 0.1 <= seconds <= 20:
        raise argparse.ArgumentTypeError(f"{value!r} is no time from 0.1 to 20 seconds")
    return seconds


def duration(value: str) -> int:
    """Seconds, from 1 to a day."""
    seconds = _as_seconds(value)
    if not 0 < seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{value!r} is no time from 1s to 24h: write 30s, 10m or 2h")
    return seconds


def long_duration(value: str) -> int:
    """Seconds, from 1 to a year."""
    seconds = _as_seconds(value)
    if not 0 < seconds <= 365 * 86400:
        raise argparse.ArgumentTypeError(f"{value!r} is no time from 1s to 365d: write 12h or 2d")
    return seconds


def trace_time(value: str) -> int:
    """Seconds, from 1 to an hour."""
    seconds = _as_seconds(value)
    if not 0 < seconds <= MOST_TRACE_SECONDS:
        raise argparse.ArgumentTypeError(f"{value!r} is no time from 1s to 1h: write 10s or 5m")
    return seconds


def _as_seconds(value: str) -> int:
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(value[-1:], 0)
    number = value[:-1] if unit else value
    return int(number) * (unit or 1) if number.isdecimal() and len(number) < 9 else 0


def signal_number(value: str) -> int:
    """The number of a signal that this machine has: by name or number."""
    name = value.upper()
    number = int(value) if value.isdecimal() and len(value) < 4 else 0
    for each in signal.valid_signals():
        known = getattr(each, "name", "")
        if int(each) == number or (known and name in (known, known[3:])):
            return int(each)
    raise argparse.ArgumentTypeError(f"{value!r} is no signal: write TERM, USR1, KILL or a number")


def function(value: str) -> str:
    """What `joblens trace` takes: it makes sense."""
    from condor_joblens.model import trace_spec

    return _with_sense(value, trace_spec.parse)


def variable(value: str) -> str:
    """What `joblens peek` takes: it makes sense."""
    from condor_joblens.model import peek_spec

    return _with_sense(value, peek_spec.parse)


def _with_sense(value: str, parse: Callable[[str], Any]) -> str:
    try:
        parse(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{value!r}: {error}") from None
    return value
