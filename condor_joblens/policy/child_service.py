"""What the child does with each message: see child_frames.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from condor_joblens.policy.child_frames import Message
from condor_joblens.policy.engine import (
    MAX_ERRORS,
    Columns,
    Engine,
    Job,
    RuleTrace,
    identity_of,
    job_of,
)
from condor_joblens.policy.job_cache import JobCache
from condor_joblens.policy.jobad import ERROR, JobAd, is_value
from condor_joblens.policy.lua_sandbox import GROUP, Plain
from condor_joblens.policy.replay import replay

MAX_ROUND_REPLY = 24 << 10  # bytes of answers, about, in one message of a round
MAX_SHOWN = 120  # characters of a value that explain shows

Send = Callable[[Message], None]
SendDoing = Callable[[int, str], None]  # the message that is sent before each rule


class Service:
    """Answers messages, by `send`."""

    def __init__(self, send: Send, send_doing: SendDoing | None = None) -> None:
        self._send = send
        self._send_doing = send_doing or self._send_doing_as_any
        self._engine = Engine()
        self._cache = JobCache()

    def policies(self, message: Message) -> None:
        """Other policies from now on; kept jobs are judged anew."""
        if message.get("anew"):
            self._engine = Engine()
        errors = self._engine.load(message["policies"], self._doing(0), message.get("usage", ()))
        self._cache.drop_answers()
        told: Message = {"verb": "ready", "errors": errors[:MAX_ERRORS]}
        if message.get("list"):
            told["rules"] = [asdict(rule) for rule in self._engine.rules]
        self._send(told)

    def decide(self, message: Message, ad: bytes) -> None:
        """One job, by its ad."""
        began = time.thread_time()  # the process's clock stands still between ticks while its timer runs
        number, doing = message["id"], self._doing(message["id"])
        try:
            parsed = JobAd(ad)
            now = message.get("now") or time.time()
            names = identity_of(parsed)
            job = job_of(parsed, message, now)
            trace: list[RuleTrace] | None = [] if message.get("trace") else None
            answer = self._engine.decide(job, now, doing, trace)
            answer["entries"] = self._engine.entries(job, message.get("entries", ()), doing)
        except Exception as error:
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            self._send({"verb": "failed", "id": number, "reason": f"the job's ad {reason}"[:120]})
            return
        if "key" in message:
            self._cache.add(message, ad, job, answer)
        told: Message = {"verb": "decided", "id": number, "identity": names, **answer}
        if message.get("clock"):
            told["cpu_seconds"] = time.thread_time() - began
        if trace is not None:
            told["trace"] = [_traced(trace) for trace in trace]
        self._send(told)

    def decide_many(self, message: Message, body: bytes) -> None:
        """A round over kept jobs, by their numbers."""
        columns, width = Columns(message["usage"]), len(message["usage"])
        numbers = memoryview(body).cast("d") if body else memoryview(b"")
        answers: dict[str, Message] = {}
        unknown, size = [], 0
        for index, key in enumerate(message["keys"]):
            cached = self._cache.get(key)
            if cached is None:
                unknown.append(key)
                continue
            cached.job.usage = columns, numbers[index * width : (index + 1) * width]
            answer = self._decided(cached.job, message, key)
            cached.job.usage = None  # it would keep the numbers of all
            text = json.dumps(answer)
            if cached.is_news(text):
                answers[key] = answer
                cached.job.state = answer["state"]
                size += len(text)
            if size > MAX_ROUND_REPLY:
                self._send_round(message, answers, [], more=True)
                answers, size = {}, 0
        self._send_round(message, answers, unknown, more=False)

    def _decided(self, job: Job, message: Message, key: str) -> Message:
        doing = self._doing(message["id"], f" on {key}") if message.get("careful") else None
        answer = self._engine.decide(job, message["now"], doing)
        tell = self._doing(message["id"])  # its author can write what ends this process, and is to be blamed
        answer["entries"] = self._engine.entries(job, message.get("entries", ()), tell)
        return answer

    def _send_round(self, message: Message, answers: Message, unknown: list[str], more: bool) -> None:
        told = {"verb": "decided_many", "id": message["id"], "answers": answers, "unknown": unknown, "more": more}
        self._send(told)

    def forget(self, message: Message) -> None:
        """These jobs are over."""
        for key in message["keys"]:
            self._cache.forget(key)

    def read(self, message: Message) -> None:
        """What a person wrote."""
        wrong = [written for written in message["values"] if not is_value(written)]
        self._send({"verb": "was_read", "id": message["id"], "wrong": wrong})

    def replay(self, message: Message, ads: bytes) -> None:
        """Jobs of the past."""
        self._send({"verb": "doing", "id": message["id"], "what": "the job's ad"})
        results, start = [], 0
        for length in message["lengths"]:
            results.append(replay(self._engine, ads[start : start + length], message))
            start += length
        self._send({"verb": "replayed", "id": message["id"], "results": results})

    def _doing(self, number: int, more: str = "") -> Callable[[str], None]:
        """Tells what is done next, where that is something else than before."""
        told = ""

        def tell(what: str) -> None:
            nonlocal told
            if what != told:
                told = what
                self._send_doing(number, what + more)

        return tell

    def _send_doing_as_any(self, number: int, what: str) -> None:
        self._send({"verb": "doing", "id": number, "what": what})


def _traced(trace: RuleTrace) -> Message:
    return {
        "file": trace.rule.file,
        "line": trace.rule.line,
        "rule": trace.rule.name,
        "matched": trace.matched,
        "why": trace.why[:MAX_SHOWN],
        "reads": [[key[:MAX_SHOWN], shown(value)] for key, value in trace.reads[:40]],
    }


def shown(value: Plain) -> str:
    """A value as a ClassAd writes it, short."""
    return _classad(value)[:MAX_SHOWN]


def _classad(value: Any) -> str:
    if value is None or value is ERROR or value is GROUP:
        return "undefined" if value is None else "error" if value is ERROR else "..."
    if isinstance(value, list):
        return "{" + ", ".join(map(_classad, value[:20])) + "}"
    if isinstance(value, dict):
        return "[" + "; ".join(f"{name} = {_classad(item)}" for name, item in list(value.items())[:20]) + "]"
    return json.dumps(value)
