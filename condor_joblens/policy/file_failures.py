"""Which policy files fail by their own fault, and when that is enough to set one aside."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

ENOUGH = 3
"""Failures in a row, on different jobs."""


@dataclass
class _Record:
    worked: bool = False  # on some job, since it was loaded
    failed_on: dict[Hashable, str] = field(default_factory=dict)  # job -> its owner, since it last worked


class Faults:
    """Counts the failures of each file in a row.

    A file that fails on three jobs in a row is at fault itself. But a user who knows a policy can submit jobs that make
    it fail, and must not remove it for everybody. So once a file has worked on any job, jobs of more than one owner
    must have made it fail.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self._records = {file: _Record() for file in files}

    def worked(self, files: Iterable[str]) -> None:
        """These files did what they should on a job."""
        for file in files:
            if file in self._records:
                self._records[file] = _Record(worked=True)

    def failed(self, file: str, job: Hashable, owner: str) -> bool:
        """The file has failed on this job; whether that was once too often."""
        record = self._records.get(file)
        if record is None:
            return False
        record.failed_on[job] = owner
        owners = set(record.failed_on.values())
        return len(record.failed_on) >= ENOUGH and (len(owners) > 1 or not record.worked)
