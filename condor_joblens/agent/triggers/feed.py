"""What triggers are told: events of the kinds that they want, as they come, and numbers of runs once a period.

Events come as joblensd has just published them, without secrets. What no handler wants is sorted out by its kind and by
what filters test (sieve.py), all events of a batch at once. So what triggers don't want costs next to nothing, and
without triggers there is no cost.
"""

from __future__ import annotations

import os
import time

import numpy as np

from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.flight_recorder import FlightRecorder
from condor_joblens.agent.levels import policy_input
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.triggers.actions import Actions
from condor_joblens.agent.triggers.early_events import EarlyEvents
from condor_joblens.agent.triggers.limits import Bucket
from condor_joblens.agent.triggers.recorded_events import RecordedEvents
from condor_joblens.agent.triggers.sieve import Sieve
from condor_joblens.common import files
from condor_joblens.jobs.sandbox import job_uid
from condor_joblens.model.events import TOLD_TO_TRIGGERS
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import text
from condor_joblens.policy.child_process import Start
from condor_joblens.policy.file_failures import ENOUGH, Faults
from condor_joblens.policy.trigger_answers import Did, Failed, Loaded
from condor_joblens.policy.trigger_client import Files, TriggerClient
from condor_joblens.policy.trigger_kinds import KINDS, METRIC, PROCESSES, RECORDED

ASIDE = "triggers.aside"
"""In the run folder: a line for each file of triggers that failed too often, for `joblens status` and `doctor`."""

MOST_EVENTS = 200_000
"""Events a second of the node; of one job JOBLENS_MAX_EVENTS are recorded at all."""

ROWS_AT_A_TIME = 512


