"""What a channel's threads hand to each other: records, with the mark that says how far they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.export.cursor import Cursor
from condor_joblens.export.spool import Frame
from condor_joblens.sinks import Record


@dataclass
class Mark:
    """Up to where the cursor moves once the records before it are safe, and what is lost before there.

    A loss is counted with the move: a process that is killed before leaves both to the next one.
    """

    event: tuple[int, int] | None = None
    samples: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # keys, places, sequences
    finals: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    profile: tuple[int, int, int] | None = None  # as Cursor.profile
    cause: str = ""
    lost: int = 0

    def move(self, cursor: Cursor) -> None:
        """The records before it are safe."""
        if self.lost:
            cursor.lose(self.cause, self.lost)
        if self.event is not None:
            cursor.set_event(*self.event)
        if self.samples is not None:
            cursor.set_runs("sample", *self.samples)
        if self.finals is not None:
            cursor.set_runs("final", *self.finals)
        if self.profile is not None:
            cursor.set_profile(*self.profile)


@dataclass
class QueuedRecords:
    """Records that came together."""

    records: Sequence[Record]
    mark: Mark | None
    since: float  # CLOCK_MONOTONIC
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(record.json) for record in self.records)


@dataclass
class Batch:
    """What the sink's thread has taken, and hands on until all of it is confirmed or refused."""

    records: list[Record]  # those that are neither: another list, each time there are fewer
    marks: list[Mark]
    since: float
    frame: Frame | None  # where it is in the spool, if it is there
    tells: bool = False  # of losses, in its first records

    @property
    def only_in_memory(self) -> bool:
        """Whether something of it is lost where the process is killed."""
        return self.frame is None and bool(self.records or self.marks)


@dataclass
class HeldBySpooler:
    """What the spooler has in its hands: the sink's batch, or groups of queued records."""

    records: list[Record]
    batch: Batch | None = None
    queued: list[QueuedRecords] = field(default_factory=list)
