"""The triggers as a command has them: in the same confined child as joblensd's, asked one thing after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from condor_joblens.cli.policy import Site
from condor_joblens.cli.policy_evaluator import MAX_REPLY
from condor_joblens.common import readiness
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.signals import signal_name
from condor_joblens.policy import trigger_answers
from condor_joblens.policy.child_frames import BadFrame, Message, pack
from condor_joblens.policy.child_process import ChildProcess
from condor_joblens.policy.policy_files import read_triggers
from condor_joblens.policy.trigger_answers import Action, Did, Loaded, Verb
from condor_joblens.policy.trigger_kinds import load_message

SECONDS = 30.0
Files = Sequence[tuple[str, str]]


def triggers(folders: list[str] | None, site: Site) -> tuple[list[tuple[str, str]], list[str]]:
    """(file, text) of the triggers in these folders, or in those of the configuration; and what is wrong with them."""
    return read_triggers(folders or site.config.triggers)


class TriggerEvaluator:
    """A child with triggers."""

    def __init__(self, files: Files) -> None:
        """Raises JobLensError where no child can be had."""
        self._files = files
        try:
            self._child = ChildProcess(MAX_REPLY)
        except OSError as error:
            raise JobLensError(f"the triggers' child can't be started: {error.strerror}") from None
        self.loaded: Loaded = trigger_answers.loaded(self._ask(load_message(files, asks=True), b""))

    def __enter__(self) -> TriggerEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait(1.0)

    def forget_all(self) -> None:
        """Nothing was seen before."""
        self._ask(load_message(self._files), b"")

    def events(self, groups: Sequence[tuple[int, int]], events: bytes, now: float, runs: Sequence[Any] = ()) -> Did:
        """Asks about events: see policy/trigger_service.py. Raises JobLensError."""
        return self._did({"verb": "events", "groups": groups, "runs": runs, "now": now}, events)

    def row(self, run: int, level: str, row: bytes, now: float, runs: Sequence[Any] = ()) -> Did:
        """Asks about the numbers of a run. Raises JobLensError."""
        return self._did({"verb": "rows", "rows": [(run, level)], "runs": runs, "now": now}, row)

    def _did(self, message: Message, body: bytes) -> Did:
        answer = self._ask({"id": 1, "cpu": 5.0, **message}, body)
        return trigger_answers.did(answer, self.loaded.handlers)

    def _ask(self, message: Message, body: bytes) -> Message:
        self._child.send(pack(message, body))
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and self._child.connected:
            readiness.either([self._child], [self._child] if self._child.has_unsent else [], 1.0)
            self._child.flush()
            try:
                for answer in self._child.receive():
                    if answer.get("verb") == "unfit":
                        raise JobLensError(
                            f"the triggers' child can't work: {printable(str(answer.get('reason')), 200)}"
                        )
                    return answer
            except BadFrame as error:
                raise JobLensError(f"the triggers' child answers nonsense: {error}") from None
        self._child.wait(2.0)
        code = self._child.exit_code()
        how = "takes too long" if code is None else f"ended ({signal_name(-code) if code < 0 else f'exit code {code}'})"
        raise JobLensError(f"the triggers' child {how}")


def words(action: Action) -> str:
    """An action as cases and people say it: `note disk full`, `raise io 60`."""
    if action.verb is Verb.RAISE and action.level is not None:
        return f"raise {action.level.word} {action.seconds:g}"
    verb = "mail" if action.mail else action.verb.value
    return f"{verb} {action.words}".strip()
