"""Profiles of runs: a part a minute, which is kept as an artifact. Of each run there is room for so much.

The last part of a run comes when the run is over, so what its artifacts say of it is remembered.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.profiles import pprof
from condor_joblens.profiles.segment import hottest_of
from condor_joblens.shm.artifact_header import HEADER_BYTES, Artifact
from condor_joblens.shm.artifacts import in_pages

KIND = "profile"

MOST_BYTES = 4 << 20
"""Of all parts of one run, in whole pages; beyond that the oldest go."""

_REMEMBERED = 2000
"""Runs whose last part may still come."""


class RunProfiles:
    """What becomes of the parts of profiles. joblensd looks into none of them."""

    def __init__(self, artifacts: RunArtifacts) -> None:
        self._artifacts = artifacts
        self._about: OrderedDict[int, Artifact] = OrderedDict()  # by run number

    def begin(self, run: int) -> None:
        """The run is sampled from now on."""
        about = self._artifacts.about(run)
        self._about[about.run_number] = about
        self._about.move_to_end(about.run_number)
        if len(self._about) > _REMEMBERED:
            self._about.popitem(last=False)

    def keep(self, run_number: int, begun: float, ended: float, data: bytes) -> None:
        """Keeps a part, from `begun` to `ended` (Unix time), as its reader has made it.

        The run's row says what is hottest until now. Raises ValueError.
        """
        hottest = hottest_of(data)
        about = self._about.get(run_number)
        if about is None:
            return  # of a run before joblensd's own start
        self._artifacts.say_hottest(run_number, hottest)
        about = dataclasses.replace(about, kind=KIND, content_type=pprof.CONTENT_TYPE, begun=begun, ended=ended)
        self._make_room(run_number, in_pages(HEADER_BYTES + len(data)))
        self._artifacts.keep_about(about, [data])

    def _make_room(self, run_number: int, size: int) -> None:
        store = self._artifacts.store
        parts = [stored for stored in store.stored(run_number) if stored.name.endswith(f".{KIND}")]
        total = size + sum(stored.size for stored in parts)
        for stored in parts:
            if total <= MOST_BYTES:
                return
            store.delete(stored.name)
            total -= stored.size
