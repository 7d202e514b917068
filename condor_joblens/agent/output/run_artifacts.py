"""Artifacts of runs: kept for whoever may read them, announced by an event, and deleted when they are old."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable

from condor_joblens.agent.node import Node
from condor_joblens.agent.output.emit_events import EventEmitter
from condor_joblens.common.config import Config
from condor_joblens.jobs.sandbox import job_uid
from condor_joblens.model.metrics import cut, text
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactRefused, ArtifactWriter

LARGEST = 4 << 20
"""Bytes of one artifact."""

MOST_IN_MEMORY = 64 << 20
"""Bytes of all artifacts, if they are not on a disk."""

_DAY = 86400.0


def limits(config: Config, folder: str) -> ArtifactLimits:
    """The bounds that the configuration sets for artifacts in that folder."""
    is_in_memory = os.path.commonpath((config.run_dir, folder)) == config.run_dir
    total = min(config.artifact_bytes, MOST_IN_MEMORY) if is_in_memory else config.artifact_bytes
    return ArtifactLimits(LARGEST, total, config.artifact_days * _DAY)


class RunArtifacts:
    """Keeps artifacts in the store, and announces each."""

    def __init__(self, node: Node, events: EventEmitter, store: ArtifactWriter) -> None:
        self._node, self._events = node, events
        self.store = store

    def tell_raised(self, run_number: int, pid: int, words: str) -> None:
        """Tells of an exception of a run, whose traceback is kept."""
        self._events.raised(run_number, pid, words)

    def keep(
        self,
        run: int,
        kind: str,
        pieces: Iterable[bytes],
        *,
        content_type: str,
        begun: float,
        ended: float,
        content_encoding: str = "",
    ) -> Artifact | None:
        """Keeps an artifact of the run and announces it. None if it is refused, which an event of loss declares.

        `begun`, `ended`: of the time that it shows, epoch seconds; `content_encoding`: gzip, or empty. An OSError that
        `pieces` raise costs the artifact; anything else that they raise is raised.
        """
        about = dataclasses.replace(
            self.about(run),
            kind=kind,
            content_type=content_type,
            content_encoding=content_encoding,
            begun=begun,
            ended=ended,
        )
        return self.keep_about(about, pieces)

    def about(self, run: int) -> Artifact:
        """What every artifact of the run says of the run; what it says of itself is left open."""
        node = self._node
        row = node.runs.rows[run]
        return Artifact(
            kind="",
            content_type="",
            run_number=int(row["run_number"]),
            begun=0.0,
            ended=0.0,
            node=os.uname().nodename,
            uid=job_uid(node.handles[run].sandbox),
            run=text(row["run"]),
            owner=text(row["owner"]),
            slot=text(row["slot"]),
            sinks=text(row["sinks"]),
            claimed_run=text(node.handles[run].own_name),
            claimed_owner=node.handles[run].own_owner,
        )

    def say_hottest(self, run_number: int, hottest: str) -> None:
        """Puts it into the row of a run that is not over."""
        runs = self._node.runs
        living = runs.living()
        for run in living[runs.rows["run_number"][living] == run_number]:
            runs.rows["profile_hottest"][run] = cut(hottest, "profile_hottest")

    def keep_about(self, about: Artifact, pieces: Iterable[bytes], *, is_new: bool = True) -> Artifact | None:
        """Keeps an artifact whose run may be over by now; as `keep` does. It is announced if what it shows is new."""
        try:
            stored = self.store.add(about, pieces)
        except (ArtifactRefused, OSError) as error:
            self._node.log_once(f"an artifact of kind {about.kind} of {about.run} is not kept: {error}")
            if is_new:
                self._events.artifact_lost(about, str(error))
            return None
        if is_new:
            self._events.artifact_kept(stored)
        return stored
