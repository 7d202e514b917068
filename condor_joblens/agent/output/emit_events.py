"""Events that joblensd itself emits: a run's start, end and death, a new level, and losses."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.metrics import text
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.ring import EventWriter

UNKNOWN_EXIT = -1
"""In `exit_code`, if nobody saw the job's first process end."""


class EventEmitter:
    """Puts events into the shared ring."""

    def __init__(self, node: Node, ring: EventWriter) -> None:
        self._node = node
        self.ring = ring
        self.listener: Callable[[np.ndarray], None] | None = None
        """Is told of all events, before they are read by anybody: triggers."""
        self.wants_processes = False
        """Whether it waits for events of processes."""
        self.wanted_kinds: frozenset[EventKind] = frozenset()
        """Those of TOLD_TO_TRIGGERS that it waits for."""
        self._reported_losses = self._losses_reported_before()

    def append(self, events: np.ndarray) -> None:
        """Publishes these events (EVENT, shape (n,))."""
        self.ring.append(events)
        self.tell_triggers(events)

    def tell_triggers(self, events: np.ndarray) -> None:
        """The same for nobody else: of kinds that are in no ring (TOLD_TO_TRIGGERS)."""
        if self.listener is not None and len(events):
            try:
                self.listener(events)
            except Exception as error:  # nothing of what triggers do is to cost an event, or a run's end
                self._node.failures.log("triggers", "triggers were not told of events", error)

    def run_started(self, run: int) -> None:
        """The run's job is known: from here on its number has a name."""
        row = self._node.runs.rows[run]
        self._emit(run, EventKind.RUN_START, text(row["run"]), program=bytes(row["slot"]))

    def run_ended(self, run: int, exit_code: int = UNKNOWN_EXIT) -> None:
        """The run's first process has ended, or its cgroup is gone."""
        self._emit(run, EventKind.RUN_END, text(self._node.runs.rows["run"][run]), exit_code=exit_code)

    def level_changed(self, run: int) -> None:
        """The run has another level than before."""
        row = self._node.runs.rows[run]
        why = ": ".join(part for part in (text(row["policy"]), text(row["reason"])) if part)
        self._emit(run, EventKind.LEVEL, why, value=int(row["level_number"]))

    def died(self, run: int) -> None:
        """The run has died, and its row says why."""
        self._emit(run, EventKind.DEATH, text(self._node.runs.rows["death"][run]))

    def hang(self, run: int, cause: str) -> None:
        """The run seems to hang; with an empty cause: it does no more."""
        self._emit(run, EventKind.HANG, cause, value=int(bool(cause)))

    def triggered(self, run_number: int, file: str, words: str, mail: bool) -> None:
        """A trigger of this file sends something about a run, which may be over."""
        self._emit(None, EventKind.TRIGGER, words, value=int(mail), program=file.encode(), run_number=run_number)

    def raised(self, run_number: int, pid: int, words: str) -> None:
        """An exception has ended a Python of a run, which may be over."""
        self._emit(None, EventKind.TRACEBACK, words, run_number=run_number, pid=pid)

    def kernel_losses(self) -> None:
        """What the kernel could not count or report since the last call, for the whole node."""
        count = self._node.tracer.lost()
        if count > self._reported_losses:
            self._emit(None, EventKind.LOSS, "in the kernel", value=count - self._reported_losses)
        self._reported_losses = count

    def process_losses(self) -> None:
        """Process events that were lost since the last call. The numbers lack nothing of it."""
        self.share_losses()
        for kind, count in self._node.tracer.new_process_losses().items():
            self._emit(None, EventKind.LOSS, f"{kind} events in the kernel", value=count)

    def share_losses(self) -> None:
        """Process events of runs that had more than JOBLENS_MAX_EVENTS, since the last call."""
        counters, runs = self._node.tracer.counters, self._node.runs
        for slot in np.flatnonzero(counters["events_lost"] != counters["events_declared"]).tolist():
            run, lost = runs.by_cgroup.get(int(counters["cgroup_id"][slot])), int(counters["events_lost"][slot])
            if run is not None:
                new = lost - int(counters["events_declared"][slot])
                self._emit(run, EventKind.LOSS, "process events beyond JOBLENS_MAX_EVENTS", value=new)
                self._node.handles[run].notes["events"] = "more starts and ends of programs than JOBLENS_MAX_EVENTS"
                self._node.update_note(run)
                counters["events_declared"][slot] = lost

    def artifact_kept(self, artifact: Artifact) -> None:
        """The artifact is there for its readers; its run may be over."""
        self._emit(None, EventKind.ARTIFACT, artifact.name, value=artifact.length, run_number=artifact.run_number)

    def artifact_lost(self, artifact: Artifact, reason: str) -> None:
        """An artifact was not kept, for a reason in words; its run may be over."""
        words = f"artifact {artifact.kind}: {reason}"
        self._emit(None, EventKind.LOSS, words, value=1, run_number=artifact.run_number)

    def _losses_reported_before(self) -> int:
        """The kernel's losses that an earlier joblensd has reported; all of them if it left no run behind."""
        runs = self._node.runs.living()
        state, rows = self._node.runs.state, self._node.runs.rows
        reported = int((state["lost_before"][runs] + rows["lost"][runs]).max(initial=-1))
        count = int(self._node.tracer.lost())
        return min(reported, count) if reported >= 0 else count

    def _emit(
        self,
        run: int | None,
        kind: EventKind,
        words: str,
        *,
        value: int = 0,
        exit_code: int = 0,
        program: bytes = b"",
        run_number: int = 0,
        pid: int = 0,
    ) -> None:
        event: np.ndarray = np.zeros(1, EVENT)
        event["time"], event["kind"], event["value"], event["exit_code"] = time.time(), kind, value, exit_code
        event["program"], event["pid"] = program, pid
        event["text"] = words.encode()[: EVENT["text"].itemsize].decode("utf-8", "ignore").encode()
        event["limit"], event["run_number"] = -1, run_number
        if run is not None:
            event["run_number"] = self._node.runs.rows["run_number"][run]
        self.append(event)
