"""A record that makes a sink raise must not hold up all others.

After each exception a smaller part of the batch is tried, down to one record alone. If that record keeps raising, a
record of another job is tried. If that one goes through and the first record raises again, the first record is left
out. The fault is then in the record, and not in a backend that has come back meanwhile.

Only a record of another job is tried in its place, because the records of one job are delivered in order. If the batch
holds no other job, the record is tried more often before it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from condor_joblens.sinks import Record

RAISES = 3
"""How often a record alone may make the sink raise before another job's is tried: it may be the record's fault."""

RAISES_ALONE = 20
"""The same if there is no other job's record to try."""


class Isolation:
    """Says which part of a batch the sink is handed, by what became of the parts before. For one thread."""

    def __init__(self, most: int) -> None:
        """`most`: records of a part."""
        self._most = self._limit = most
        self._alone: Record | None = None  # raised last, with no other record
        self._raises = 0  # how often it did
        self._suspect: Record | None = None  # the batch's first, while a record of another job is tried
        self._accused: Record | None = None  # the same, now that the other job's record went through

    def part(self, records: Sequence[Record]) -> tuple[int, int]:
        """The positions of the part's first record and of the one behind its last."""
        if self._suspect is not None and (other := _other_job(records)):
            return other, other + 1
        return 0, min(self._limit, len(records))

    def went_through(self) -> None:
        """The sink took the last part, or refused what it did not take."""
        self._limit = min(self._most, 2 * self._limit)
        if self._suspect is not None:
            self._accused, self._suspect = self._suspect, None

    def raised(self, handed: Sequence[Record], records: Sequence[Record]) -> bool:
        """The sink raised at `handed`, a part of the batch `records`. Whether that is a record to leave out."""
        if len(handed) > 1:
            self._limit, self._alone = len(handed) // 2, None
            return False
        (record,) = handed
        if self._suspect is not None:  # the sink raises at any record
            self._suspect = self._alone = None
            return False
        if record is not self._alone:
            self._alone, self._raises = record, 0
        self._raises += 1
        if record is not self._accused and self._raises >= RAISES and _other_job(records):
            self._suspect = record
            return False
        return record is self._accused or self._raises >= RAISES_ALONE


def _other_job(records: Sequence[Record]) -> int:
    """The position of the first record whose job is not that of the batch's first record; 0 if there is none."""
    return next((position for position, record in enumerate(records) if record.key != records[0].key), 0)
