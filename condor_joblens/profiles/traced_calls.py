"""What a trace that stands for a job's life has seen until a moment, as it is kept: the artifact `trace`.

JSON of one object. `Version` rises if what is there changes its meaning. A reader skips keys and ends of calls that it
does not know, so that what is new needs no other version. What it says comes from the job: whoever shows it escapes it.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from condor_joblens.common.quantile_sketch import QuantileSketch
from condor_joblens.profiles.checked_numbers import Checked

_checked = Checked("a trace that makes no sense")

KIND = "trace"
CONTENT_TYPE = "application/json"
FORMAT, VERSION = "joblens-trace", 1

MOST_BYTES = 1 << 20
MOST_FUNCTIONS, MOST_NODES, MOST_CALLS, MOST_NOTES = 1024, 1000, 2000, 100
MOST_LONG = 500
"""Of the calls, those that took longest of the ones that are not among the last: a quick one comes soon again."""

MOST_DEEP = 64

_COUNTS = (
    "Processes", "Calls", "Returned", "LeftByJump", "Unwound", "EndNotSeen", "EndUnknown", "BegunBefore", "LostHits",
    "NotOurs",
)  # fmt: skip
_SECONDS = ("TotalSeconds", "LongestSeconds", "CoveredSeconds")
_TRUTHS = ("SwitchedOff", "SwitchesStacks", "EntriesAlone")


@dataclass(frozen=True)
class Function:
    """The sums of one function."""

    name: str
    file: str
    begun: float  # when it was first probed, epoch seconds
    unseen: Optional[float]  # seconds that processes ran before, in which it may have been called; None: not known
    counts: dict[str, int]
    seconds: dict[str, float]
    truths: dict[str, bool]
    share: float  # of the time for which calls were counted, in which they were: less than 1 where it is in bursts
    times: QuantileSketch  # of calls that returned or left, ns


@dataclass(frozen=True)
class Node:
    """Calls of a function that were made the same way."""

    parent: int  # an earlier node's number; -1: none
    function: int
    depth: int
    calls: int
    unwound: int
    seconds: float  # of those that returned or left


@dataclass(frozen=True)
class Call:
    """One call that has ended."""

    time: float  # epoch seconds
    pid: int
    tid: int
    function: int
    arguments: Optional[list[str]]
    end: str
    seconds: Optional[float]
    result: Optional[str]
    depth: int


@dataclass(frozen=True)
class TracedCalls:
    """All of it."""

    begun: float  # epoch seconds
    ended: float
    notes: list[str]
    functions: list[Function]
    tree: list[Node]
    folded: int  # calls that have no place in the tree
    calls: list[Call] = field(default_factory=list)  # the last ones, and some that took long before


class LastCalls:
    """Calls as they are kept, of which there may be any number: the last ones, and before these the longest ones."""

    def __init__(self) -> None:
        self._last: deque[list[Any]] = deque(maxlen=MOST_CALLS - MOST_LONG)
        self._long: list[tuple[float, int, list[Any]]] = []  # a heap: seconds, number, call
        self._number = 0

    def add(self, call: list[Any]) -> None:
        """One more, as an artifact has it."""
        if len(self._last) == self._last.maxlen:
            self._number += 1
            before = self._last[0]
            took = math.inf if before[5] == "entered" else before[6] or 0.0  # what goes on is around the others
            told = (took, self._number, before)
            if len(self._long) < MOST_LONG:
                heapq.heappush(self._long, told)
            else:
                heapq.heappushpop(self._long, told)
        self._last.append(call)

    def all(self) -> list[list[Any]]:
        """In the order in which they came."""
        return [*(call for _, _, call in sorted(self._long, key=lambda each: each[1])), *self._last]


def encode(told: dict[str, Any], calls: Sequence[list[Any]]) -> bytes:
    """The content of an artifact of at most MOST_BYTES: of the `calls`, so many of the last ones as there is room."""
    calls = list(calls)[-MOST_CALLS:]
    while True:
        whole = {"Format": FORMAT, "Version": VERSION, **told, "LastCalls": calls}
        content = json.dumps(whole, separators=(",", ":")).encode()
        if len(content) <= MOST_BYTES or not calls:
            return content
        calls = calls[len(calls) // 2 + 1 :]


def decode(content: bytes) -> TracedCalls:
    """Raises ValueError for what is none, or of a version that this one can't read."""
    try:
        told = json.loads(content)
        if not isinstance(told, dict) or told.get("Format") != FORMAT:
            raise ValueError("this is no trace")
        if told.get("Version") != VERSION:
            raise ValueError(f"version {told.get('Version')!r:.20}: install a newer joblens")
        functions = [_function(each) for each in told["Functions"][:MOST_FUNCTIONS]]
        return TracedCalls(
            begun=_checked.seconds(told["Begun"]),
            ended=_checked.seconds(told["Ended"]),
            notes=[str(note) for note in told.get("Notes", [])[:MOST_NOTES]],
            functions=functions,
            tree=_tree(told.get("Tree", []), len(functions)),
            folded=_checked.count(told.get("Folded", 0)),
            calls=[_call(len(functions), *each[:9]) for each in told.get("LastCalls", [])[-MOST_CALLS:]],
        )
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise ValueError("a trace that makes no sense") from None


def _function(told: dict[str, Any]) -> Function:
    return Function(
        name=str(told["Function"]),
        file=str(told["File"]),
        begun=_checked.seconds(told["From"]),
        unseen=None if told["UnseenSeconds"] is None else _checked.seconds(told["UnseenSeconds"]),
        counts={name: _checked.count(told[name]) for name in _COUNTS},
        seconds={name: _checked.seconds(told[name]) for name in _SECONDS},
        truths={name: bool(told[name]) for name in _TRUTHS},
        share=min(1.0, _checked.seconds(told.get("CoveredShare", 1.0))),
        times=QuantileSketch(told["Times"]),
    )


def _tree(told: list[list[Any]], functions: int) -> list[Node]:
    nodes: list[Node] = []
    for parent, function, calls, unwound, seconds, *_ in told[:MOST_NODES]:
        if not -1 <= _checked.integer(parent) < len(nodes) or not 0 <= _checked.integer(function) < functions:
            raise ValueError("a trace that makes no sense")
        depth = 0 if parent < 0 else nodes[parent].depth + 1
        if depth > MOST_DEEP:
            raise ValueError("a trace that makes no sense")
        nodes.append(
            Node(parent, function, depth, _checked.count(calls), _checked.count(unwound), _checked.seconds(seconds))
        )
    return nodes


def _call(
    functions: int,
    time: float,
    pid: int,
    tid: int,
    function: int,
    arguments: list[str] | None,
    end: str,
    took: float | None,
    result: str | None,
    depth: int,
) -> Call:
    if not 0 <= _checked.integer(function) < functions:
        raise ValueError("a trace that makes no sense")
    return Call(
        _checked.seconds(time),
        _checked.count(pid),
        _checked.count(tid),
        function,
        None if arguments is None else [str(each) for each in arguments],
        str(end),
        None if took is None else _checked.seconds(took),
        None if result is None else str(result),
        _checked.count(depth),
    )
