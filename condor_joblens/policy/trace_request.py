"""What a job asks to be traced of it from its start with `+JobLensTrace`: SPECs, separated by semicolons.

`python:raises` is an exception that ends a Python of the job, `FILE:FUNCTION` are functions (model/trace_spec.py). What
is not understood is told with what would be right, and the job runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from condor_joblens.common.errors import printable
from condor_joblens.model.trace_spec import THROWS, SpecError, parse

ATTRIBUTE = "JobLensTrace"
RAISES = "python:raises"
MOST_SPECS = 8
SHOWN = 60  # characters of a SPEC that an ad repeats

_IN_AD = re.compile(rb"^[ \t]*" + ATTRIBUTE.encode() + rb"[ \t]*=([^\r\n]*)", re.MULTILINE | re.IGNORECASE)
_LITERAL = re.compile(rb'[ \t]*"([^"\\]{0,1000})"[ \t]*')


@dataclass(frozen=True)
class TraceRequest:
    """What a job asks for with `+JobLensTrace`."""

    python_raises: bool = False
    functions: tuple[str, ...] = ()  # SPECs, each of which can be parsed
    refused: str = ""  # the first part that is not understood and what would be right, fit to print; empty: all is

    def note(self) -> str:
        """One line for the job's ad if not all that was asked for is understood."""
        return f"{ATTRIBUTE}: {self.refused}" if self.refused else ""


def understand(ad: bytes) -> TraceRequest:
    """The request of a job with this ad (old ClassAd format).

    Nothing is evaluated: it must be a text without escapes. Linear in the ad's length.
    """
    if ATTRIBUTE.lower().encode() not in ad.lower():
        return TraceRequest()
    requests = _IN_AD.findall(ad)
    if not requests or requests[-1].strip().lower() == b"undefined":
        return TraceRequest()
    literal = _LITERAL.fullmatch(requests[-1])  # of lines with the same name the last counts
    if literal is None:
        return TraceRequest(refused="an expression is not traced: write a text of at most 1000 characters")
    return of_text(literal[1].decode("utf-8", "replace"))


def of_text(text: str) -> TraceRequest:
    """What these SPECs, separated by semicolons, ask for."""
    specs = list(dict.fromkeys(filter(None, map(str.strip, text.split(";")))))
    refused = f"only the first {MOST_SPECS} SPECs are traced" if len(specs) > MOST_SPECS else ""
    functions: list[str] = []
    for spec in reversed(specs[:MOST_SPECS]):
        why = "" if spec == RAISES else why_not(spec)
        if why:
            refused = f"{printable(spec, SHOWN)} is not traced: {why}"
        elif spec != RAISES:
            functions.insert(0, spec)
    return TraceRequest(RAISES in specs[:MOST_SPECS], tuple(functions), refused)


def why_not(spec: str) -> str:
    """Why a SPEC of functions can't be traced from a job's start, fit to print; empty: it can."""
    if spec.partition(":")[0] == "python":
        return f"write {RAISES}"
    try:
        if spec == THROWS or parse(spec).is_of_throws:
            return "joblens trace ID throws shows what is thrown"
    except SpecError as error:
        return printable(str(error), 120)
    return ""
