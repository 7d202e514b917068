"""What a slot's ad says plainly: the facts of the slot that policies see. Nothing is parsed that could be hostile."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Union

Fact = Union[str, int, float]

NAMES = (
    *("Activity", "Arch", "Cpus", "Disk", "DynamicSlot", "FileSystemDomain", "GPUs", "Machine", "Memory", "Name"),
    *("OpSysAndVer", "PartitionableSlot", "RemoteGroup", "RemoteNegotiatingGroup", "RemoteOwner", "RemoteScheddName"),
    *("SlotID", "SlotType", "State", "UidDomain"),
)
"""Attributes of a slot's ad that are facts about it. Others change with every look: times, loads, counts."""

MAX_STRING = 256  # characters
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_VALUE = rb'(?:"([^"\\\r\n]{0,1024})"|(-?[0-9]{1,15}(?:\.[0-9]{1,15})?)|([Tt]rue|[Ff]alse))'


class SlotAttributes:
    """Takes the facts out of the ads of slots: NAMES, and those of the site."""

    def __init__(self, site: Iterable[str] = (), of_job: Iterable[str] = ()) -> None:
        """`site`: names in STARTD_ATTRS, which a site gives its slots; `of_job`: those in STARTD_JOB_ATTRS."""
        self.names = sorted({name for name in (*NAMES, *site, *of_job) if _NAME.fullmatch(name)})
        """All that is taken, of the slot and of its job."""
        self._facts = _line_of({*NAMES, *site})
        self._of_job = _line_of(set(of_job))

    def facts(self, ad: bytes) -> dict[str, Fact]:
        """Name -> value of every fact that stands in `ad` (old ClassAd format) as a literal."""
        found: dict[str, Fact] = {}
        for name, text, number, truth in self._facts.findall(ad):
            key = name.decode()
            if number:
                found[key] = float(number) if b"." in number else int(number)
            elif truth:
                found[key] = truth.lower() == b"true"
            else:
                found[key] = "".join(c if c.isprintable() else "?" for c in text.decode(errors="replace")[:MAX_STRING])
        return found

    def of_job(self, ad: bytes) -> bytes:
        """The lines of `ad` that the startd has of the slot's job: they are newer than the job's own ad."""
        return b"".join(b"%s\n" % match.group().strip() for match in self._of_job.finditer(ad))


def _line_of(names: set[str]) -> re.Pattern[bytes]:
    words = sorted(name for name in names if _NAME.fullmatch(name))
    any_of = "|".join(words).encode() or rb"(?!)"
    return re.compile(rb"^(" + any_of + rb")[ \t]*=[ \t]*" + _VALUE + rb"[ \t]*\r?$", re.MULTILINE | re.IGNORECASE)
