"""Rings into which Pythons of a job record their calls (hooks/python/joblens_calls.c), and what is read of them.

A ring is a file in memory that joblensd has made and sealed, and that a process of the job writes. So nobody can
shorten it. But whatever is in it is the job's word: each number is checked here, in a process without rights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional, Union

import numpy as np

from condor_joblens.common.redact import Redactor
from condor_joblens.profiles import traced_calls
from condor_joblens.tracing.call_tree import ROOT, CallTree

CODES, RECORDS = 1536, 16384
HEAD_BYTES = 4096

HEAD: np.dtype[Any] = np.dtype(
    [("records", "<u8"), ("codes", "<u8"), ("others", "<u8"), ("lived_ns", "<u8"), ("seen_ns", "<u8")]
)
CODE: np.dtype[Any] = np.dtype(
    [
        ("calls", "<u8"), ("returned", "<u8"), ("unwound", "<u8"), ("total_ns", "<u8"), ("longest_ns", "<u8"),
        ("over_ns", "<u8"),
        ("line", "<u4"), ("is_ready", "<u4"), ("file", "S128"), ("name", "S72"),
    ]
)  # fmt: skip
RECORD: np.dtype[Any] = np.dtype(
    [("number", "<u8"), ("time_ns", "<u8"), ("code", "<u4"), ("pid", "<u4"), ("tid", "<u4"), ("kind_and_line", "<u4")]
)
LENGTH = struct.Struct(">I")
RING_BYTES = HEAD_BYTES + CODES * CODE.itemsize + RECORDS * RECORD.itemsize
"""Less than 1 MiB."""

START, RESUME, RETURN, YIELD, UNWIND, VALUE, RAISE, BURST = range(1, 9)
VALUE_BYTES, MOST_VALUES = 20, 3
"""Of a value: bytes in a record of its own, in place of time_ns to tid; such records after a RETURN or RAISE."""
MOST_ARGUMENTS, ARGUMENT_RECORDS = 2, 5
"""After a START: arguments, and such records of each, whose numbers have 4 bits each. They say NAME=VALUE."""

_GREATEST = 1 << 48
"""Of a sum: all functions of all rings can have the same name, and together they fit."""
_DEEP = 4096  # calls of a thread that have not ended
_SLACK = 1.0  # seconds by which a record may be older than its ring, or newer than its reading
_LOOK_SECONDS = 2.0
_ROOM = traced_calls.MOST_BYTES * 3 // 4  # bytes of an artifact for functions; the rest is for its tree and calls
_TIMES = 32  # bytes by which the times of a function can be longer when they are written


def create() -> int:
    """A descriptor of an empty ring, whose size nobody changes any more. Its memory is that of whoever writes it.

    Raises OSError.
    """
    descriptor = os.memfd_create("joblens_calls", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, RING_BYTES)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_over(ring: int) -> bool:
    """Whether no process has it in its memory any more; from then on nobody can write to it.

    Who was given it and does not have it in its memory yet can't write either.
    """
    try:
        fcntl.fcntl(ring, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    except OSError:  # EBUSY
        return False
    return True


def copied(ring: int) -> int:
    """A descriptor of a copy, which is nobody's but of who has made it. Raises OSError."""
    copy = os.memfd_create("joblens_calls", os.MFD_CLOEXEC)
    try:
        os.ftruncate(copy, RING_BYTES)
        at = 0
        with contextlib.suppress(OSError):  # ENXIO: there is nothing behind
            while at < RING_BYTES:
                begin = os.lseek(ring, at, os.SEEK_DATA)
                at = os.lseek(ring, begin, os.SEEK_HOLE)
                os.pwrite(copy, os.pread(ring, at - begin, begin), begin)
    except OSError:
        os.close(copy)
        raise
    return copy


