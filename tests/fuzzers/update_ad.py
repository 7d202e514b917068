"""`.update.ad`, into which joblensd puts its attribute: a user may write that file."""

from __future__ import annotations

from condor_joblens.publish.attribute import ATTRIBUTE
from condor_joblens.publish.updatead import with_attribute

_OURS = ATTRIBUTE.lower().encode()
SEEDS = [
    b"Cpus = 1\nJobLensUsage = [a=1]\nMemory = 128\n",
    b"\n \njoblensusage\nJOBLENSUSAGE\t= 1",
    b"JobLensUsageOther = 1\n\fJobLensUsage = 2\r\n",
]
WORDS = [ATTRIBUTE.encode(), b"= ", b"\n", b"\r", b"\v", b"\f"]


def check(data: bytes) -> None:
    """The attribute is there once, at the end; no other line is changed, and a second time changes nothing."""
    text = "[Schema=1]"
    made = with_attribute(data, text)
    *lines, last, end = made.split(b"\n")
    assert (last, end) == (ATTRIBUTE.encode() + b" = " + text.encode(), b"")
    assert not any(_is_taken_out(line) for line in lines)
    assert lines == [line for line in data.split(b"\n") if not _is_taken_out(line)]
    assert with_attribute(made, text) == made


def _is_taken_out(line: bytes) -> bool:
    stripped = line.lstrip(b" \t\r\v\f").lower()
    rest = stripped[len(_OURS) :].lstrip(b" \t\r\v\f")
    return not stripped or (stripped.startswith(_OURS) and (not rest or rest.startswith(b"=")))
