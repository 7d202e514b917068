"""The level that a job asks for with `+JobLensLevel`: what the request means, and the note about its outcome."""

from __future__ import annotations

import re
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


_IN_AD = re.compile(rb"^[ \t]*" + ATTRIBUTE.encode() + rb"[ \t]*=([^\r\n]*)", re.MULTILINE | re.IGNORECASE)
_LITERAL = re.compile(rb'[ \t]*(?:"([^"\\]{0,64})"|([0-9]{1,4})|(undefined))[ \t]*', re.IGNORECASE)


def may_ask_for(ad: bytes, level: Level) -> bool:
    """Whether a job with this ad (old ClassAd format) may ask for `level` or a closer one.

    Nothing is evaluated: an expression may have any value, so it may ask. Linear in the ad's length.
    """
    if ATTRIBUTE.lower().encode() not in ad.lower():
        return False
    requests = _IN_AD.findall(ad)
    if not requests:
        return False
    literal = _LITERAL.fullmatch(requests[-1])  # of lines with the same name the last counts
    if literal is None:
        return bool(requests[-1].strip())
    word, number, _ = literal.groups()
    try:
        return parse_level(int(number) if number else (word or b"").decode("ascii", "replace")) >= level
    except ValueError:
        return False


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