@dataclass(frozen=True)
class About:
    """What joblensd says of the rings of a run."""

    begun: list[float]  # epoch seconds, of each ring
    ended: float  # when they are read
    epoch: float  # the time, epoch seconds, at which CLOCK_MONOTONIC was 0
    notes: list[str]
    over: int = 0  # so many of the rings, the first ones, are over


@dataclass
class _Heads:
    """What the heads of all rings say."""

    is_overwritten: bool = False
    bursts: int = 0  # rings of Pythons that are recorded in bursts
    lived_ns: int = 0  # of these
    seen_ns: int = 0
    others: int = 0
    left_out: int = 0  # functions for which an artifact had no room

    def add(self, ring: bytes) -> None:
        """One ring more."""
        head = np.frombuffer(ring, HEAD, 1)[0]
        self.is_overwritten |= int(head["records"]) > RECORDS
        if head["lived_ns"]:
            self.bursts += 1
            self.lived_ns += min(int(head["lived_ns"]), _GREATEST)
            self.seen_ns += min(int(head["seen_ns"]), _GREATEST)
        self.others += min(int(head["others"]), _GREATEST)

    def notes(self, kept: int) -> list[str]:
        """In words; so many functions are kept."""
        notes = []
        if self.left_out:
            most = "those in which most time was spent"
            notes.append(f"{kept} functions are kept, {most}; {self.left_out} more were called")
        if self.is_overwritten:
            notes.append(f"the tree is that of the last {RECORDS} begins and ends of calls of each process")
        if self.bursts:
            share = f"{100 * min(1.0, self.seen_ns / self.lived_ns):.1f} % of the time"
            notes.append(f"{self.bursts} Pythons are older than 3.12: calls of their main threads were seen {share}")
        if self.others:
            notes.append(f"{self.others} functions of chosen files found no room: a process has {CODES}")
        return notes


@dataclass
class _Sums:
    """A function of all rings."""

    name: str
    file: str
    begun: float
    processes: int = 0
    calls: int = 0
    returned: int = 0
    unwound: int = 0
    total: float = 0.0
    longest: float = 0.0
    over: float = math.inf  # epoch seconds from which a ring does not count its calls any more
    lived: float = 0.0
    seen: float = 0.0

    def add(self, code: Any, begun: float, about: About, lived: float, seen: float) -> None:
        """What a ring has of it. No sum is greater than it can be shown.

        Its Pythons ran for `lived` seconds, and of them calls were recorded for `seen`.
        """
        self.lived += lived
        self.seen += seen
        if code["over_ns"]:
            at = about.epoch + min(int(code["over_ns"]), _GREATEST) / 1e9
            self.over = min(self.over, max(begun, min(at, about.ended)))
        self.begun = min(self.begun, begun)
        self.processes += 1
        self.calls += min(int(code["calls"]), _GREATEST)
        self.returned += min(int(code["returned"]), _GREATEST)
        self.unwound += min(int(code["unwound"]), _GREATEST)
        self.total += min(int(code["total_ns"]), _GREATEST) / 1e9
        self.longest = max(self.longest, min(int(code["longest_ns"]), _GREATEST) / 1e9)

    @classmethod
    def of(cls, told: dict[str, Any], parts: Sequence[Any]) -> _Sums:
        """As it was told before, with `parts`."""
        over, lived, seen = parts
        return cls(
            name=told["Function"],
            file=told["File"],
            begun=told["From"],
            processes=told["Processes"],
            calls=told["Calls"],
            returned=told["Returned"],
            unwound=told["Unwound"],
            total=told["TotalSeconds"],
            longest=told["LongestSeconds"],
            over=math.inf if over is None else over,
            lived=lived,
            seen=seen,
        )

    @property
    def parts(self) -> list[float | None]:
        """What is not told otherwise."""
        return [None if self.over == math.inf else self.over, self.lived, self.seen]

    def told(self, ended: float) -> dict[str, Any]:
        """As an artifact has it (profiles/traced_calls.py)."""
        share = self.seen / self.lived if self.lived > 0 else 1.0
        zeros = dict.fromkeys(("LeftByJump", "EndUnknown", "BegunBefore", "LostHits", "NotOurs"), 0)
        return {
            "Function": self.name,
            "File": self.file,
            "From": self.begun,
            "UnseenSeconds": 0.0,
            "Processes": self.processes,
            "Calls": self.calls,
            "Returned": self.returned,
            "Unwound": self.unwound,
            "EndNotSeen": max(0, self.calls - self.returned - self.unwound),
            **zeros,
            "TotalSeconds": self.total,
            "LongestSeconds": self.longest,
            "CoveredSeconds": max(0.0, min(ended, self.over) - self.begun) * share,
            "CoveredShare": share,
            "SwitchedOff": self.over < math.inf,
            **dict.fromkeys(("SwitchesStacks", "EntriesAlone"), False),
            "Times": [],
        }


