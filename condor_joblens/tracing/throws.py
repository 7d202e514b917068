"""What a C++ program throws: its type, its text, and the places that it is thrown from.

A place is where a type is thrown in a process. Its stack is looked up once, by the child that is the job's owner.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.profiling.exception_types import MOST_NAME, has_text

MOST_PLACES = 100
"""Whose stacks are looked up; what is thrown from others is counted together."""

MOST_TYPES = 5
MOST_FRAMES = 40
MOST_TOLD_TEXT = 256


@dataclass(frozen=True)
class Throw:
    """One throw, as the program in the kernel has seen it."""

    time_ns: int  # CLOCK_MONOTONIC
    pid: int
    tid: int
    kind: int  # address of the std::type_info
    names: tuple[int, ...]  # addresses of the mangled names of the type and of those that it is made of
    known: tuple[bytes, ...]  # these names, as far as they were in memory; else empty
    text: bytes | None
    registers: tuple[int, int, int]  # instruction, stack and frame pointer
    stack: bytes  # from the stack pointer on

    @property
    def came_from(self) -> bytes:
        """The return address: where it is thrown."""
        return self.stack[:8]


@dataclass
class Place:
    """Where a type is thrown."""

    number: int
    pid: int
    type: str = ""
    has_text: bool = False
    frames: list[tuple[str, str]] = field(default_factory=list)  # function and file, the innermost first
    is_whole: bool = False
    count: int = 0
    text: str = ""  # of the first one


Ask = Callable[[dict[str, Any]], dict[str, Any]]
"""Asks the child that is the owner (profiling/thrown.py); what it says is not to be trusted."""


class Throws:
    """All that was thrown."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._places: dict[tuple[int, int, bytes], Place] = {}
        self.others = 0

    @property
    def places(self) -> list[Place]:
        """By how often, the most frequent first."""
        return sorted(self._places.values(), key=lambda place: -place.count)

    def take(self, thrown: Throw) -> tuple[Place | None, str | None]:
        """Where it was thrown, and its text; None if there is none that can be known."""
        key = thrown.pid, thrown.kind, thrown.came_from
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= MOST_PLACES:
                self.others += 1
                return None, None
            place = self._places[key] = self._look_up(thrown)
        place.count += 1
        if not place.has_text or thrown.text is None:
            return place, None
        text = thrown.text.decode("utf-8", "replace")
        place.text = place.text or text
        return place, text

    def _look_up(self, thrown: Throw) -> Place:
        place = Place(len(self._places), thrown.pid)
        instruction, stack, frame = thrown.registers
        answer = self._ask(
            {
                "thrown": thrown.pid,
                "names": list(thrown.names),
                "known": [base64.b64encode(each).decode() for each in thrown.known],
                "registers": [instruction, stack, frame],
                "stack": base64.b64encode(thrown.stack).decode(),
            }
        )
        mangled = thrown.known[0].decode("utf-8", "replace") if thrown.known else ""
        try:
            place.type = str(answer.get("type") or mangled)[:MOST_NAME]
            place.has_text = has_text(str(each) for each in list(answer.get("names", ()))[:MOST_TYPES])
            frames = list(answer.get("frames", ()))[:MOST_FRAMES]
            place.frames = [(str(function)[:MOST_NAME], str(file)[:MOST_NAME]) for function, file in frames]
            place.is_whole = bool(answer.get("whole"))
        except (TypeError, ValueError):  # it is in the hands of the job
            place.frames = []
        return place
