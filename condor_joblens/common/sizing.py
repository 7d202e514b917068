"""What JobLens costs a pool, by the figures that docs/sizing.md explains. The page's tables are tested against this."""

from __future__ import annotations

import math
from dataclasses import dataclass

STARTER_INTERVAL = 75
"""STARTER_UPDATE_INTERVAL of our snippet, seconds: it suits RUNNING_JOBS jobs an access point."""

SHADOW_INTERVAL = 15
"""SHADOW_QUEUE_UPDATE_INTERVAL of our snippet, seconds."""

HTCONDORS_STARTER_INTERVAL, HTCONDORS_SHADOW_INTERVAL = 300, 900
"""The same where nobody sets them."""

RUNNING_JOBS = 1000

_SCHEDD_SECONDS, _SHADOW_SECONDS, _LOG_BYTES = 0.0009, 0.0015, 1100
"""What an update of the job queue costs."""

_OWN_LOG_BYTES = 500
"""Of an update without JobLensUsage."""


@dataclass(frozen=True)
class AccessPointLoad:
    """What the updates of the job queue cost an access point."""

    updates_per_second: float
    schedd_cores: float
    shadow_cores: float  # of all shadows together
    log_bytes_per_hour: float  # job_queue.log


def access_point_load(
    running_jobs: float, starter_interval: float, shadow_interval: float, with_joblens: bool = True
) -> AccessPointLoad:
    """The load of so many running jobs; intervals in seconds. The slower of the two sets the pace."""
    updates = running_jobs / max(starter_interval, shadow_interval, 1.0)
    log_bytes = _LOG_BYTES if with_joblens else _OWN_LOG_BYTES
    return AccessPointLoad(updates, _SCHEDD_SECONDS * updates, _SHADOW_SECONDS * updates, log_bytes * 3600 * updates)


def suits(load: AccessPointLoad) -> bool:
    """Whether the load is none above that of RUNNING_JOBS jobs with the intervals of our snippets."""
    return load.updates_per_second <= RUNNING_JOBS / STARTER_INTERVAL


def starter_interval(running_jobs: float) -> int:
    """STARTER_UPDATE_INTERVAL in seconds, so that the load is never above that of RUNNING_JOBS at our snippet's."""
    return max(STARTER_INTERVAL, math.ceil(STARTER_INTERVAL * running_jobs / RUNNING_JOBS))


def seconds_between_slot_ads(slots: float) -> float:
    """The tempo of a node's slot ads that costs its startd 0.6 % of a core."""
    cost = 0.018 * math.pow(slots / 200, 1.3)  # seconds an ad, as measured from 64 to 200 slots that all show one
    return cost / 0.006


def slot_ad_age(slots: int, period: float) -> float:
    """Seconds after which a slot's ad is refreshed, if each is to be every `period` (JOBLENS_SLOT_AD_PERIOD)."""
    return max(period, slots * seconds_between_slot_ads(slots))


def io_bytes(jobs: int, cpus: int) -> int:
    """Bytes in the kernel of level io, for JOBLENS_MAX_JOBS_IO jobs; without the mount table, 1.2 MB at most."""
    return jobs * (1728 * cpus + 99_800) + 4200 * cpus