_Said = Union[int, bytes, "list[bytes]", None]
"""What comes with an event, beside when and where: a line, a value, or arguments."""


@dataclass
class _Open:
    function: int
    time_ns: int
    node: int
    arguments: Optional[list[bytes]] = None


class _Thread:
    """The open calls of a thread. An end that is none of theirs costs nothing: a job can write such ends alone."""

    def __init__(self) -> None:
        self.calls: list[_Open] = []
        self._count: dict[int, int] = {}  # by function

    def begin(self, call: _Open) -> None:
        """One more, of which only the last ones are known."""
        self.calls.append(call)
        self._count[call.function] = self._count.get(call.function, 0) + 1
        if len(self.calls) > _DEEP:
            self._forget(self.calls[:1])
            del self.calls[0]

    def end(self, function: int) -> _Open | None:
        """The last one of this function, which has ended with all that it had called."""
        if not self._count.get(function):
            return None
        at = next(at for at in range(len(self.calls) - 1, -1, -1) if self.calls[at].function == function)
        call = self.calls[at]
        self._forget(self.calls[at:])
        del self.calls[at:]
        return call

    def clear(self) -> None:
        """None is open."""
        self.calls.clear()
        self._count.clear()

    def _forget(self, calls: list[_Open]) -> None:
        for each in calls:
            self._count[each.function] -= 1


