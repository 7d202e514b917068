"""What the child does with messages about triggers: the wire of child_frames.py, with these verbs.

    to the child     triggers  {files: [[name, text], ...], layout, asks}: what it is for from now on
                     events    {id, cpu, now, groups: [[run, count], ...], runs?, over?} + events, group by group
                     rows      {id, cpu, now, rows: [[run, level], ...], runs?, over?} + a row of float64 each
                     aside     {files: [name, ...]}: these are not asked any more; no answer
    from the child   loaded    {errors: [failure, ...], paths,
                               handlers: [[file, line, kind, [asked, ...], [[field, how, value, ...], ...]], ...]}
                     did       {id, acts: [[run, handler, verb, first, second], ...],
                               failed: [[run, handler, what], ...], worked: [file, ...], dropped,
                               skipped: [[run, count], ...]}: to events and rows

The last of a handler are tests of its filter (trigger_engine.Test). An event that fails one needn't be sent for it.
What its filter looks at (`asked`) is told if `asks` says so: of many handlers it is more than joblensd takes.
`runs` says whose runs are, before their first event: [number, job, owner, slot, name, level]. `over` are runs that are
over. `handler` is an index into `handlers`. `skipped` are events that a run had beyond its share of the child's time.
All strings of a user are data, here as in Lua.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from condor_joblens.policy.child_frames import Message
from condor_joblens.policy.lua_sandbox import PolicyError
from condor_joblens.policy.trigger_engine import Handler, Outcome, TriggerEngine

MAX_ERRORS = 20
MAX_ACTS = 50
MAX_FAILED = 20
MAX_SKIPPED = 300
MOST_OF_TESTS = 16 << 10  # characters of all tests that are told


class TriggerService:
    """Answers messages, by `send`."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._engine: TriggerEngine | None = None

    def serve(self, message: Message, body: bytes) -> None:
        """One message; those of other verbs are nobody's."""
        verb = message["verb"]
        if verb == "triggers":
            self._load(message)
        elif verb == "aside" and self._engine is not None:
            self._engine.set_aside(message["files"])
        elif verb in ("events", "rows") and self._engine is not None:
            engine = self._engine
            engine.begin(message["now"])
            engine.forget(message.get("over", ()))
            engine.introduce(message.get("runs", ()))
            told = engine.events(message["groups"], body) if verb == "events" else engine.rows(message["rows"], body)
            self._send(_did(message["id"], told))

    def _load(self, message: Message) -> None:
        self._engine = TriggerEngine(message["layout"])
        errors = self._engine.load([(str(name), str(text)) for name, text in message["files"]])
        handlers = _handlers(self._engine.handlers, asks=bool(message.get("asks")))
        told = [_failure(error) for error in errors[:MAX_ERRORS]]
        self._send({"verb": "loaded", "errors": told, "handlers": handlers, "paths": self._engine.paths})


def _handlers(handlers: Iterable[Handler], *, asks: bool) -> list[list[Any]]:
    room = MOST_OF_TESTS
    told = []
    for handler in handlers:
        tests = [[test.field, test.how, *test.values] for test in handler.tests]
        room -= len(json.dumps(tests))
        asked = list(handler.asks) if asks else []
        told.append([handler.file, handler.line, handler.kind, asked, tests if room >= 0 else []])
    return told


def _did(number: int, outcome: Outcome) -> Message:
    acts, failed = outcome.acts, outcome.failed
    return {
        "verb": "did",
        "id": number,
        "acts": [[act.run, act.handler, act.verb, act.first, act.second] for act in acts[:MAX_ACTS]],
        "failed": [[one.run, one.handler, one.what] for one in failed[:MAX_FAILED]],
        "worked": outcome.worked,
        "dropped": outcome.dropped + max(0, len(acts) - MAX_ACTS),
        "skipped": [list(each) for each in list(outcome.skipped.items())[:MAX_SKIPPED]],
    }


def _failure(error: PolicyError) -> Message:
    return {"file": error.file, "line": error.line, "rule": error.rule, "what": error.what}
