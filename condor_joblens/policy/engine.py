"""The policies, and what they decide for one job: the inside of the child."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from condor_joblens.errors import printable
from condor_joblens.levels import Level, parse_level
from condor_joblens.policy import jobad
from condor_joblens.policy.frames import Message
from condor_joblens.policy.identity import identity
from condor_joblens.policy.sandbox import Policy, PolicyError, Sandbox

MAX_REASON = 120  # characters


class Engine:
    """Compiled policies, asked in order: the last that has an opinion decides."""

    def __init__(self) -> None:
        self._sandbox = Sandbox()
        self._policies: list[Policy] = []

    def load(self, policies: Iterable[tuple[str, str]], doing: Callable[[str], None]) -> list[Message]:
        """Compile (name, text) in this order; a line for each that is set aside for a mistake in it."""
        errors = []
        for name, text in policies:
            doing(f"policy {name}")
            try:
                self._policies.append(self._sandbox.compile(name, text))
            except PolicyError as error:
                errors.append(_failure(error))
        return errors

    def decide(self, ad: bytes, asked: Message, doing: Callable[[str], None]) -> Message:
        """The `decided` message for a job's ad and a `decide` message.

        `doing` is told before each step what would be to blame if this process died of it. Raises ValueError
        where the ad can't be used.
        """
        doing("the job's ad")
        parsed = jobad.parse(ad)
        attributes = jobad.evaluate(parsed)
        request = jobad.request(parsed)
        requested = request.level.word if request.level is not None else None
        level = {"requested": requested, "default": asked["default"], "max": asked["max"]}
        outcome = self._ask(attributes, asked["slot"], level, doing)
        return {
            "verb": "decided",
            "requested": requested,
            "written": request.written,
            "identity": identity(attributes),
            **outcome,
        }

    def _ask(
        self,
        attributes: dict[str, jobad.Value],
        slot_facts: dict[str, Any],
        level: dict[str, str | None],
        doing: Callable[[str], None],
    ) -> Message:
        job, slot = self._sandbox.ad(attributes), self._sandbox.ad(slot_facts)
        outcome: Message = {"level": level["default"], "policy": "", "reason": "", "errors": []}
        for policy in self._policies:
            doing(f"policy {policy.name}")
            try:
                level["decided"] = outcome["level"]
                answer, reason = self._sandbox.decide(policy, job, slot, level)
                if answer is not None:
                    outcome["level"] = _level(policy, answer).word
                    outcome["policy"] = policy.name
                    outcome["reason"] = printable(reason, MAX_REASON) if isinstance(reason, str) else ""
            except PolicyError as error:
                outcome["errors"].append(_failure(error))
        return outcome


def _failure(error: PolicyError) -> Message:
    file, line, what = str(error).split(":", 2)
    return {"file": file, "line": int(line), "rule": "", "what": what.strip()}


def _level(policy: Policy, answer: object) -> Level:
    try:
        return parse_level(answer)
    except ValueError as error:
        shown = f'"{printable(answer, 40)}"' if isinstance(answer, str) else printable(str(answer), 40)
        raise policy.error(f"{policy.name}:{policy.line}: answers {shown}, which {error}") from None