@dataclass
class _Last:
    """The last calls, of all rings."""

    epoch: float  # the time, epoch seconds, at which CLOCK_MONOTONIC was 0
    tree: CallTree = field(default_factory=CallTree)
    ended: list[list[Any]] = field(default_factory=list)
    open: dict[tuple[int, int, int], _Thread] = field(default_factory=dict)  # ring, process, thread

    def take(self, thread: tuple[int, int, int], kind: int, function: int, when: int, said: _Said) -> None:
        """An event at `when` (ns), with the line that it left, the value that it returned, or its arguments.

        An end whose begin was overwritten says nothing.
        """
        opened = self.open.setdefault(thread, _Thread())
        calls = opened.calls
        if kind == BURST:  # what was begun before has ended unseen, or goes on
            for depth, call in enumerate(calls):
                self._keep(thread, call, "entered", call.time_ns, None, depth)
            opened.clear()
            return
        if kind == RAISE:
            depth = max(0, len(calls) - 1)
            self.ended.append([self.epoch + when / 1e9, *thread[1:], function, None, "raised", None, said, depth])
            return
        if kind in (START, RESUME):
            parent = calls[-1].node if calls else ROOT
            is_folded = bool(calls) and parent == ROOT
            node = ROOT if is_folded else self.tree.enter(parent, function)
            self.tree.folded += is_folded
            if kind == RESUME and node != ROOT:  # the same call goes on
                self.tree.nodes[node].calls -= 1
            opened.begin(_Open(function, when, node, said if isinstance(said, list) else None))
            return
        call_that_ends = opened.end(function)
        if call_that_ends is None:
            return
        call = call_that_ends
        if kind == UNWIND:
            self.tree.unwind(call.node)
        else:
            self.tree.end(call.node, max(0, when - call.time_ns))
        if kind != YIELD:
            self._keep(thread, call, "unwound" if kind == UNWIND else "returned", when, said, len(calls))

    def _keep(self, thread: tuple[int, int, int], call: _Open, end: str, when: int, said: _Said, depth: int) -> None:
        took = None if end == "entered" else max(0, when - call.time_ns) / 1e9
        result = said or None
        begun = self.epoch + call.time_ns / 1e9
        self.ended.append([begun, thread[1], thread[2], call.function, call.arguments, end, took, result, depth])

    def take_known(self, known: dict[str, Any], numbers: dict[int, int]) -> None:
        """What was told before, by the numbers that its functions have now."""
        nodes: list[int] = []
        for parent, function, calls, unwound, seconds in known.get("Tree", ()):
            above = ROOT if parent == ROOT else nodes[parent]
            is_lost = function not in numbers or (parent != ROOT and above == ROOT)
            nodes.append(ROOT if is_lost else self.tree.enter(above, numbers[function]))
            if nodes[-1] == ROOT:
                self.tree.folded += calls - (not is_lost)  # where there is no room, it counts one
                continue
            node = self.tree.nodes[nodes[-1]]
            node.calls += calls - 1
            node.unwound += unwound
            node.total_ns += round(seconds * 1e9)
        self.tree.folded += known.get("Folded", 0)
        self.ended += [
            [*each[:3], numbers[each[3]], *each[4:]] for each in known.get("LastCalls", ()) if each[3] in numbers
        ]

    def told(self, names: Sequence[str]) -> list[list[Any]]:
        """Those that have ended, and those that have not, by their begins: the last ones and the longest."""
        for thread, opened in self.open.items():
            for depth, call in enumerate(opened.calls):
                self._keep(thread, call, "entered", call.time_ns, None, depth)
        self.open = {}
        last = traced_calls.LastCalls()
        for ended in sorted(self.ended, key=lambda each: each[0]):
            last.add(ended)
        redactor = Redactor(_LOOK_SECONDS)
        return [
            [
                *each[:4],
                each[4] and [_argument(redactor, argument) for argument in each[4]],
                *each[5:7],
                _result(redactor, names[each[3]], each[5], each[7]),
                each[8],
            ]
            for each in last.all()
        ]


def _argument(redactor: Redactor, said: bytes | str) -> str:
    """`run = 3`."""
    if isinstance(said, str):  # it was told before
        return said
    name, _, value = said.partition(b"=")
    shown = name.decode("utf-8", "replace")
    cut = len(said) == VALUE_BYTES * ARGUMENT_RECORDS
    return f"{redactor.line(name)} = {redactor.variable(shown, value, cut=cut)}"


def _result(redactor: Redactor, function: str, end: str, said: _Said | str) -> str | None:
    """How the end of a call is told. A value that can go on has lost its last word: it may be half a secret."""
    if isinstance(said, str):  # it was told before
        return said
    if isinstance(said, bytes):
        if end == "raised":
            return redactor.line(said)
        name = function.partition(" ")[0].rpartition(".")[2]
        return redactor.variable(name, said, cut=len(said) == VALUE_BYTES * MOST_VALUES)
    return f"left at line {said}" if said else None


def read(rings: Sequence[bytes], about: About, before: bytes) -> bytes:
    """What is known of all rings that are over by now, and the artifact of all: `parts_of` has them apart.

    `before` is what was known of others that were over before, or empty.
    """
    over = about.over
    if over:
        first = dataclasses.replace(about, begun=about.begun[:over])
        before = _made_of(rings[:over], first, before, is_artifact=False)
    rest = dataclasses.replace(about, begun=about.begun[over:])
    return LENGTH.pack(len(before)) + before + _made_of(rings[over:], rest, before)


