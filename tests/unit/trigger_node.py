"""A node of joblensd with triggers, and the real child that asks them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.triggers.feed import Triggers
from condor_joblens.common import readiness
from condor_joblens.model.events import EVENT, EventKind

PATIENCE = 120.0


class TriggerNode:
    """What joblensd's loop does with triggers, by hand."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **knobs: Any) -> None:
        self.made: Made = make(tmp_path, monkeypatch, **knobs)
        self.events: list[np.ndarray] = []
        self.made.agent.output.events.ring.append = lambda events: self.events.append(events.copy())  # type: ignore[assignment]
        self.triggers: Triggers = self.made.agent.triggers
        self._descriptor = self.triggers.open(None, None)

    def load(self, *files: tuple[str, str], waits: bool = True) -> None:
        """Loads (name, text), and waits for the child."""
        self.triggers.load(list(files))
        if waits:
            self.until(lambda: self.client.loaded is not None)

    @property
    def client(self) -> Any:
        return self.triggers._client

    def happen(self, run: int, kind: EventKind, count: int = 1, **fields: Any) -> None:
        """Something happens in a run."""
        event: np.ndarray = np.zeros(count, EVENT)
        event["kind"], event["time"], event["pid"] = kind, time.time(), 4711
        event["run_number"] = self.made.node.runs.rows["run_number"][run]
        for name, value in fields.items():
            event[name] = value
        self.made.agent.output.events.append(event)

    def until(self, is_so: Callable[[], object]) -> None:
        """Serves the child until something is so."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < deadline, (self.made.log, self.client.loaded)
            readiness.readable([self._descriptor], 0.01)
            self.triggers.receive()
            self.triggers.expire(time.monotonic())

    def settle(self) -> None:
        """Until the child has answered all that it was asked."""
        self.until(lambda: not self.client._batches)

    def note(self, run: int) -> str:
        return str(self.made.node.runs.rows["note"][run].decode())

    def sent(self) -> list[tuple[str, str, int]]:
        """Events of triggers: file, text and whether it is to be mailed."""
        found = [event for batch in self.events for event in batch if event["kind"] == EventKind.TRIGGER]
        return [(event["program"].decode(), event["text"].decode(), int(event["value"])) for event in found]
