"""The contract of a sink: what joblens-export hands its records to. docs/sinks.md has an example to install.

A sink is a class, found by the entry point group `condor_joblens.sinks` and started where JOBLENS_SINKS names it. All
around it (a thread of its own, a bounded queue, the spool on disk, backing off, counting) is the exporter's work.
"""

from __future__ import annotations

import enum
import json
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

import numpy as np

from condor_joblens.common import listening
from condor_joblens.common.errors import JobLensError

Rows = Callable[[], "tuple[np.ndarray, float]"]
"""Gives a copy of all rows (metrics.ROW), shape (n,), and when they were taken, epoch seconds; from any thread.

Raises JobLensError where there are none, or none that are fresh.
"""


class RecordKind(enum.Enum):
    """Kinds of records."""

    SAMPLE = "sample"  # what a run has used so far, once a period
    EVENT = "event"  # what happened: events.EventKind, and what was lost on the way here
    JOB = "job"  # the last numbers of a run
    HEALTH = "health"  # how the exporter and its sinks do, once a minute
    PROFILE = "profile"  # where a run at level profile spent its time, once a minute


USUAL = frozenset(RecordKind) - {RecordKind.PROFILE}
"""What a sink takes that says nothing else: profiles name functions and files of jobs, so they are asked for."""


CAUSES = ("overflow", "age", "corrupt", "disk", "overrun", "unseen", "unread")
"""Why a record never came to a sink. In the spool: no room in it, too old, damaged; the disk did not take it. Before
it: events that were overwritten in the ring, and samples that were replaced, before the exporter saw them. Last, what a
sink's thread left in memory."""

ENDPOINTS, SERVERS = "Endpoints", "Servers"
"""What a record calls the lists of a run's endpoints and file servers."""


@dataclass(frozen=True)
class Record:
    """One record. docs/schema has the JSON Schema of each kind."""

    kind: RecordKind
    id: str  # the same whenever the same record is delivered again, and no other's
    key: str  # what keeps its order: the GlobalJobId; the node's name where there is no job
    time: float  # epoch seconds
    json: bytes  # an object in a line of ASCII, without its end
    sinks: frozenset[str] = frozenset()  # the only ones it goes to; empty: all
    row: Optional[np.void] = field(default=None, compare=False, repr=False)  # what it was made of: metrics.ROW

    def fields(self) -> dict[str, Any]:
        """The same as a dictionary: {"Type": "sample", "Id": ..., "Run": ..., "Cpu": {"Seconds": ...}, ...}."""
        found: dict[str, Any] = json.loads(self.json)
        return found


@dataclass(frozen=True)
class DeliveryResult:
    """What became of a batch: a record that is named in neither was *delivered*: the backend confirmed it."""

    retry: Sequence[int] = ()  # positions that were not confirmed; they are handed in again, in order
    refused: Mapping[int, str] = field(default_factory=dict)  # position -> why the backend will never take it
    reason: str = ""  # for the log: why there is something in `retry`
    after: float = 0.0  # seconds that the backend wants to be left alone


DELIVERED = DeliveryResult()


def not_now(batch: Sequence[Record], reason: str, after: float = 0.0) -> DeliveryResult:
    """Nothing of the batch was confirmed."""
    return DeliveryResult(range(len(batch)), reason=reason, after=after)


PREFIX = "JOBLENS_SINK_"
"""What the macros of all sinks begin with."""


def macro_of(sink: str, knob: str = "") -> str:
    """JOBLENS_SINK_KAFKA_SERVERS; without a knob what those of one sink begin with."""
    return f"{PREFIX}{sink.upper()}_{knob}"


@dataclass(frozen=True)
class SinkKnob:
    """One setting of a sink: the macro JOBLENS_SINK_<SINK>_<NAME>."""

    name: str  # SERVERS
    default: Optional[str]  # as an administrator would write it; None: there must be a value
    parse: Callable[[str], Any]  # raises ValueError that says what would be right
    unit: str
    help: str
    listens: bool = False  # the value is HOST:PORT of ours: no two sinks may have the same


@dataclass(frozen=True)
class Diagnosis:
    """What `joblens doctor` says of a sink."""

    ok: bool
    text: str
    remedy: str = ""

    @classmethod
    def of(cls, error: JobLensError) -> Diagnosis:
        """What is wrong; its remedy stands behind the last colon, where it has one."""
        text, colon, remedy = str(error).rpartition(": ")
        return cls(False, text, remedy) if colon else cls(False, remedy)


ReadArtifact = Callable[[str], "tuple[Mapping[str, Any], bytes]"]
"""An artifact by its name: its content, and of it `head`, for a record, and `sinks`, the only ones that get it (empty:
all). Raises JobLensError if it is gone."""


def no_artifact(name: str) -> tuple[Mapping[str, Any], bytes]:
    """Where there is no folder of them. Raises JobLensError."""
    raise JobLensError(f"{name} is not there")


@dataclass(frozen=True)
class SinkContext:
    """What a sink can ask of the exporter; all of it from any thread."""

    log: Callable[[str], None]
    rows: Rows  # as they are now
    health: Callable[[], Sequence[Mapping[str, Any]]]  # how each sink does: export.channel.Channel.health
    node: str  # the machine's name, as HTCondor knows it
    kernel_programs: Callable[[], Mapping[str, Any]] = dict  # what joblensd has in the kernel: kernel_programs.py
    unattributed: Callable[[], Mapping[str, Any]] = dict  # what servers were asked for nobody: server_families.py
    # of HTTP pages: HOST:PORT -> a socket that listens there; None while another process, which says why, has none
    listen: Callable[[str], Optional[socket.socket]] = listening.listen
    artifact: ReadArtifact = no_artifact


class Sink:
    """Subclass this. Only `check` and `close` are called from other threads than the sink's own."""

    name: ClassVar[str]  # as JOBLENS_SINKS has it, in small letters
    knobs: ClassVar[tuple[SinkKnob, ...]] = ()
    takes: ClassVar[frozenset[RecordKind]] = USUAL  # none: it only serves what it asks for itself
    batch_records: ClassVar[int] = 2000  # the most it is handed at a time
    selects: ClassVar[bool] = True  # if it takes samples: whether PERIOD and METRICS say which (selection.py)

    def __init__(self, settings: Mapping[str, Any], context: SinkContext) -> None:
        """`settings`: knob's name in small letters -> parsed value. Opens nothing and never waits."""
        self.settings, self.context = settings, context

    @classmethod
    def wanted(cls, settings: Mapping[str, Any]) -> frozenset[RecordKind]:
        """The kinds of records that are handed to a sink with these settings: `takes`, and what a knob adds."""
        return cls.takes

    def start(self) -> None:
        """Once, before anything is delivered. What it raises is logged, and it is called again later."""

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """Returns once the backend has confirmed or refused each record, or it is clear that it won't for now.

        It should return within half a minute. Raising is `not_now`; a record that alone makes it raise, before
        and after the one behind it has gone through, is refused.
        """
        raise NotImplementedError

    def check(self) -> Iterable[Diagnosis]:
        """Tries the backend for `joblens doctor`, on a sink that was made for this alone: never started."""
        return ()

    def close(self, seconds: float) -> None:
        """Ends within so long. `deliver` may be running; what it has not confirmed is the exporter's to keep."""
