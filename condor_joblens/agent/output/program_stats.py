"""What is in the kernel for us now, in a file for whoever asks: `joblens doctor` and the exporter."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from condor_joblens.agent.node import Node

NAME = "attached"
EVERY = 10.0
"""Seconds between two looks at what the programs cost; what is attached is looked at in each round."""


def publish(node: Node) -> None:
    """Writes the file anew where something has changed. What fails costs only this."""
    tracer, now = node.tracer, time.monotonic()
    programs = tuple(tracer.attached())
    same = node.attached == (programs, tuple(tracer.missing))
    if same and now < node.next_costs:
        return
    node.attached, node.next_costs = (programs, tuple(tracer.missing)), now + EVERY
    costs, levels = tracer.programs_cost(), tracer.levels_of_programs()
    facts = {
        "Source": tracer.source.decode(),
        "Note": tracer.note,
        "Programs": [_program(name, levels[name], *costs.get(name, (0.0, 0))) for name in programs],
        "Missing": tracer.missing,
        **_artifacts(node),
    }
    path = os.path.join(node.config.run_dir, NAME)
    with contextlib.suppress(OSError):
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(facts, file)
        os.replace(f"{path}.new", path)


def _artifacts(node: Node) -> dict[str, Any]:
    """What became of artifacts since joblensd started; nothing if there were none."""
    store = node.artifacts
    if not (store.written or store.refused or store.deleted or store.kept_bytes):
        return {}
    counts = {"Written": store.written, "Refused": dict(store.refused), "Deleted": dict(store.deleted)}
    return {"Artifacts": {"Kept": store.count, "Bytes": store.kept_bytes, **counts}}


def _program(name: str, level: str, seconds: float, runs: int) -> dict[str, Any]:
    """Seconds and runs count only while the kernel's statistics of programs are on (kernel.bpf_stats_enabled)."""
    return {"Name": name, "Level": level, "Seconds": seconds, "Runs": runs}
