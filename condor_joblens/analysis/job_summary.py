"""One job in the few numbers by which many are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class JobState(Enum):
    """What became of a job, from the access point's side."""

    IDLE = "idle"
    RUNNING = "running"
    HELD = "held"
    WELL = "ended well"
    FAILED = "failed"
    REMOVED = "removed"


@dataclass(frozen=True)
class Measure:
    """A number by which jobs are compared."""

    name: str
    words: str  # how a person calls it
    unit: str  # seconds, bytes of memory, bytes, or share (of 1)
    least_difference: float  # in the unit: less is no news, whatever the statistics say
    small_is_bad: bool = False


MEASURES = (
    Measure("wall_seconds", "wall time", "seconds", 60.0),
    Measure("cpu_efficiency", "CPU efficiency", "share", 0.1, small_is_bad=True),
    Measure("memory_peak_bytes", "peak memory", "memory", 64 << 20),
    Measure("read_bytes", "bytes read", "bytes", 100e6),
    Measure("written_bytes", "bytes written", "bytes", 100e6),
    Measure("network_bytes", "bytes over TCP", "bytes", 100e6),
    Measure("disk_bytes", "disk", "bytes", 100e6),
    Measure("wait_share", "waits for files, locks and network", "share", 0.1),
)
"""All that is compared. Each number is absent if it is not known of a job."""


@dataclass(frozen=True)
class JobSummary:
    """One job: who it is, what became of it, and its numbers."""

    job: str  # 5.17
    state: JobState
    cause: str = ""  # why it failed, was held or removed, in words
    program: str = ""  # the executable's name
    owner: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)  # by the names of MEASURES
    waits: Mapping[str, float] = field(default_factory=dict)  # what its threads' time went to, seconds by name
    requested: Mapping[str, float] = field(default_factory=dict)  # cpus; memory and disk in bytes
    used_cpus: float | None = None  # cores on average
    watched: bool = True  # whether it has numbers of JobLens's
    first_failure: str = ""  # what failed in a job that ended well, in words

    @property
    def cluster(self) -> str:
        """The part of the id before the dot."""
        return self.job.partition(".")[0]

    @property
    def ended(self) -> bool:
        """Whether its program ran to an end of its own."""
        return self.state in (JobState.WELL, JobState.FAILED)


def id_order(job: str) -> tuple[int, int]:
    """A key that puts 5.9 before 5.10."""
    cluster, _, process = job.partition(".")
    return int(cluster) if cluster.isdecimal() else 0, int(process) if process.isdecimal() else 0
