"""A node of joblensd without a kernel: the table of runs is real, what is below it is made up."""

from __future__ import annotations

import dataclasses
import os
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import apply_level
from condor_joblens.agent.levels.level_state import Levels, PolicyInput
from condor_joblens.agent.node import Handles, Node
from condor_joblens.agent.output.job_ads import JobAds
from condor_joblens.agent.output.output_state import Output
from condor_joblens.common.config import Config
from condor_joblens.jobs.run_table import Runs
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.jobs.saved_ads import SavedAds
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import cut
from condor_joblens.owner_files.operations import Operations
from condor_joblens.policy.policy_answers import ActivationRequest, PolicyAnswer
from condor_joblens.policy.slot_attributes import SlotAttributes
from condor_joblens.shm.history import HistoryWriter

OWNER = 1000


class Policies:
    """The policy child, as far as joblensd sees it: a test says what it answers."""

    def __init__(self) -> None:
        self.idle = True
        self.lives = 1
        self.kept: set[str] = set()
        self.aside: dict[str, str] = {}
        self.submitted: list[tuple[str, ActivationRequest]] = []
        self.rounds: list[tuple[list[str], bytes, float]] = []
        self.answers: list[tuple[str, PolicyAnswer]] = []

    def knows(self, key: str) -> bool:
        return key in self.kept

    def submit(self, key: str, request: ActivationRequest) -> None:
        self.submitted.append((key, request))

    def ask_again(
        self, keys: Sequence[str], numbers: bytes, now: float, request: ActivationRequest, share: float
    ) -> None:
        self.rounds.append((list(keys), numbers, share))

    def forget(self, key: str) -> None:
        self.kept.discard(key)

    def receive(self) -> list[tuple[str, PolicyAnswer]]:
        answers, self.answers = self.answers, []
        return answers


@dataclasses.dataclass
class Made:
    """An agent, and what was done to it."""

    agent: Agent
    policies: Policies
    log: list[str]

    @property
    def node(self) -> Node:
        return self.agent.node

    @property
    def levels(self) -> Levels:
        return self.agent.levels

    def begin(self, job: str = "1.0", level: Level = Level.BASIC, cap: Level = Level.TRACE, age: float = 1000) -> int:
        """A run that the policies have decided about."""
        node = self.node
        run = node.runs.add(100 + len(node.handles))
        assert run is not None
        row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
        row["run_number"], row["job_id"], row["slot"] = run + 1, cut(job, "job_id"), cut(f"slot1_{run + 1}", "slot")
        row["owner"], row["run"], row["period_seconds"] = b"alice", cut(f"ap#{job}#1#1", "run"), node.config.period
        row["level"], row["level_number"] = level.word.encode(), level
        state["named"], state["policy_level"], state["policy_cap"] = True, level, cap
        state["target_level"] = level
        state["policy_rule"], state["policy_reason"] = b"rule", b"because"
        state["began"] = state["idle_since"] = time.monotonic() - age
        sandbox = MagicMock(spec=JobSandbox, scratch_uid=OWNER, is_users=False)
        sandbox.update_ad.return_value = sandbox.machine_ad.return_value = None
        node.handles[run] = Handles("/nowhere", MagicMock(), sandbox=sandbox)
        self.levels.inputs[run] = PolicyInput(is_decided=True)
        return run

    def level(self, run: int) -> Level:
        """How closely it is watched."""
        return Level(int(self.node.runs.rows["level_number"][run]))


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **knobs: Any) -> Made:
    """A node with these knobs; a level changes in its row alone, and ads are not written."""

    def set_level(levels: Levels, run: int, level: Level) -> None:
        rows, state = levels.node.runs.rows, levels.node.runs.state
        if rows["level_number"][run] != level:
            state["level_changed_at"][run] = time.monotonic()
        rows["level"][run], rows["level_number"][run] = level.word.encode(), level

    monkeypatch.setattr(apply_level, "set_level", set_level)
    monkeypatch.setattr(JobAds, "_publish", lambda ads, runs: None)
    log: list[str] = []
    policies: Any = Policies()
    required = {
        field.name: MagicMock()
        for field in dataclasses.fields(Node)
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    real = {
        "config": Config(run_dir=str(tmp_path), **knobs),
        "log": log.append,
        "runs": Runs(str(tmp_path / "slots.state"), 256),
        "files": Operations(),
    }
    node = Node(**{**required, **real})
    node.tracer.lost.return_value = 0  # type: ignore[attr-defined]
    history = HistoryWriter(str(tmp_path / "history"), os.getgid())
    weakref.finalize(history, os.close, history._file)  # a process of joblensd's has one for its whole life
    output = Output(node, MagicMock(), MagicMock(), MagicMock(), MagicMock(), history)
    levels = Levels(node, output, policies, SavedAds(str(tmp_path / "ads")), SlotAttributes())
    return Made(Agent(node, output, levels), policies, log)
