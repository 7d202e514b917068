"""What a job asks to be traced of it from its start with `+JobLensTrace`: SPECs, separated by semicolons.

`python:raises` is an exception that ends a Python of the job. Other SPECs are not understood so far, and said to be so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from condor_joblens.common.errors import printable

ATTRIBUTE = "JobLensTrace"
RAISES = "python:raises"
MOST_SPECS = 16
SHOWN = 60  # characters of a SPEC that an ad repeats

_IN_AD = re.compile(rb"^[ \t]*" + ATTRIBUTE.encode() + rb"[ \t]*=([^\r\n]*)", re.MULTILINE | re.IGNORECASE)
_LITERAL = re.compile(rb'[ \t]*"([^"\\]{0,1000})"[ \t]*')


@dataclass(frozen=True)
class TraceRequest:
    """What a job asks for with `+JobLensTrace`."""

    python_raises: bool = False
    refused: str = ""  # the first part that is not understood, fit to print; empty: all is

    def note(self) -> str:
        """One line for the job's ad if not all that was asked for is understood."""
        return f"{ATTRIBUTE}: {self.refused} is not traced: write {RAISES}" if self.refused else ""


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
        return TraceRequest(refused="an expression")
    specs = [spec.strip() for spec in literal[1].decode("utf-8", "replace").split(";")][:MOST_SPECS]
    unknown = [spec for spec in specs if spec and spec != RAISES]
    return TraceRequest(RAISES in specs, printable(unknown[0], SHOWN) if unknown else "")