def parts_of(said: bytes) -> tuple[bytes, bytes]:
    """What `read` has said: what is known for the next time, and the artifact; empty if that makes no sense."""
    end = LENGTH.size + (LENGTH.unpack_from(said)[0] if len(said) >= LENGTH.size else 0)
    return said[LENGTH.size : end], said[end:]


def made_of(rings: Sequence[bytes], about: About) -> bytes:
    """The artifact of these rings alone (profiles/traced_calls.py)."""
    return _made_of(rings, about, b"")


def _made_of(rings: Sequence[bytes], about: About, before: bytes, *, is_artifact: bool = True) -> bytes:
    known: dict[str, Any] = json.loads(before) if before else {}
    heads = _Heads(*known.get("Heads", ()))
    for ring in rings:
        heads.add(ring)
    (own, *numbers), sums, left_out = _functions(rings, about, known)
    heads.left_out += left_out
    last = _Last(about.epoch)
    last.take_known(known, own)
    for number, found in enumerate(numbers):
        _take_ring(last, number, rings[number], found, about)
    told = {
        "Begun": min([*about.begun, *([known["Begun"]] if known else [])]),
        "Ended": about.ended,
        "Functions": [each.told(about.ended) for each in sums],
        "Tree": [[node.parent, node.function, max(0, node.calls), max(0, node.unwound), node.total_ns / 1e9]
                 for node in last.tree.nodes],
        "Folded": last.tree.folded,
    }  # fmt: skip
    if is_artifact:
        told["Notes"] = [*about.notes, *heads.notes(len(sums))]
    else:
        told["Heads"], told["Parts"] = list(vars(heads).values()), [each.parts for each in sums]
    return traced_calls.encode(told, last.told([each.name for each in sums]))


def _take_ring(last: _Last, number: int, ring: bytes, functions: dict[int, int], about: About) -> None:
    """The events of one ring, by the numbers of its functions."""
    head = np.frombuffer(ring, HEAD, 1)[0]
    begun, ended = (round((at - about.epoch) * 1e9) for at in (about.begun[number] - _SLACK, about.ended + _SLACK))
    values = _values(ring, int(head["records"]))
    for event in _events(ring, int(head["records"])):
        when = int(event["time_ns"])
        kind, said = int(event["kind_and_line"]) & 255, int(event["kind_and_line"]) >> 8
        function = -1 if kind == BURST else functions.get(int(event["code"]))
        if function is not None and begun <= when <= ended:
            value: _Said = said
            if kind == RETURN:
                value = _value(values, int(event["number"]) + 1, said)
            elif kind == START:
                value = _arguments(values, int(event["number"]) + 1, said)
            elif kind == RAISE:
                value = _raised(values, int(event["number"]), said)
            last.take((number, int(event["pid"]), int(event["tid"])), kind, function, when, value)


def _functions(
    rings: Sequence[bytes], about: About, known: dict[str, Any]
) -> tuple[list[dict[int, int]], list[_Sums], int]:
    """For what is known and for each ring: the number that a function of its own has among all.

    The functions, the most time first. And how many more there are, for which there is no room.
    """
    redactor = Redactor(_LOOK_SECONDS)
    texts: dict[bytes, str] = {}
    before = [_Sums.of(*each) for each in zip(known.get("Functions", ()), known.get("Parts", ()))]
    sums = {(each.name, each.file): each for each in before}
    own = [{number: (each.name, each.file) for number, each in enumerate(before)}]
    for ring, begun in zip(rings, about.begun):
        lived, seen = _seen(ring, about.ended - begun)
        codes: np.ndarray = np.frombuffer(ring, CODE, CODES, HEAD_BYTES)
        keys: dict[int, tuple[str, str]] = {}
        for number in np.flatnonzero((codes["is_ready"] != 0) & (codes["calls"] != 0)).tolist():
            code = codes[number]
            file, name = (_text(redactor, bytes(code[column]), texts) for column in ("file", "name"))
            keys[number] = f"{name} ({file.rpartition('/')[2]}:{int(code['line'])})", file
            sums.setdefault(keys[number], _Sums(*keys[number], begun)).add(code, begun, about, lived, seen)
        own.append(keys)
    most_time = sorted(sums, key=lambda key: (-sums[key].total, -sums[key].calls))
    places = {key: number for number, key in enumerate(most_time[: _how_many(sums[key] for key in most_time)])}
    numbers = [{number: places[key] for number, key in keys.items() if key in places} for keys in own]
    return numbers, [sums[key] for key in places], len(sums) - len(places)


