"""Parts of a run's profile that nobody has seen: they have no stack, and say from when until when that was.

What counts samples makes the parts of a profile, and declares in the next one what it has not seen. If there is none
any more, as of a job that has ended meanwhile, joblensd declares it so.
"""

from __future__ import annotations

import numpy as np

from condor_joblens.profiles import pprof, segment
from condor_joblens.profiles.profile import Profile, View
from condor_joblens.tracer import map_layout

UNKNOWN = np.zeros((), map_layout.SAMPLED).tobytes()
"""What the kernel has counted, if nobody knows."""


def of(begun: float, ended: float, before: bytes = UNKNOWN, after: bytes = UNKNOWN) -> list[tuple[bool, bytes]]:
    """Two parts from `begun` to `ended` (Unix time), and whether each is of what has waited.

    `before` and `after` are what the kernel had counted then (struct sampled). What is between is lost.
    """
    first, last = (np.frombuffer(each, map_layout.SAMPLED)[0] for each in (before, after))
    grown = {name: max(0, int(last[name]) - int(first[name])) for name in ("samples", "not_ours", "waits", "waited_ns")}
    parts = (
        Profile(begun, ended, lost=max(0, grown["samples"] - grown["not_ours"]), not_ours=grown["not_ours"]),
        Profile(begun, ended, view=View.OFF_CPU, lost=grown["waited_ns"], waits=grown["waits"]),
    )
    for part in parts:
        part.unseen = ((begun, ended),)
    return [(part.view is View.OFF_CPU, segment.joined("", pprof.encode(part))) for part in parts]
