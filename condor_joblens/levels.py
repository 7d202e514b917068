"""How closely a job may be watched, what its request for a level means, and what it is told about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from condor_joblens.errors import printable

ATTRIBUTE = "JobLensLevel"
CHOICES = "off, basic, io, profile, trace or 0-4"
SHOWN = 60  # characters of a request that a log or an ad repeats


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


@dataclass(frozen=True)
class Request:
    """What a job asks for with `+JobLensLevel`."""

    level: Level | None = None  # None: nothing was asked, or nothing that is a level
    written: str = ""  # as in the ad, at most SHOWN printable ASCII characters; empty: nothing asked


def understand(value: object, source: str, evaluated: str) -> Request:
    """The request that JobLensLevel = `source` makes, a ClassAd expression whose value is `value`.

    `source` and `evaluated` are the expression and its value as ClassAd text. They differ where the job wrote
    an expression; then both are shown, so that `Foo + 1 (= undefined)` explains itself.
    """
    source, evaluated = " ".join(source.split()), " ".join(evaluated.split())
    if source.lower() == "undefined":  # what a job transform makes of an attribute that it deletes
        return Request()
    written = printable(source, SHOWN)
    if source != evaluated:
        written = f"{printable(source, SHOWN - 25)} (= {printable(evaluated, 20)})"
    try:
        return Request(parse_level(value), written)
    except ValueError:
        return Request(None, written)


def note(request: Request, final: Level, cap: Level, policy: str) -> str:
    """One line for the job's ad where `final` is not plainly what was asked, else an empty string."""
    asked = f"{ATTRIBUTE} = {request.written}"
    if not request.written:
        return ""
    if request.level is None:
        return f"{asked} is not a level ({CHOICES}): taken as {final.word}"
    if request.level > cap == final:
        return f"{asked} is above this site's JOBLENS_MAX_LEVEL = {cap.word}: capped"
    if request.level != final and not policy:
        return f"{asked} was asked, no policy is in force: taken as {final.word}"
    if request.level != final:
        return f"{asked} was asked, policy {policy} gave {final.word}"
    is_string = request.written.startswith('"') and request.written.endswith('"')
    if is_string and request.written[1:-1].lower() != final.word:
        return f"{asked} is taken as {final.word}"
    return ""
