"""Which policy files fail by their own fault, and when that is enough to set one aside."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

ENOUGH = 3
"""Failures in a row, on different jobs."""

MOST_REMEMBERED = 100
"""Jobs of a file that failed in a row."""


@dataclass
class _Record:
    failed_on: dict[Hashable, str] = field(default_factory=dict)  # job -> its owner, since it last worked


class Faults:
    """Counts the failures of each file in a row.

    A file that fails on three jobs in a row is at fault itself. But a user who knows a policy can submit jobs that make
    it fail, and must not remove it for everybody. So jobs of more than one owner must have made it fail.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._records = {file: _Record() for file in files}

    def worked(self, files: Iterable[str]) -> None:
        """These files did what they should on a job."""
        for file in files:
            if file in self._records:
                self._records[file] = _Record()

    def failed(self, file: str, job: Hashable, owner: str) -> bool:
        """The file has failed on this job; whether that was once too often."""
        record = self._records.get(file)
        if record is None:
            return False
        jobs = record.failed_on
        jobs[job] = owner
        while len(jobs) > MOST_REMEMBERED:  # one owner's jobs can go on for ever: any of them tells of him
            del jobs[next(iter(jobs))]
        return len(jobs) >= ENOUGH and len(set(jobs.values())) > 1

    def fails_for_one(self, file: str) -> bool:
        """Whether it failed ENOUGH times in a row, on jobs of one owner alone."""
        record = self._records.get(file)
        return record is not None and len(record.failed_on) >= ENOUGH and len(set(record.failed_on.values())) == 1
