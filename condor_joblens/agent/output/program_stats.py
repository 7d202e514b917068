"""A file with joblensd's version and knobs, its BPF programs and their cost, for `joblens doctor` and the exporter."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from condor_joblens import __version__
from condor_joblens.agent.node import Node
from condor_joblens.common import files
from condor_joblens.shm.artifacts import ArtifactWriter

NAME = "attached"
EVERY = 10.0
"""Seconds between two looks at what the programs cost; the list of programs is checked in each round."""

UNKNOWN = "unknown"
"""The level of a program that joblensd does not know, as when what loads programs is of another version."""


class ProgramStats:
    """Writes the file, and remembers what is in it."""

    def __init__(self, node: Node, artifacts: ArtifactWriter) -> None:
        self._node, self._artifacts = node, artifacts
        self._written: tuple[object, ...] | None = None  # programs, missing parts, knobs
        self.next_costs = 0.0  # CLOCK_MONOTONIC

    def publish(self) -> None:
        """Writes the file again if something has changed. A failure costs this file only."""
        tracer, now = self._node.tracer, time.monotonic()
        programs = tuple(tracer.attached())
        found = (programs, tuple(tracer.missing), tuple(sorted(self._node.knobs.items())))
        if self._written == found and now < self.next_costs:
            return
        self._written, self.next_costs = found, now + EVERY
        costs, levels = tracer.programs_cost(), tracer.levels_of_programs()
        facts = {
            "Version": __version__,
            "Knobs": self._node.knobs,
            "Source": tracer.source.decode(),
            "Note": tracer.note,
            "Programs": [_program(name, levels.get(name, UNKNOWN), *costs.get(name, (0.0, 0))) for name in programs],
            "Missing": tracer.missing,
            **_artifacts(self._artifacts),
        }
        path = os.path.join(self._node.config.run_dir, NAME)
        with contextlib.suppress(OSError):
            files.write(path, json.dumps(facts).encode())

    def remove(self) -> None:
        """Deletes the file: no program is attached any more."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._node.config.run_dir, NAME))


def _artifacts(store: ArtifactWriter) -> dict[str, Any]:
    """What became of artifacts since joblensd started; nothing if there were none."""
    if not (store.written or store.refused or store.deleted or store.stored_bytes):
        return {}
    counts = {"Written": store.written, "Refused": dict(store.refused), "Deleted": dict(store.deleted)}
    return {"Artifacts": {"Kept": store.count, "Bytes": store.stored_bytes, **counts}}


def _program(name: str, level: str, seconds: float, runs: int) -> dict[str, Any]:
    """Seconds and runs count only while the kernel's statistics of programs are on (kernel.bpf_stats_enabled)."""
    return {"Name": name, "Level": level, "Seconds": seconds, "Runs": runs}
