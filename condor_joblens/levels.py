"""How closely a job may be watched."""

from __future__ import annotations

import enum


class Level(enum.IntEnum):
    """Levels in rising order of detail and of cost; each has what the lower ones have."""

    OFF = 0
    BASIC = 1
    IO = 2
    PROFILE = 3
    TRACE = 4
