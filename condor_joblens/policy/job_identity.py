"""Who a job is: the few attributes of its ad that joblensd itself uses.

Two ways lead to them: from the evaluated ad, and from those of its lines that are plain literals. The second needs no
parser that a hostile ad could crash, so a job whose ad kills its parser still has a name.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Union

Identity = dict[str, Union[str, int, float]]

STRINGS = ("GlobalJobId", "Owner", "User", "RemoteUser", "AcctGroup", "Cmd", "JobLensNote", "x509UserProxyVOName")
MAX_NUMBER = 1 << 40  # as megabytes, it is still a number of bytes that 64 bits hold
NUMBERS = {
    **dict.fromkeys(("ClusterId", "ProcId", "JobUniverse", "NumShadowStarts", "NumJobStarts"), (0, MAX_NUMBER)),
    "JobLensPeriod": (-MAX_NUMBER, MAX_NUMBER),  # seconds; what is not above 0 is none
    "RequestCpus": (0, MAX_NUMBER),  # cores
    "RequestMemory": (0, MAX_NUMBER),  # MB
    "CheckpointExitCode": (0, (1 << 31) - 1),  # no process has another
}
"""Name -> the lowest and the highest number that is taken over. A number beyond them is as absent as a word, because
the job's user can write anything. The columns that hold these numbers hold no others (a test compares the two)."""

BOOLEANS = ("InteractiveJob", "JobLensReport")

MAX_STRING = 256  # characters

_NAMES = {name.lower(): name for name in (*STRINGS, *NUMBERS, *BOOLEANS)}
_LITERAL = re.compile(
    rb"^[ \t]*([A-Za-z][A-Za-z0-9]{0,23})[ \t]*=[ \t]*"
    rb'(?:"([^"\\\r\n]{0,4096})"|(-?[0-9]{1,18})|((?i:true|false)))[ \t]*\r?$',
    re.MULTILINE,
)


def identity(attributes: Mapping[str, object]) -> Identity:
    """What of `attributes` says who the job is, each of its right type and bounded; the rest is left out.

    `Cmd` is reduced to its last component, and what can't be printed is a question mark.
    """
    found: Identity = {}
    for key, value in attributes.items():
        name = _NAMES.get(key.lower())
        if name in STRINGS and isinstance(value, str):
            text = (posixpath.basename(value) if name == "Cmd" else value)[:MAX_STRING]
            found[name] = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
        elif name in NUMBERS and _is_number(value, *NUMBERS[name]):
            found[name] = value  # type: ignore[assignment]
        elif name == "JobLensPeriod" and value is not None:
            found[name] = 0  # it is there, and its user is to hear that it is none
        elif name in BOOLEANS and isinstance(value, bool):
            found[name] = value
    return found


def literals(ad: bytes) -> Identity:
    """The identity that the plain literals of `ad` (old ClassAd format) tell. Linear in its length."""
    found: dict[str, object] = {}
    for key, text, number, truth in _LITERAL.findall(ad):
        value = int(number) if number else text.decode(errors="replace")
        found[key.decode()] = truth.lower() == b"true" if truth else value
    return identity(found)


def _is_number(value: object, lowest: float, highest: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return lowest <= value <= highest  # false for NaN
