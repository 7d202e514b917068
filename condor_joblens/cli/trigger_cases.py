"""Cases of triggers: what happens in a job, and what is done about it.

[its name]
@run Owner = bob                              whose run it is; Job, Slot and Name likewise
@level io                                     its level from now on (basic)
@usage Memory.ResidentBytes = 2e9             a number of its rows, from now on
exec Program = bash, CommandLine = "-bash"    an event of that kind, with its fields as records have them
exec * 500 Program = true                     500 of them
{"Type":"event","Kind":"Exit", ...}           an event as the sink `file` has recorded it
+5 s                                          time goes by, with a row each second
=> note login shell of bob                    what is done about all that; `*` at its end: it goes on somehow
=> raise io 60                                and then; also mail, send, tag, evidence
=> nothing                                    nothing is done
@next run                                     another run, of which nothing is known
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from condor_joblens.cli.policy_cases import BadCase
from condor_joblens.cli.trigger_evaluator import TriggerEvaluator, words
from condor_joblens.cli.trigger_events import event_of, known_of_record, row_of
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import parse_level
from condor_joblens.policy.trigger_answers import Did

NOON = 1767265200.0
MOST_AT_ONCE, MOST_SECONDS = 10_000, 3600
_BATCH = 1000
LINES = "write [name], exec Field = value, @usage Path = number, @level word, @run Owner = name, +N s or => note text"

_STEP = re.compile(
    r"=>\s*(?P<expected>.+)"
    r"|\+\s*(?P<seconds>\d+)\s*s"
    r"|@usage\s+(?P<path>[\w.]+)\s*=\s*(?P<number>.+)"
    r"|@level\s+(?P<level>\w+)"
    r"|@run\s+(?P<fact>Job|Owner|Slot|Name)\s*=\s*(?P<value>.+)"
    r"|@(?P<next>next run)"
    r"|(?P<record>\{.*\})"
    r"|(?P<kind>[a-z_]+)(?:\s*\*\s*(?P<times>\d+))?(?:\s+(?P<fields>[A-Z]\w*\s*=.*))?"
)
_FIELD = re.compile(r'\s*(\w+)\s*=\s*("[^"]*"|[^,]+?)\s*(?:,|$)')


@dataclass
class TriggerCase:
    """One case."""

    line: int
    name: str
    steps: list[tuple[int, dict[str, str]]] = field(default_factory=list)


def parse_cases(text: str) -> list[TriggerCase]:
    """The cases in a file. Raises BadCase."""
    cases: list[TriggerCase] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        title, step = re.fullmatch(r"\[([^\]]+)\]", line), _STEP.fullmatch(line)
        if title:
            cases.append(TriggerCase(number, title.group(1).strip()))
        elif step and cases:
            said = {name: value.strip() for name, value in step.groupdict().items() if value is not None}
            cases[-1].steps.append((number, said))
        else:
            raise BadCase(number, f'"{line}" is {"no line of a case" if cases else "before the first case"}: {LINES}')
    for case in cases:
        if not any("expected" in said for _, said in case.steps):
            raise BadCase(case.line, f"[{case.name}] expects nothing: add a line such as => note it happened")
    return cases


def problem_of(evaluator: TriggerEvaluator, case: TriggerCase) -> tuple[int, str]:
    """The first line that is not as the case expects it, and why; empty where all is. Raises JobLensError."""
    told = _Told(evaluator)
    expects = False
    for line, said in case.steps:
        try:
            if "expected" in said:
                told.finish()
                expects = True
                if problem := told.compare(said["expected"]):
                    return line, problem
                continue
            if expects and told.done:
                return line - 1, f"it also did: {told.done[0]}"
            expects, told.done = False, []
            told.take(said)
        except ValueError as error:
            return line, printable(str(error), 300)
        if told.failed:
            return line, told.failed
    if told.done:
        return case.steps[-1][0], f"it also did: {told.done[0]}"
    return case.line, ""


class _Told:
    """What the lines so far have said, and what was done about it."""

    def __init__(self, evaluator: TriggerEvaluator) -> None:
        self._evaluator = evaluator
        self._now, self._number = NOON, 1
        self.done: list[str] = []
        self.failed = ""
        self._begin()

    def _begin(self) -> None:
        self._facts = {"Job": "1.0", "Owner": "alice", "Slot": "slot1_1", "Name": f"case#1.0#1#{self._number}"}
        self._level, self._numbers, self._has_news = "basic", dict[str, float](), False

    def take(self, said: dict[str, str]) -> None:
        """One line. Raises ValueError."""
        if "path" in said:
            self._numbers[said["path"].lower()], self._has_news = float(said["number"]), True
        elif "level" in said:
            self._level = parse_level(said["level"]).word
        elif "fact" in said:
            self._facts[said["fact"]] = said["value"].strip('"')
        elif "next" in said:
            self.finish()
            self._number += 1
            self._begin()
        elif "seconds" in said:
            self.finish()
            for _ in range(min(int(said["seconds"]), MOST_SECONDS)):
                self._now += 1
                self._row()
        else:
            self.finish()
            self._event(said)

    def _event(self, said: dict[str, str]) -> None:
        if "record" in said:
            fields = known_of_record(json.loads(said["record"]))
        else:
            fields = {name: value.strip('"') for name, value in _FIELD.findall(said.get("fields", ""))}
            fields["Kind"] = said["kind"]
        event = event_of({**fields, "Time": self._now})
        if event is None:
            raise ValueError(f"{fields.get('Kind')} is no kind of event that triggers are told of")
        count = min(int(said.get("times", 1)), MOST_AT_ONCE)
        while count > 0:
            size = min(count, _BATCH)
            count -= size
            self._now += 0.001
            did = self._evaluator.events([(self._number, size)], event.tobytes() * size, self._now, self._runs())
            self._note(did)

    def finish(self) -> None:
        """Numbers that were said are in a row by now."""
        if self._has_news:
            self._now += 0.001
            self._row()

    def _row(self) -> None:
        self._has_news = False
        row = row_of(self._numbers, self._evaluator.loaded.paths)
        self._note(self._evaluator.row(self._number, self._level, row, self._now, self._runs()))

    def _runs(self) -> list[tuple[int, str, str, str, str, str]]:
        job, owner, slot, name = self._facts.values()
        return [(self._number, job, owner, slot, name, self._level)]

    def _note(self, did: Did) -> None:
        self.done += [words(action) for action in did.actions]
        if did.failed:
            self.failed = f"{did.failed[0].handler.name} failed: {did.failed[0].what}"

    def compare(self, expected: str) -> str:
        """Why the next thing done is not as expected; empty where it is."""
        if expected == "nothing":
            return f"expected nothing, got {self.done[0]}" if self.done else ""
        got = self.done.pop(0) if self.done else "nothing"
        fits = got.startswith(expected[:-1]) if expected.endswith("*") else got == expected
        return "" if fits else f"expected {expected}, got {got}"
