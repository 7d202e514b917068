"""`joblens policy simulate --events`: what triggers would have done about what the sink `file` has recorded."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from condor_joblens.cli.policy import site
from condor_joblens.cli.terminal import style
from condor_joblens.cli.trigger_evaluator import TriggerEvaluator, triggers, words
from condor_joblens.cli.trigger_events import (
    event_of,
    known_of_record,
    level_of_record,
    numbers_of_record,
    row_of,
)
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.policy.trigger_answers import Did

MAX_LINE = 1 << 20
MAX_SHOWN = 20


@dataclass
class TriggerTally:
    """What was done."""

    events: int = 0
    samples: int = 0
    unusable: int = 0
    actions: Counter[tuple[str, str]] = field(default_factory=Counter)  # handler, verb
    jobs: dict[str, set[str]] = field(default_factory=dict)  # by handler
    failed: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)  # of all actions, in words
    skipped: int = 0

    def add(self, did: Did, job: str) -> None:
        """What came of one event or sample of a job."""
        for action in did.actions:
            self.actions[action.handler.name, "mail" if action.mail else action.verb.value] += 1
            self.jobs.setdefault(action.handler.name, set()).add(job)
            if len(self.first) < MAX_SHOWN:
                self.first.append(f"{job}: {action.handler.name}: {words(action)}")
        for failed in did.failed:
            self.failed[f"{failed.handler.name}: {failed.what}"] += 1
        self.skipped += sum(count for _, count in did.skipped)


def run(options: argparse.Namespace) -> int:
    """Prints what each handler would have done; exit code 0."""
    read, problems = triggers(options.triggers, site())
    if not read:
        raise JobLensError("; ".join(problems) or "there are no triggers: name their folder, --triggers DIR")
    tally = TriggerTally()
    with TriggerEvaluator(read) as evaluator:
        problems += evaluator.loaded.errors
        try:
            with Path(options.events).open("rb") as stream:
                simulate(evaluator, _records(stream, tally), tally)
        except OSError as error:
            raise JobLensError(f"{printable(options.events)}: {error.strerror}") from None
        handlers = [handler.name for handler in evaluator.loaded.handlers]
    if options.json:
        print(json.dumps(record(tally, handlers), indent=2))
        return 0
    look = style()
    for problem in problems:
        print(f"{look.paint('note', 'yellow')}  {problem}")
    print("\n".join(lines(tally, handlers)))
    return 0


def simulate(evaluator: TriggerEvaluator, records: Iterable[dict[str, Any]], tally: TriggerTally) -> None:
    """Asks about records in their order, which is that of the file."""
    paths = evaluator.loaded.paths
    for told in records:
        try:
            number, now = int(told.get("RunNumber", 0)), float(told["Time"])
            level, job = level_of_record(told), printable(str(told.get("GlobalJobId", "")), 60)
            runs = [(number, *(str(told.get(name, "")) for name in ("JobId", "Owner", "Slot", "Run")), level)]
            if told.get("Type") == "sample":
                tally.samples += 1
                row = row_of(numbers_of_record(told), paths)
                tally.add(evaluator.row(number, level, row, now, runs), job)
                continue
            event = event_of(known_of_record(told))
        except (KeyError, TypeError, ValueError, OverflowError):
            tally.unusable += 1
            continue
        if event is not None and number:
            tally.events += 1
            tally.add(evaluator.events([(number, 1)], event.tobytes(), now), job)


def _records(stream: BinaryIO, tally: TriggerTally) -> Iterable[dict[str, Any]]:
    while line := stream.readline(MAX_LINE):
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict):
            tally.unusable += 1
        elif told.get("Type") in ("event", "sample"):
            yield told


def record(tally: TriggerTally, handlers: list[str]) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "Events": tally.events,
        "Samples": tally.samples,
        "Unusable": tally.unusable,
        "Skipped": tally.skipped,
        "Handlers": [
            {
                "Handler": name,
                "Jobs": len(tally.jobs.get(name, ())),
                "Actions": {verb: count for (of, verb), count in tally.actions.items() if of == name},
            }
            for name in handlers
        ],
        "Failed": dict(tally.failed),
    }


def lines(tally: TriggerTally, handlers: list[str]) -> list[str]:
    """The same for a person."""
    found = [f"{tally.events} events and {tally.samples} samples; {tally.unusable} lines are none"]
    for name in handlers:
        done = ", ".join(f"{verb} {count}" for (of, verb), count in sorted(tally.actions.items()) if of == name)
        found.append(f"{name:32}  {len(tally.jobs.get(name, ())):5} jobs  {done or 'nothing'}")
    found += [f"failed {count} times: {what}" for what, count in tally.failed.most_common(5)]
    if tally.skipped:
        found.append(f"{tally.skipped} events were beyond their run's share of time")
    found += ["", "the first of all that was done, before a minute's limits:", *tally.first] if tally.first else []
    return found
