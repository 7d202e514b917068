"""The policies as a command has them: in the same confined child as joblensd's, asked one thing after the other."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from condor_joblens.common import readiness
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.signals import signal_name
from condor_joblens.policy.child_frames import BadFrame, Message, pack
from condor_joblens.policy.child_process import ChildProcess
from condor_joblens.policy.policy_child import THE_AD

MAX_REPLY = 16 << 20  # bytes: a command wants to know more than joblensd
SECONDS = 30.0  # that one answer may take, beyond its CPU

Policies = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class ListedRule:
    """One rule, as the child tells it: see policy.lua_sandbox.Rule."""

    index: int
    file: str
    line: int
    name: str
    level: str | None
    cap: str | None
    period: float | None
    for_seconds: float | None
    sinks: Sequence[str] | None
    priority: float | None
    max_jobs: float | None
    max_share: float | None
    per: str | None
    reason: str
    conditional: bool
    expression: str | None
    paths: Sequence[str]
    runs_code: bool
    literal_globs: Sequence[Sequence[str]]
    report: bool | None = None
    trace: str | None = None


class EvaluationFailed(JobLensError):
    """The child could not answer: what an ad or a policy did to it."""


class PolicyEvaluator:
    """A child with policies. Messages may be sent before the answers of earlier ones have come."""

    def __init__(self, policies: Policies) -> None:
        """Raises JobLensError where no child can be had."""
        self._policies = policies
        self._doing = "the policy child"
        self._waiting: list[Message] = []
        try:
            self._child = ChildProcess(MAX_REPLY)
        except OSError as error:
            raise JobLensError(f"the policy child can't be started: {error.strerror}") from None
        ready = self._load()
        self.errors: list[Message] = ready["errors"]
        """Why files were set aside: failures, as child_frames.py has them."""
        names = [field.name for field in fields(ListedRule)]
        self.rules = [ListedRule(**{name: rule[name] for name in names}) for rule in ready["rules"]]

    def __enter__(self) -> PolicyEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait(1.0)

    def fileno(self) -> int:
        """Readable when an answer has come, or the child has gone."""
        return self._child.fileno()

    @property
    def pid(self) -> int:
        """The child's process."""
        return self._child.pid

    def cpu_seconds(self) -> float:
        """CPU time that the child has used so far."""
        return self._child.cpu_seconds()

    def start_again(self) -> None:
        """Another child, after a failure."""
        self.close()
        self._child = ChildProcess(MAX_REPLY)
        self._waiting = []
        self._load()

    def forget_all(self) -> None:
        """Nothing was seen before."""
        self._load()

    def decide(self, ad: bytes, **facts: Any) -> Message:
        """The `decided` message for one job. Raises Failed."""
        self._doing = THE_AD
        answer = self.ask({"verb": "decide", "id": 1, "cpu": 1.0, **facts}, ad)
        if answer["verb"] == "failed":
            raise EvaluationFailed(printable(str(answer.get("reason")), 200))
        return answer

    def wrong_values(self, written: Iterable[str]) -> set[str]:
        """Those that are no ClassAd expressions, and so can't stand in an ad. Raises Failed."""
        self._doing = THE_AD
        return set(self.ask({"verb": "read", "id": 1, "cpu": 1.0, "values": sorted(set(written))})["wrong"])

    def ask(self, message: Message, body: bytes = b"") -> Message:
        """Send a message and wait for its answer. Raises Failed."""
        self.send(message, body)
        return self.answer()

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message whose answer `answer` will give."""
        self._child.send(pack(message, body))

    @property
    def unsent(self) -> bool:
        """Whether a message is not sent as a whole."""
        return self._child.has_unsent

    def flush(self) -> None:
        """Go on sending."""
        self._child.flush()

    def answer(self) -> Message:
        """The next answer. Raises Failed where the child dies of it."""
        deadline = time.monotonic() + SECONDS
        while True:
            while self._waiting:
                message = self._waiting.pop(0)
                if message["verb"] == "doing":
                    self._doing = str(message["what"])
                elif message["verb"] == "unfit":
                    raise JobLensError(f"the policy child can't work: {printable(str(message['reason']), 200)}")
                else:
                    return message
            if time.monotonic() > deadline:
                raise EvaluationFailed(f"{self._doing} took more than {SECONDS:g} s")
            if not self._child.connected:
                raise EvaluationFailed(f"{self._doing} {self._death()}")
            outgoing = [self._child] if self._child.has_unsent else []
            readiness.either([self._child], outgoing, 1.0)
            self._child.flush()
            try:
                self._waiting += self._child.receive()
            except BadFrame as error:
                raise EvaluationFailed(f"{self._doing} made the policy child answer nonsense ({error})") from None

    def _load(self) -> Message:
        return self.ask({"verb": "policies", "policies": list(self._policies), "list": True, "anew": True})

    def _death(self) -> str:
        self._child.wait(2.0)
        code = self._child.exit_code()
        if code == -signal.SIGPROF:
            return "took more CPU than it may"
        return f"killed the policy child ({signal_name(-code) if code and code < 0 else f'exit code {code}'})"


def wait(evaluators: Sequence[PolicyEvaluator]) -> list[PolicyEvaluator]:
    """Those whose answer has come, or begun to come; what was not sent yet goes on being sent meanwhile."""
    while True:
        unsent = [evaluator for evaluator in evaluators if evaluator.unsent]
        readable, writable = readiness.either(evaluators, unsent, 1.0)
        for evaluator in writable:
            evaluator.flush()
        if readable:
            return list(readable)


def told(failures: Iterable[Message]) -> list[str]:
    """A line for each failure: file, line and rule first."""
    lines = []
    for failure in failures:
        rule = f'rule "{failure["rule"]}": ' if failure["rule"] else ""
        lines.append(printable(f"{failure['file']}:{failure['line']}: {rule}{failure['what']}", 400))
    return lines
