"""Profiles of runs: a part a minute, which is kept as an artifact. Of each run there is room for so much.

Beyond that older parts that follow each other become one: a long job keeps its whole life, with less detail in time.
The last part of a run comes when the run is over, so what its artifacts say of it is remembered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence

from condor_joblens.agent.output import unseen_parts
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.common.errors import JobLensError
from condor_joblens.profiles import crash, pprof
from condor_joblens.profiles.segment import hottest_of
from condor_joblens.shm.artifact_header import HEADER_BYTES, Artifact
from condor_joblens.shm.artifacts import ArtifactReader, StoredArtifact, in_pages

KIND, OFF_CPU_KIND = "profile", "off_cpu"
CRASH = "crash"

MOST_BYTES = 4 << 20
"""Of all parts of one run, in whole pages; beyond that the oldest go, if they could not be made fewer."""

PLENTY_BYTES, PLENTY_PARTS = 3 << 20, 64
"""Of one run: beyond either, two parts become one, of which there is room for another. A part takes 1 MiB at most."""

MOST_CRASHES = 16
"""Of one run: the first one, and the last ones."""

_REMEMBERED = 2000
"""Runs whose last part may still come."""


Merge = Callable[[int, list[int], int, Callable[[bytes], object]], object]
"""Makes one of two files of a run, as agent.profiles.Profiles does."""


class RunProfiles:
    """What becomes of the parts of profiles. joblensd looks into none of them."""

    def __init__(self, artifacts: RunArtifacts, merge: Merge | None = None) -> None:
        """Without `merge` the oldest parts go."""
        self._artifacts = artifacts
        self.merge = merge
        self._merging: set[int] = set()  # numbers of runs
        self._about: OrderedDict[int, Artifact] = OrderedDict()  # by run number

    def begin(self, run: int) -> None:
        """The run is sampled from now on."""
        self._remember(self._artifacts.about(run))

    def declare_unseen(self, run: int, begun: float, ended: float) -> None:
        """Keeps that nobody has seen what the run did from `begun` to `ended` (Unix time).

        Its folder may be gone. Whose it was is then known from the parts that were kept before.
        """
        about = self._artifacts.about(run)
        if about.uid is None:
            uid = next((stored.uid for stored in self.parts(about) if stored.uid is not None), None)
            about = dataclasses.replace(about, uid=uid)
        self._remember(about)
        for is_off_cpu, part in unseen_parts.of(begun, ended):
            self.keep(about.run_number, begun, ended, part, is_off_cpu)

    def _remember(self, about: Artifact) -> None:
        self._about[about.run_number] = about
        self._about.move_to_end(about.run_number)
        if len(self._about) > _REMEMBERED:
            self._about.popitem(last=False)

    def keep(self, run_number: int, begun: float, ended: float, data: bytes, is_off_cpu: bool = False) -> bool:
        """Keeps a part, from `begun` to `ended` (Unix time), as its reader has made it; false if there is no room.

        The run's row says what is hottest on the CPU until now. Raises ValueError.
        """
        hottest = hottest_of(data)
        about = self._about.get(run_number)
        if about is None:
            return True  # of a run before joblensd's own start
        if hottest and not is_off_cpu:
            self._artifacts.say_hottest(run_number, hottest)
        kind = OFF_CPU_KIND if is_off_cpu else KIND
        about = dataclasses.replace(about, kind=kind, content_type=pprof.CONTENT_TYPE, begun=begun, ended=ended)
        self._make_room(about, in_pages(HEADER_BYTES + len(data)))
        is_kept = self._artifacts.keep_about(about, [data]) is not None
        self._merge_if_plenty(about)
        return is_kept

    def parts(self, about: Artifact, kinds: Sequence[str] = (KIND, OFF_CPU_KIND)) -> list[StoredArtifact]:
        """Those that are kept of the run, by their time. Numbers of runs begin anew when the machine boots."""
        found = self._artifacts.store.stored(about.run_number)
        ends = tuple(f".{kind}" for kind in kinds)
        mine = [stored for stored in found if stored.run == about.run and stored.name.endswith(ends)]
        return sorted(mine, key=lambda stored: (stored.begun, stored.ended))

    def keep_crash(self, run_number: int, when: float, data: bytes) -> None:
        """Keeps the stack of a crash (Unix time), as its reader has made it."""
        about = self._about.get(run_number)
        if about is None:
            return
        crashes = self.parts(about, [CRASH])
        if len(crashes) >= MOST_CRASHES:
            self._artifacts.store.delete(crashes[1].name)
        about = dataclasses.replace(about, kind=CRASH, content_type=crash.CONTENT_TYPE, begun=when, ended=when)
        self._artifacts.keep_about(about, [data])

    def open_parts(self, run_number: int) -> list[int]:
        """Descriptors of those that show what ran on a CPU, by their time; they are the caller's to close."""
        about, reader, opened = self._about.get(run_number), ArtifactReader(self._artifacts.store.folder), []
        for stored in self.parts(about, [KIND]) if about is not None else []:
            with contextlib.suppress(JobLensError, OSError), reader.open(stored.name) as (_, descriptor):
                opened.append(os.dup(descriptor))
        return opened

    def _make_room(self, about: Artifact, size: int) -> None:
        parts = self.parts(about)
        total = size + sum(stored.size for stored in parts)
        for stored in parts:
            if total <= MOST_BYTES:
                return
            self._artifacts.store.delete(stored.name)
            total -= stored.size

    def _merge_if_plenty(self, about: Artifact) -> None:
        parts = self.parts(about, [about.kind])
        is_plenty = sum(stored.size for stored in self.parts(about)) > PLENTY_BYTES or len(parts) > PLENTY_PARTS
        if self.merge is None or not is_plenty or len(parts) < 2 or about.run_number in self._merging:
            return
        first, second = to_merge(parts)
        reader = ArtifactReader(self._artifacts.store.folder)
        with (
            contextlib.suppress(JobLensError, OSError),
            reader.open(first.name) as (_, one),
            reader.open(second.name) as (_, other),
        ):
            self._merging.add(about.run_number)
            self.merge(
                about.run_number, [one, other], HEADER_BYTES, lambda data: self._merged(about, first, second, data)
            )

    def _merged(self, about: Artifact, first: StoredArtifact, second: StoredArtifact, data: bytes) -> None:
        """Raises ValueError."""
        self._merging.discard(about.run_number)
        if not data:
            return  # the next part tries again
        hottest_of(data)
        if first not in self.parts(about) or second not in self.parts(about):
            return  # deleted meanwhile: the user's room was needed
        about = dataclasses.replace(about, begun=first.begun, ended=max(first.ended, second.ended))
        if self._artifacts.keep_about(about, [data], is_new=False) is None:
            return
        for stored in (first, second):
            self._artifacts.store.delete(stored.name)
        self._merge_if_plenty(about)


def to_merge(parts: Sequence[StoredArtifact]) -> tuple[StoredArtifact, StoredArtifact]:
    """Which two of at least two parts, in the order of their times, become one: of the older half the shortest two."""
    older = parts[: max(2, len(parts) // 2)]
    return min(zip(older, older[1:]), key=lambda pair: pair[1].ended - pair[0].begun)