def _seen(ring: bytes, seconds: float) -> tuple[float, float]:
    """For how many seconds its Pythons ran, and for how many of them calls were recorded."""
    head = np.frombuffer(ring, HEAD, 1)[0]
    lived, seen = (min(int(head[column]), _GREATEST) / 1e9 for column in ("lived_ns", "seen_ns"))
    return (max(lived, seen), seen) if lived else (seconds, seconds)


def _how_many(functions: Iterator[_Sums]) -> int:
    """Of the functions, so many of the first as there is room for in an artifact."""
    room, count = _ROOM, 0
    for function in functions:
        room -= len(json.dumps(function.told(function.begun))) + _TIMES
        if room < 0 or count == traced_calls.MOST_FUNCTIONS:
            break
        count += 1
    return count


def _text(redactor: Redactor, raw: bytes, known: dict[bytes, str]) -> str:
    if raw not in known:
        known[raw] = redactor.line(raw) if raw else "?"
    return known[raw]


def _whole(ring: bytes, begun: int) -> np.ndarray:
    """The records that are whole."""
    records: np.ndarray = np.frombuffer(ring, RECORD, RECORDS, HEAD_BYTES + CODES * CODE.itemsize)
    numbers = records["number"]
    places = np.arange(RECORDS, dtype=np.uint64)
    whole = (numbers > 0) & (numbers <= begun) & ((numbers - np.uint64(1)) % np.uint64(RECORDS) == places)
    found: np.ndarray = records[whole]
    return found


def _events(ring: bytes, begun: int) -> Iterator[Any]:
    """Begins and ends of calls, and exceptions, in their order."""
    records = _whole(ring, begun)
    kinds = records["kind_and_line"] & 255
    chosen = records[
        (records["code"] < CODES) & (((kinds >= START) & (kinds <= UNWIND)) | (kinds == RAISE) | (kinds == BURST))
    ]
    yield from chosen[np.argsort(chosen["number"], kind="stable")]


def _values(ring: bytes, begun: int) -> dict[int, bytes]:
    """Parts of returned values, by the numbers of their records."""
    records = _whole(ring, begun)
    chosen = records[records["kind_and_line"] & 255 == VALUE]
    return {
        int(each["number"]): each.tobytes()[8 : 8 + min(int(each["kind_and_line"]) >> 8, VALUE_BYTES)]
        for each in chosen
    }


def _value(values: dict[int, bytes], number: int, count: int, most: int = MOST_VALUES) -> bytes | None:
    """The value in so many records from this number on; None: there is none, or not all of it."""
    parts = [values.get(number + at) for at in range(min(count, most))]
    return None if None in parts else b"".join(filter(None, parts))


def _arguments(values: dict[int, bytes], number: int, counts: int) -> list[bytes] | None:
    """What a call was begun with, in records from this number on; None: nothing is known of it."""
    found: list[bytes] = []
    for at in range(MOST_ARGUMENTS):
        count = counts >> 4 * at & 15
        value = _value(values, number, count, ARGUMENT_RECORDS)
        number += count
        if value:
            found.append(value)
    return found or None


def _raised(values: dict[int, bytes], number: int, line: int) -> bytes:
    """An exception's type and line."""
    parts: list[bytes] = []
    while len(parts) < MOST_VALUES and (not parts or len(parts[-1]) == VALUE_BYTES):
        parts.append(values.get(number + 1 + len(parts), b""))
    return (b"".join(parts) or b"an exception") + b" at line %d" % line
