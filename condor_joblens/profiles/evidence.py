"""What was seen of a job's threads (profiling/look.py), put together from the parts in which it is told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.profiles import caller
from condor_joblens.profiles.thread import INTERPRETER_LOCK, Frame, Thread

MOST_CALLERS = 4
"""Threads of a deadlock whose places are told in a sentence."""

MOST_PLACES = 3
"""Of other threads, of which one is waited for."""

_FUTEX = "futex"
_LONGEST = 2000
_NO_THREAD = Thread(0, 0, 0, "", "", 0.0, "", ())


@dataclass
class Evidence:
    """All of it. `is_whole` is false if it ended before its time, `left_out` how many threads are not among them."""

    threads: list[Thread] = field(default_factory=list)
    cause: str = "unknown"
    verdict: str = ""
    tid: int = 0
    left_out: int = 0
    is_whole: bool = False
    cycle: tuple[int, ...] = ()  # threads of a deadlock: each waits for the next one, and the last for the first

    def add(self, part: Mapping[str, Any]) -> None:
        """Another part. Raises ValueError, TypeError, KeyError or AttributeError if it is none."""
        if part["part"] == "threads":
            self.threads = [_thread(each) for each in part["threads"]]
            self.left_out = int(part["left_out"])
        elif part["part"] == "more":
            self.threads += [_thread(each) for each in part["threads"]]
            self.left_out = int(part["left_out"])
            by_tid = {thread.tid: thread for thread in self.threads}
            for tid, count in part["alike"].items():
                by_tid[int(tid)].alike = int(count)
        elif part["part"] == "waits":
            self.cause, self.verdict, self.tid = _text(part["cause"]), _text(part["sentence"]), int(part["tid"])
            self.cycle = tuple(map(int, part.get("cycle", ())))
            self._add_waits(part["waits"])
        elif part["part"] == "stacks":
            self._add_stacks(part["stacks"], _text(part["refused"]))
        elif part["part"] == "end":
            self.is_whole = True

    def _add_waits(self, waits: Mapping[str, Any]) -> None:
        by_tid = {thread.tid: thread for thread in self.threads}
        for tid, wait in waits.items():
            thread = by_tid[int(tid)]
            thread.cause, thread.object, thread.holder = (_text(wait[name]) for name in ("cause", "object", "holder"))
            thread.holder_pid, thread.holder_tid = int(wait["holder_pid"]), int(wait["holder_tid"])
            thread.descriptor, thread.is_silent = int(wait.get("descriptor", -1)), bool(wait.get("silent", False))
            thread.holder_job, thread.target = _text(wait.get("holder_job", "")), _text(wait.get("target", ""))
            thread.filesystem, thread.mount = _text(wait.get("filesystem", "")), _text(wait.get("mount", ""))
            thread.protocol, thread.peer = _text(wait.get("protocol", "")), _text(wait.get("peer", ""))

    def _add_stacks(self, stacks: Sequence[Any], refused: str) -> None:
        by_tid = {thread.tid: thread for thread in self.threads}
        for stack in stacks:
            frames = tuple(_frame(frame) for frame in stack["frames"])
            for tid in stack["tids"]:
                thread = by_tid[int(tid)]
                thread.frames, thread.is_whole, thread.refused = frames, bool(stack["whole"]), refused

    @property
    def telling(self) -> Thread | None:
        """The thread that tells the cause; None if none alone does."""
        return next((thread for thread in self.threads if thread.tid == self.tid), None)

    @property
    def sentence(self) -> str:
        """Why the job waits, and who of the job's own has called that."""
        if not self.verdict:
            seen = f"{len(self.threads)} threads" if self.threads else "nothing"
            return f"what it waits for could not be read in time; {seen} were seen"
        called = [(tid, found) for tid in self.cycle or (self.tid,) if (found := self._caller(tid)) is not None]
        if len(self.cycle) > 1:
            some = [f"{tid} in {caller.words(found)}" for tid, found in called[:MOST_CALLERS]]
            return f"{self.verdict}; {', '.join(some)}" if some else self.verdict
        sentence = f"{self.verdict}; called by {self._said(*called[0])}" if called else self.verdict
        places = self._places_of_others()
        named = ", ".join(places[:MOST_PLACES]) + (" and elsewhere" if len(places) > MOST_PLACES else "")
        return f"{sentence}; other threads of the process wait in the same way, in {named}" if places else sentence

    def _places_of_others(self) -> list[str]:
        """Where other threads of the process are, if one waits for any of them: the kernel does not say for which."""
        telling = self.telling
        if telling is None or telling.cause != _FUTEX:
            return []
        others = [each for each in self.threads if each.pid == telling.pid and each is not telling]
        alike = [each for each in others if each.cause == _FUTEX and each.object != INTERPRETER_LOCK]
        found = [(thread, frame) for thread in alike if (frame := caller.own(thread)) is not None]
        return list(dict.fromkeys(caller.said(thread, frame) for thread, frame in found))

    def _said(self, tid: int, frame: Frame) -> str:
        return next(caller.said(thread, frame) for thread in self.threads if thread.tid == tid)

    def _caller(self, tid: int) -> Frame | None:
        return next((caller.of(thread) for thread in self.threads if thread.tid == tid), None)

    def record(self) -> dict[str, Any]:
        """All of it in JSON: first of the thread that tells the cause, then of all."""
        telling = self.telling
        called = caller.of(telling) if telling is not None else None
        return {
            "Cause": self.cause,
            "Sentence": self.sentence,
            "Tid": self.tid,
            "Pid": telling.pid if telling is not None else 0,
            "Thread": telling.name if telling is not None else "",
            **(telling or _NO_THREAD).wait(),
            "Function": called.function if called is not None else "",
            "File": called.file if called is not None else "",
            "Line": called.line if called is not None else 0,
            "Cycle": list(self.cycle),
            "Whole": self.is_whole,
            "LeftOut": self.left_out,
            "Threads": [thread.record() for thread in self.threads],
        }


def parse_kept(content: bytes) -> list[tuple[float, Evidence]]:
    """The looks in an artifact of kind hang. Raises JobLensError."""
    looks, at = [], 0
    try:
        while at < len(content):
            end = content.index(b"\n", at) + 1
            head = json.loads(content[at:end])
            at = end + int(head["bytes"])
            looks.append((float(head["began"]), parse(content[end:at])))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise JobLensError("what was kept of the job makes no sense: install the same version of all parts") from None
    return looks


def parse(data: bytes) -> Evidence:
    """The evidence in lines of JSON, the last of which may be cut off. Raises JobLensError.

    They come from a process of the job's owner, so they may be anything.
    """
    evidence = Evidence()
    try:
        for line in data.split(b"\n")[:-1]:
            evidence.add(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise JobLensError("what was seen of the job makes no sense: install the same version of all parts") from None
    return evidence


def _thread(found: dict[str, Any]) -> Thread:
    return Thread(
        tid=int(found["tid"]),
        pid=int(found["pid"]),
        parent=int(found["parent"]),
        name=_text(found["name"]),
        state=_text(found["state"]),
        waited=float(found["waited"]),
        call=_text(found["call"]),
        kernel=tuple(Frame(_text(function)) for function in found["kernel"]),
    )


def _frame(found: dict[str, Any]) -> Frame:
    return Frame(
        _text(found["function"]),
        _text(found["file"]),
        int(found["offset"]),
        bool(found["guessed"]),
        int(found["line"]),
        bool(found["python"]),
        _text(found.get("build_id", "")),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return printable(value, _LONGEST)
