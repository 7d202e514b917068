"""Events that come while the triggers' child is being started: it is asked about them as soon as it is ready.

A child needs a second to start, and many on a node whose cores are all busy. A job's first programs can be over by
then.
"""

from __future__ import annotations

import numpy as np

from condor_joblens.model.events import EVENT
from condor_joblens.policy.trigger_kinds import KINDS

MOST_BYTES = 4 << 20
"""Of events that wait; those beyond are not asked about. The first ones are kept: they are of the jobs' beginnings."""

_WANTABLE = np.array(sorted({int(kind) for kind in KINDS.values()}), "i8")


class EarlyEvents:
    """Keeps events of the kinds that triggers can want, in their order."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray] = []
        self._count = 0

    def keep(self, events: np.ndarray) -> int:
        """Keeps these (EVENT, shape (n,)); how many of them there was no room for."""
        wanted = events[np.isin(events["kind"], _WANTABLE) & (events["run_number"] > 0)]
        room = MOST_BYTES // EVENT.itemsize - self._count
        kept = wanted[:room]
        if len(kept):
            self._kept.append(kept)  # a copy: `events` is used again
            self._count += len(kept)
        return len(wanted) - len(kept)

    def take(self) -> np.ndarray | None:
        """What waits, as one batch, if anything does; nothing waits from now on."""
        kept, self._kept, self._count = self._kept, [], 0
        return np.concatenate(kept) if kept else None