class Triggers:
    """The triggers of this node, from their files to what they have done."""

    def __init__(self, levels: Levels, recorder: FlightRecorder) -> None:
        """There are none until `open`."""
        self._levels, self._recorder = levels, recorder
        self._actions = Actions(levels, recorder)
        self._client: TriggerClient | None = None
        self._faults = Faults(())
        self._aside: dict[str, str] = {}
        self._told: dict[int, bool] = {}  # run_number -> whether its name was known; of this child
        self._child = 0  # the one that was told, counted as TriggerClient.lives counts
        self._recorded = RecordedEvents(levels.node)
        self._sieve = Sieve(())
        self._places: list[int] = []  # of policy_input.PATHS: the numbers of a row
        self._bucket = Bucket(MOST_EVENTS, 1.0)
        self._early = EarlyEvents()
        self._lost = 0  # events beyond that
        self._said_lost = 0
        self._skipped: dict[int, int] = {}

    def open(self, start: Start | None, evidence: Evidence | None) -> int:
        """From now on there can be triggers; `start` starts their child. A descriptor to wait for: `receive`."""
        self._actions = Actions(self._levels, self._recorder, evidence)
        self._client = TriggerClient(self._levels.node.log, start)
        return self._client.fileno()

    def load(self, triggers: Files) -> None:
        """These and no others from now on. The same again, and all at work: they go on, and remember what they know."""
        if self._client is None or not (triggers or self._client.has_files):
            return
        if self._client.is_at_work_with(triggers) and not self._aside:
            return
        self._faults = Faults(name for name, _ in triggers)
        self._aside.clear()
        self._client.load(triggers)
        if not triggers:
            self._early.take()
        self._publish_aside()
        events = self._levels.output.events
        events.listener, events.wants_processes = (self.heard, True) if triggers else (None, False)
        events.wanted_kinds = TOLD_TO_TRIGGERS if triggers else frozenset()

    def stop(self) -> None:
        """Ends the child."""
        if self._client is not None:
            self._client.stop()
            self._levels.output.events.listener = None

    def timeout(self, now: float) -> float:
        """Seconds until `expire` has something to do; `now` is time.monotonic()."""
        return 3600.0 if self._client is None else self._client.timeout(now)

    def expire(self, now: float) -> None:
        """Ends a child that takes too long, and starts one that is due."""
        if self._client is not None:
            self._client.expire(now)

    def heard(self, events: np.ndarray) -> None:
        """These events (EVENT, shape (n,)) have happened."""
        if self._client is None:
            return
        if self._loaded() is not None:
            self._ask_about(events, self._client)
        elif self._client.is_coming:
            self._lost += self._early.keep(events)

    def _ask_about(self, events: np.ndarray, client: TriggerClient) -> None:
        numbers, places = events["run_number"], self._sieve.places(events)
        if not len(places):
            return
        if not self._bucket.take(len(places)):
            self._lost += len(places)
            return
        places = places[np.argsort(numbers[places], kind="stable")]  # each run's one after the other
        found = events[places]
        runs, counts = np.unique(found["run_number"], return_counts=True)
        groups = list(zip(runs.tolist(), counts.tolist()))
        message = {"groups": groups, "runs": self._introduced([run for run, _ in groups])}
        if not client.ask("events", message, found.tobytes(), len(found), time.time()):
            for run in runs.tolist():  # nobody was told whose it is
                self._told.pop(run, None)

    def tick(self) -> None:
        """Once a period: numbers of the runs, and which runs are over."""
        loaded, client = self._loaded(), self._client
        if client is None or not client.has_files:
            return
        self._say_lost(client)
        self._do_held()
        if loaded is None:
            return
        self._tell_recorded()
        node = self._levels.node
        runs = node.runs.living()
        over = sorted(self._told.keys() - set(node.runs.rows["run_number"][runs].tolist()))
        for number in over:
            del self._told[number]
            self._skipped.pop(number, None)
            self._actions.forget(number)
        if not any(handler.kind == METRIC for handler in loaded.handlers) and not loaded.paths:
            runs = runs[:0]
        rows = node.runs.rows
        runs = runs[node.runs.state["named"][runs] & ~rows["final"][runs] & (rows["level_number"][runs] > Level.OFF)]
        for first in range(0, max(1, len(runs)), ROWS_AT_A_TIME):
            self._send_rows(client, runs[first : first + ROWS_AT_A_TIME], over if first == 0 else [])

    def _tell_recorded(self) -> None:
        wanted = self._levels.output.events.wanted_kinds & RECORDED
        if wanted:
            self.heard(self._recorded.look(time.monotonic(), wanted))
        else:
            self._recorded.forget()

    def receive(self) -> None:
        """Does what handlers want done."""
        if self._client is None:
            return
        answers = self._client.receive()
        if self._loaded() is not None and (early := self._early.take()) is not None:
            self._ask_about(early, self._client)
        for did in answers:
            index = self._levels.node.runs.by_number()
            for action in did.actions:
                run = index.get(action.run)
                if run is None:
                    self._actions.do(action, None)
                else:
                    self._levels.node.guard(run, "trigger", self._actions.do, action, run)
            self._judge(did, index)

    def _loaded(self) -> Loaded | None:
        """What the child has loaded. What it must be told anew, if it is another one, is noted here."""
        client = self._client
        if client is None or client.loaded is None:
            return None
        if client.lives != self._child:
            self._child = client.lives
            self._told.clear()
            kinds = {handler.kind for handler in client.loaded.handlers}
            self._sieve = Sieve(client.loaded.handlers)
            places = {path: place for place, path in enumerate(policy_input.PATHS)}
            self._places = [places[path] for path in client.loaded.paths if path in places]
            events, wanted = self._levels.output.events, {KINDS[kind] for kind in kinds if kind in KINDS}
            events.wants_processes, events.wanted_kinds = bool(wanted & PROCESSES), TOLD_TO_TRIGGERS & wanted
        return client.loaded

    def _do_held(self) -> None:
        held = list(self._actions.held)
        index = self._levels.node.runs.by_number() if held else {}
        for number in held:
            run = index.get(number)
            if run is None:
                self._actions.forget(number)
            else:
                self._levels.node.guard(run, "trigger", self._actions.do_held, run)

    def _introduced(self, numbers: list[int]) -> list[tuple[int, str, str, str, str, str]]:
        """Whose these runs are, if the child was not told yet, or was told before anybody knew."""
        new = [number for number in numbers if not self._told.get(number)]
        if not new:
            return []
        runs, told = self._levels.node.runs, []
        index = runs.by_number()
        for number in new:
            run = index.get(number)
            if run is None:
                self._told.setdefault(number, False)
                continue
            row = runs.rows[run]
            self._told[number] = bool(runs.state["named"][run])
            words = (text(row[column]) for column in ("job_id", "owner", "slot", "run", "level"))
            told.append((number, *words))
        return told  # type: ignore[return-value]

    def _send_rows(self, client: TriggerClient, runs: np.ndarray, over: list[int]) -> None:
        rows = self._levels.node.runs.rows
        numbers = rows["run_number"][runs].tolist()
        if not numbers and not over:
            return
        told = [(number, text(level)) for number, level in zip(numbers, rows["level"][runs])]
        message = {"rows": told, "runs": self._introduced(numbers), "over": over}
        body = policy_input.some_numbers(self._levels, runs, time.monotonic(), self._places).tobytes()
        if not client.ask("rows", message, body, 0, time.time()):
            for number in numbers:
                self._told.pop(number, None)

    def _say_lost(self, client: TriggerClient) -> None:
        lost = self._lost + client.lost + self._recorded.untold
        if lost > self._said_lost:
            self._levels.node.log_once(
                f"triggers were not asked about {lost - self._said_lost} events: they are behind"
            )
            self._said_lost = lost

    def _judge(self, did: Did, index: dict[int, int]) -> None:
        node = self._levels.node
        self._faults.worked(name for name in did.worked if name not in {failed.handler.file for failed in did.failed})
        if did.dropped:
            node.log_once(f"triggers wanted {did.dropped} actions too many at once: they were not taken")
        for failed in did.failed:
            self._failed(failed, index.get(failed.run))
        for number, count in did.skipped:
            self._skipped[number] = self._skipped.get(number, 0) + count
            run = index.get(number)
            if run is not None:
                node.log_once(
                    f"{node.describe(run)}: triggers take too long, and are not asked about all of its events"
                )
                node.handles[run].notes["trigger time"] = (
                    f"triggers were not asked about {self._skipped[number]} of its events: they took too long"
                )
                node.update_note(run)

    def _failed(self, failed: Failed, run: int | None) -> None:
        node, file = self._levels.node, failed.handler.file
        whose = "a run that is over" if run is None else node.describe(run)
        node.log_once(f"trigger {failed.handler.name} failed on {whose}: {failed.what}")
        uid = None if run is None else job_uid(node.handles[run].sandbox)
        person = "" if uid is None else f"user {uid}"
        if file in self._aside or not self._faults.failed(file, failed.run, person) or self._client is None:
            return
        self._aside[file] = failed.what
        node.log(f"trigger {file} failed {ENOUGH} times in a row and is set aside until condor_reconfig: {failed.what}")
        self._client.set_aside(file)
        self._publish_aside()

    def _publish_aside(self) -> None:
        path = os.path.join(self._levels.node.config.run_dir, ASIDE)
        lines = "".join(f"{name}: {why}\n" for name, why in self._aside.items())
        try:
            files.write(path, lines.encode(errors="backslashreplace"))
        except OSError as error:
            remedy = "`joblens doctor` can't show which triggers are set aside"
            self._levels.node.log_once(f"{path} can't be written: {error.strerror}: {remedy}")
