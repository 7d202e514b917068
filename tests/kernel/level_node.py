"""As much of joblensd as a level needs, over real programs."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ground import Slot, kernel_node

from condor_joblens.agent import measure
from condor_joblens.agent.levels import apply_level, provisional_io
from condor_joblens.agent.levels.entries import Entries
from condor_joblens.agent.levels.level_state import PolicyInput
from condor_joblens.common.config import Config
from condor_joblens.jobs.run_table import Runs
from condor_joblens.model.levels import Level

FILES = "fs_tmpfs_"
"""Nothing else of a job's is on a tmpfs: entering the cgroup is a write as well."""
UID = 65534
"""Whose jobs they are: nobody's who works here."""


class Node:
    """As much of joblensd as a level needs. Runs that an earlier one has left in `folder` go on."""

    def __init__(self, slots: list[Slot], folder: Path) -> None:
        self.runs = Runs(str(folder / "slots.state"), 32)
        self.said: list[str] = []
        self.node = kernel_node(slots[0].tracer, self.runs, Config())
        self.node.log_once, self.node.update_note = self.said.append, lambda run: None
        events = SimpleNamespace(level_changed=lambda run: None)
        output = SimpleNamespace(events=events)
        self.levels: Any = SimpleNamespace(node=self.node, output=output, inputs={}, entries=Entries())
        for slot in slots:
            run = self.runs.by_cgroup.get(slot.cgroup_id)
            run = self._add(slot) if run is None else run
            self.node.handles[run] = SimpleNamespace(
                notes={}, path="/nowhere", sandbox=SimpleNamespace(scratch_uid=UID)
            )
            self.levels.inputs[run] = PolicyInput()

    def _add(self, slot: Slot) -> int:
        run = self.runs.add(slot.cgroup_id)
        assert run is not None
        row, state = self.runs.rows[run : run + 1], self.runs.state[run : run + 1]
        row["level"], row["level_number"], row["complete"] = b"basic", Level.BASIC, True
        state["kernel_slot"], state["began"] = slot.index, time.monotonic()
        return run

    def level(self, run: int, level: Level) -> None:
        apply_level.set_level(self.levels, run, level)

    def job_starts(self, run: int) -> None:
        """Its wrapper has called."""
        measure.reset(self.node, run)
        provisional_io.job_starts(self.levels, run)

    def take(self) -> None:
        """A round."""
        self.node.tracer.settle()
        measure._collect(self.node, self.runs.living(), at_end=False)

    def files(self, run: int) -> dict[str, int]:
        names = ("read_calls", "write_calls", "read_bytes", "write_bytes")
        return {name: int(self.runs.rows[FILES + name][run]) for name in names}
