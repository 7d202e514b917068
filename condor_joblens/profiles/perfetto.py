"""Calls as Perfetto reads them (https://ui.perfetto.dev): its own trace format, a track for each thread.

Each call is a slice, which goes on to the end of the picture if the call does. One that was unwound is a moment: when
it ended is not known. So is an exception. Times are UTC, if one chooses that in Perfetto's menu.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

from condor_joblens.profiles.protobuf import data, number

SUFFIX = ".pftrace"

_SEQUENCE = 1
_BEGIN, _END, _INSTANT = 1, 2, 3  # TrackEvent.Type
_REALTIME, _BOOTTIME = 1, 6  # BuiltinClock; times of packets are taken for the latter
_MOST_TRACKS = 100_000
FUNCTION, EXCEPTION = "function", "exception"


@dataclass(frozen=True)
class Slice:
    """One call."""

    name: str
    pid: int
    tid: int
    begun_ns: int  # since the epoch
    took_ns: Optional[int]  # None: its end is not known
    details: tuple[tuple[str, str], ...] = ()
    goes_on: bool = False  # all that begins later in its thread is within it
    category: str = FUNCTION


class Perfetto:
    """Makes packets of slices. All packets behind each other are a trace."""

    def __init__(self, job: str) -> None:
        """`job` is what its processes are called."""
        self._job = job
        self._known: set[int] = set()
        self._has_time = False

    def packets(self, slices: Iterable[Slice]) -> Iterator[bytes]:
        """Those of all slices, which come in any order.

        Perfetto gives an end to whatever began last in its track, and of one time takes what comes first in the file.
        So each begin comes after those that it is within, and no call ends after the one around it. Times are as exact
        as a float of today is: a quarter of a microsecond.
        """
        tracks: dict[int, list[Slice]] = {}
        for each in slices:
            tracks.setdefault(_track(each.pid, each.tid), []).append(each)
        for track, found in tracks.items():
            yield from self._time(found[0])
            yield from self._tracks(found[0])
            open_until: list[float] = []
            for each in sorted(found, key=lambda each: (each.begun_ns, -(each.took_ns or 0))):
                while open_until and open_until[-1] <= each.begun_ns:
                    yield _event(open_until.pop(), track, _END)
                if each.took_ns is None and not each.goes_on:
                    yield _event(each.begun_ns, track, _INSTANT, each)
                    continue
                yield _event(each.begun_ns, track, _BEGIN, each)
                ends = math.inf if each.took_ns is None else each.begun_ns + each.took_ns
                open_until.append(min([ends, *open_until[-1:]]))
            while open_until and open_until[-1] < math.inf:
                yield _event(open_until.pop(), track, _END)

    def _time(self, each: Slice) -> Iterator[bytes]:
        """Once: times are those of a clock on the wall."""
        if not self._has_time:
            self._has_time = True
            clocks = (data(1, number(1, clock) + number(2, each.begun_ns)) for clock in (_BOOTTIME, _REALTIME))
            yield _packet(data(6, b"".join(clocks)))

    def _tracks(self, each: Slice) -> Iterator[bytes]:
        process, thread = _track(each.pid, 0), _track(each.pid, each.tid)
        if process not in self._known and len(self._known) < _MOST_TRACKS:
            self._known.add(process)
            words = number(1, each.pid) + _text(6, f"job {self._job}")
            yield _packet(data(60, number(1, process) + data(3, words)))
        if thread not in self._known and len(self._known) < _MOST_TRACKS:
            self._known.add(thread)
            words = number(1, each.pid) + number(2, each.tid)
            yield _packet(data(60, number(1, thread) + number(5, process) + data(4, words)))


def _event(at_ns: float, track: int, type: int, each: Slice | None = None) -> bytes:
    event = number(9, type) + number(11, track)
    if each is not None:
        event += _text(22, each.category) + _text(23, each.name)
        event += b"".join(data(4, _text(10, name) + _text(6, value)) for name, value in each.details)
    return _packet(number(8, int(at_ns)) + data(11, event))


def _packet(fields: bytes) -> bytes:
    return data(1, fields + number(10, _SEQUENCE))


def _text(field: int, text: str) -> bytes:
    return data(field, text.encode("utf-8", "replace"))


def _track(pid: int, tid: int) -> int:
    """Never 0, which is none."""
    return (1 << 62) | (pid & 0x3FFFFFFF) << 32 | (tid & 0xFFFFFFFF)
