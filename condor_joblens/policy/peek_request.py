"""Which variables of its programs a job asks for with `+JobLensPeek`: FILE:NAME, separated by semicolons.

What is not understood is told with what would be right, and the job runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from condor_joblens.common.errors import printable
from condor_joblens.model import peek_spec
from condor_joblens.model.metrics import PEEKED
from condor_joblens.model.trace_spec import SpecError
from condor_joblens.policy import ad_literal

ATTRIBUTE = "JobLensPeek"
MOST_SPECS = len(PEEKED)
SHOWN = 60  # characters of a variable that an ad repeats


@dataclass(frozen=True)
class PeekRequest:
    """What a job asks for with `+JobLensPeek`."""

    specs: tuple[str, ...] = ()  # each can be parsed
    refused: str = ""  # the first part that is not understood and what would be right, fit to print; empty: all is

    def note(self) -> str:
        """One line for the job's ad if not all that was asked for is understood."""
        return f"{ATTRIBUTE}: {self.refused}" if self.refused else ""


def understand(ad: bytes) -> PeekRequest:
    """The request of a job with this ad (old ClassAd format). Nothing is evaluated. Linear in the ad's length."""
    found = ad_literal.written(ad, ATTRIBUTE)
    if found is None:
        return PeekRequest(refused="an expression is not read: write a text of at most 1000 characters")
    return of_text(found)


def of_text(text: str) -> PeekRequest:
    """What these variables, separated by semicolons, ask for."""
    specs = list(dict.fromkeys(filter(None, map(str.strip, text.split(";")))))
    refused = f"only the first {MOST_SPECS} variables are read" if len(specs) > MOST_SPECS else ""
    understood: list[str] = []
    for spec in specs[:MOST_SPECS]:
        try:
            peek_spec.parse(spec)
            understood.append(spec)
        except SpecError as error:
            refused = refused or f"{printable(spec, SHOWN)} is not read: {printable(str(error), 120)}"
    return PeekRequest(tuple(understood), refused)
