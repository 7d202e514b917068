"""The level that a job asks for with `+JobLensLevel`: what the request means, and the note about its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from condor_joblens.common.errors import printable
from condor_joblens.model.levels import CHOICES, Level, parse_level

ATTRIBUTE = "JobLensLevel"
SHOWN = 60  # characters of a request that a log or an ad repeats


@dataclass(frozen=True)
class LevelRequest:
    """What a job asks for with `+JobLensLevel`."""

    level: Level | None = None  # None: nothing was asked, or nothing that is a level
    written: str = ""  # as in the ad, at most SHOWN printable ASCII characters; empty: nothing asked


def understand(value: object, source: str, evaluated: str) -> LevelRequest:
    """The request that JobLensLevel = `source` makes, a ClassAd expression whose value is `value`.

    `source` and `evaluated` are the expression and its value as ClassAd text. They differ where the job wrote
    an expression; then both are shown, so that `Foo + 1 (= undefined)` explains itself.
    """
    source, evaluated = " ".join(source.split()), " ".join(evaluated.split())
    if source.lower() == "undefined":  # what a job transform makes of an attribute that it deletes
        return LevelRequest()
    written = printable(source, SHOWN)
    if source != evaluated:
        written = f"{printable(source, SHOWN - 25)} (= {printable(evaluated, 20)})"
    try:
        return LevelRequest(parse_level(value), written)
    except ValueError:
        return LevelRequest(None, written)


def note(request: LevelRequest, final: Level, cap: Level, policy: str) -> str:
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
