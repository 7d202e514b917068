"""What triggers have done: a level for a time, evidence, the flight recorder, notes and events, all of it bounded.

A trigger ranks as policies do (agent/levels/level_arbiter.py): what the owner, staff or root have said stays.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable

from condor_joblens.agent.evidence import Evidence
from condor_joblens.agent.flight_recorder import FlightRecorder
from condor_joblens.agent.hangs import PATIENCE, LookTaken
from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.triggers.limits import Bounds, Limits
from condor_joblens.control.verbs import Refused
from condor_joblens.jobs.sandbox import job_uid
from condor_joblens.model.metrics import cut, cut_words
from condor_joblens.policy.trigger_answers import Action, Verb

ACTIONS = Bounds(of_run=10, of_user=40, of_node=100, seconds=60.0, said="actions beyond {} a minute{} were not taken")
SENT = Bounds(of_run=5, of_user=20, of_node=50, seconds=1.0, said="events beyond {} a second{} were not sent")
"""Events that are sent."""

NOTES = 3
"""Different ones of a run; the oldest goes."""

LOOK = "look"
"""The kind of the artifact that evidence is kept as. A line of JSON with its time and length, and what was seen."""

LOOKS_APART = 60.0
"""Seconds between two looks at one run."""

CAUSE = "trigger"
"""Of what the flight recorder keeps."""


class Actions:
    """Does what handlers want done."""

    def __init__(self, levels: Levels, recorder: FlightRecorder, evidence: Evidence | None = None) -> None:
        """No `evidence`: nobody can look at jobs on this node."""
        self._levels, self._recorder, self._evidence = levels, recorder, evidence
        self._actions, self._sent = Limits(ACTIONS), Limits(SENT)
        self._notes: dict[int, list[str]] = {}
        self._looked: dict[int, float] = {}  # run_number -> CLOCK_MONOTONIC
        self._held: dict[int, list[Action]] = {}  # run_number -> what waits until the run has a name
        self._verbs: dict[Verb, Callable[[int, Action], None]] = {
            Verb.RAISE: self._raise,
            Verb.EVIDENCE: self._look,
            Verb.TAG: self._tag,
            Verb.NOTE: self._note,
        }

    def do(self, action: Action, run: int | None) -> None:
        """Does it for the run, None if that is over: then an event can be sent of it, and nothing else."""
        node, number, file = self._levels.node, action.run, action.handler.file
        if action.verb is Verb.SEND:
            beyond = self._sent.why_not(number, self._user(run), file)
            if beyond:
                self._refused(run, action, self._sent, beyond)
            else:
                self._levels.output.events.triggered(number, file, action.words, action.mail)
            return
        if run is None or node.runs.rows["final"][run]:
            return
        if not node.runs.state["named"][run]:
            held = self._held.setdefault(number, [])
            del held[: max(0, len(held) + 1 - ACTIONS.of_run)]
            held.append(action)
            return
        if action.verb is Verb.NOTE and action.words in self._notes.get(number, ()):
            return
        beyond = self._actions.why_not(number, self._user(run), file)
        if beyond:
            self._refused(run, action, self._actions, beyond)
        else:
            self._verbs[action.verb](run, action)

    @property
    def held(self) -> Iterable[int]:
        """Numbers of the runs for which something waits."""
        return self._held.keys()

    def do_held(self, run: int) -> None:
        """Does what has waited for the run's name, if it has one by now."""
        number = int(self._levels.node.runs.rows["run_number"][run])
        if self._levels.node.runs.state["named"][run]:
            for action in self._held.pop(number, ()):
                self.do(action, run)

    def forget(self, number: int) -> None:
        """The run of this number is over."""
        self._held.pop(number, None)
        self._actions.forget(number)
        self._sent.forget(number)
        self._notes.pop(number, None)
        self._looked.pop(number, None)

    def _user(self, run: int | None) -> int | None:
        handles = None if run is None else self._levels.node.handles.get(run)
        return None if handles is None else job_uid(handles.sandbox)

    def _refused(self, run: int | None, action: Action, limits: Limits, what: str) -> None:
        file, node = action.handler.file, self._levels.node
        node.log_once(f"trigger {file}: {what}; each run's Note counts them")
        if run is not None and run in node.handles:
            count = limits.refused[action.run, file, what]
            node.handles[run].notes[f"trigger limit {file} {what}"] = f"trigger {file}: {count} {what}"
            node.update_note(run)

    def _raise(self, run: int, action: Action) -> None:
        state, now = self._levels.node.runs.state, time.monotonic()
        assert action.level is not None
        is_raised, level = state["trigger_until"][run] > now, int(action.level)
        if is_raised and state["trigger_level"][run] > level:
            return
        until = now + action.seconds
        if is_raised and state["trigger_level"][run] == level:
            until = max(until, float(state["trigger_until"][run]))
        state["trigger_level"][run], state["trigger_until"][run] = level, until
        state["trigger_name"][run] = cut(action.handler.file, "policy")
        state["trigger_reason"][run] = cut_words(action.words, "reason")
        level_arbiter.arbitrate(self._levels)

    def _look(self, run: int, action: Action) -> None:
        now, node = time.monotonic(), self._levels.node
        if now - self._looked.get(action.run, -LOOKS_APART) < LOOKS_APART:
            return
        self._looked[action.run] = now
        about = self._levels.output.artifacts.about(run)

        def over(look: LookTaken) -> None:
            if look.pieces:
                kept = dataclasses.replace(
                    about, kind=LOOK, content_type="application/x-ndjson", begun=look.began, ended=time.time()
                )
                self._levels.output.artifacts.keep_about(kept, [look.head(), *look.pieces])

        try:
            if self._evidence is None:
                raise Refused("nobody can look at jobs on this node")
            self._evidence.take(run, None, LookTaken(over), PATIENCE)
        except Refused as error:
            node.log_once(f"trigger {action.handler.file}: no evidence: {error}")
            return
        self._log(run, action, "takes evidence")

    def _tag(self, run: int, action: Action) -> None:
        self._recorder.tag_if_recorded(run, CAUSE)

    def _note(self, run: int, action: Action) -> None:
        node = self._levels.node
        notes = self._notes.setdefault(action.run, [])
        notes.append(action.words)
        del notes[:-NOTES]
        node.handles[run].notes["trigger"] = "; ".join(notes)
        node.update_note(run)
        self._levels.output.job_ads.publish_soon(run)
        self._log(run, action, action.words)

    def _log(self, run: int, action: Action, what: str) -> None:
        node = self._levels.node
        node.log(f"{node.describe(run)}: trigger {action.handler.name}: {what}")
