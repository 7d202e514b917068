"""A moment as people read it on any machine: with its time zone, and with its day if it is not near."""

from __future__ import annotations

import time

_NEAR_SECONDS = 12 * 3600


def time_of_day(epoch_seconds: float) -> str:
    """The local time of this machine: `14:05 CET`, or `2026-12-01 14:05 CET` if that is over 12 hours from now."""
    form = "%H:%M %Z" if abs(epoch_seconds - time.time()) <= _NEAR_SECONDS else "%Y-%m-%d %H:%M %Z"
    return time.strftime(form, time.localtime(epoch_seconds))
