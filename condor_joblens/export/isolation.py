"""A record that makes a sink raise must not hold up all others.

Ever smaller parts of the batch are tried, down to it alone. Then the next one is tried in its place. Where that goes
through, and the record fails even now, it was the record's fault, and not that of a backend which has come back
meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from condor_joblens.sinks import Record

RAISES = 3
"""How often a record alone may make the sink raise before another is tried: it may be the record's fault."""

RAISES_ALONE = 20
"""The same where there is no other record to try."""


class Isolation:
    """Says which part of a batch the sink is handed, by what became of the ones before. For one thread."""

    def __init__(self, most: int) -> None:
        """`most`: records of a part."""
        self._most = self._limit = most
        self._alone: Record | None = None  # raised last, with no other record
        self._raises = 0  # how often it did
        self._suspect: Record | None = None  # the batch's first: the one behind it is tried
        self._accused: Record | None = None  # the same, now that the one behind it went through

    def part(self, records: Sequence[Record]) -> tuple[int, int]:
        """From where, and up to where before, these are handed over."""
        return (0, min(self._limit, len(records))) if self._suspect is None else (1, 2)

    def went_through(self) -> None:
        """The sink took the last part, or refused what it did not take."""
        self._limit = min(self._most, 2 * self._limit)
        if self._suspect is not None:
            self._accused, self._suspect = self._suspect, None

    def raised(self, handed: Sequence[Record], is_last: bool) -> bool:
        """The sink raised at this part, behind which there is nothing where it is the last. Whether it is a record to
        leave out."""
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
        if record is not self._accused and self._raises >= RAISES and not is_last:
            self._suspect = record
            return False
        return record is self._accused or self._raises >= RAISES_ALONE
