"""What to ask for at the next submission, from what jobs of the same kind have used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from condor_joblens.analysis.job_summary import JobState, JobSummary, id_order

FEWEST = 5
"""Jobs that ended well, below which nothing is advised."""

HEADROOM = 1.1
"""Over the greatest that was seen: the next input can be larger."""

FAR_ABOVE = 2.0
"""A greatest value beyond this times the 95th percentile is a case of its own."""

LEAST_SAVING = 0.9
"""Advice that would change a request by less is none."""

_MIB = 1 << 20


@dataclass(frozen=True)
class Advice:
    """One request of the submit file."""

    name: str  # request_memory
    ask: float  # cpus; memory and disk in bytes
    asked: float | None  # the greatest request of these jobs; None: not known
    percentile95: float
    greatest: float
    count: int  # jobs that were looked at
    above: tuple[str, ...]  # jobs that used more than `ask`: cases of their own

    @property
    def changes(self) -> bool:
        """Whether it differs from what was asked for by enough to be worth a change."""
        return self.asked is None or not LEAST_SAVING <= self.ask / self.asked <= 1.0


def advice(jobs: Sequence[JobSummary]) -> list[Advice]:
    """Memory, cores and disk; nothing of what too few jobs tell."""
    well = [job for job in jobs if job.state is JobState.WELL]
    found = []
    for name, request, used in (
        ("request_memory", "memory", [job.numbers.get("memory_peak_bytes") for job in well]),
        ("request_cpus", "cpus", [job.used_cpus for job in well]),
        ("request_disk", "disk", [job.numbers.get("disk_bytes") for job in well]),
    ):
        known = [(job, value) for job, value in zip(well, used) if value is not None]
        if len(known) >= FEWEST:
            found.append(_advise(name, request, known))
    return found


def _advise(name: str, request: str, known: list[tuple[JobSummary, float]]) -> Advice:
    values = np.array([value for _, value in known], "f8")
    high, greatest = float(np.percentile(values, 95)), float(values.max())
    wanted = high if greatest > FAR_ABOVE * high else greatest
    ask = float(max(1, math.ceil(wanted - 0.2))) if name == "request_cpus" else rounded_up(wanted * HEADROOM)
    above = sorted((job.job for job, value in known if value > ask), key=id_order)
    asked = [job.requested[request] for job, _ in known if request in job.requested]
    # a job that uses a little of a second core now and then runs as well on one
    listed = tuple(above) if name != "request_cpus" else ()
    return Advice(name, ask, max(asked, default=None), high, greatest, len(known), listed)


def rounded_up(size: float) -> float:
    """Bytes as a person would ask for them: whole MiB with two digits, `128 MiB`, `1300 MiB`, `2.5 GiB`."""
    mib = max(1, math.ceil(round(size / _MIB, 6)))  # 110.00000001 is 110
    step = 10 ** max(0, len(str(mib)) - 2)
    return float(-(-mib // step) * step * _MIB)
