"""How closely a job may be watched: the levels and their names."""

from __future__ import annotations

import enum

SITE_DEFAULT = "the site's default"
"""The reason for a level that nobody asked for and no rule gave."""

AS_ASKED = "the job asked for it"
"""That for one that a rule gives who asks, if the rule gives no other."""

CHOICES = "off, basic, io, profile, trace or 0-4"


class Level(enum.IntEnum):
    """Levels in rising order of detail and of cost; each has what the lower ones have."""

    OFF = 0
    BASIC = 1
    IO = 2
    PROFILE = 3
    TRACE = 4

    @property
    def word(self) -> str:
        """The level as people and policies write it: `basic`."""
        return self.name.lower()


def parse_level(value: object) -> Level:
    """The level that a name (any case, space around it), an integer 0 to 4 or that digit in a string means.

    Raises ValueError for everything else: a float, a boolean and a list are no levels.
    """
    if isinstance(value, int) and not isinstance(value, bool) and Level.OFF <= value <= Level.TRACE:
        return Level(value)
    if isinstance(value, str):
        word = value.strip(" \t").lower()
        for level in Level:
            if word in (level.word, str(level.value)):
                return level
    raise ValueError(f"is not a level ({CHOICES})")


SAMPLES, WAITS, CRASHES = "samples", "stacks of waits", "where a job crashed"
"""Parts of level profile, of which a kernel may give some alone."""
