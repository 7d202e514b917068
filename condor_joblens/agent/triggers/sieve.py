"""Which events a handler may want, by the tests of its filter that are known beforehand: all events of a batch at once.

What a filter says is for Lua alone. An event is left out here only if it fails a test for certain. So handlers are
asked about the same events as if all were sent. Texts are compared by a number that is made of their first bytes,
without regard to case. So a few which differ are sent too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from condor_joblens.model.events import EventKind
from condor_joblens.policy.trigger_answers import Handler, How, Test
from condor_joblens.policy.trigger_kinds import KINDS

COMPARED = 32
"""Bytes of a text that are looked at."""

_MOST_KIND = 64
_SMALL, _ONES, _HIGHS = (np.uint64(int.from_bytes(bytes([byte]) * 8, "little")) for byte in (0x20, 0x01, 0x80))
_PRIME = np.uint64(1099511628211)
_BOUNDS: dict[How, Callable[[Any, float], Any]] = {
    How.ABOVE: operator.gt,
    How.BELOW: operator.lt,
    How.AT_LEAST: operator.ge,
    How.AT_MOST: operator.le,
}
_TEXTS = {
    "program": "program",
    **dict.fromkeys(("commandline", "reason", "where", "artifact", "hangcause", "exception", "path"), "text"),
}
_NUMBERS: dict[str, Callable[[np.ndarray], tuple[Any, Any]]] = {
    "pid": lambda events: (events["pid"], events["pid"] > 0),
    "parentpid": lambda events: (events["parent_pid"], events["parent_pid"] > 0),
    "exitcode": lambda events: (events["exit_code"] >> 8 & 255, _has_exited(events) & ~_was_killed(events)),
    "exitsignal": lambda events: (events["exit_code"] & 127, _has_exited(events) & _was_killed(events)),
    "coredumped": lambda events: (_was_killed(events) & (events["exit_code"] & 128 != 0), _has_exited(events)),
    "livedseconds": lambda events: (events["lived_seconds"], np.True_),
    "limitbytes": lambda events: (events["limit"], events["limit"] >= 0),
    "hangsuspected": lambda events: (events["value"] == 1, np.True_),
    **dict.fromkeys(("memorybytes", "levelnumber", "count", "bytes"), lambda events: (events["value"], np.True_)),
}
"""What Lua reads of an event as a number or a boolean, and whether it is there."""


class Sieve:
    """The handlers of a node."""

    def __init__(self, handlers: Sequence[Handler]) -> None:
        """A field that is not known here has no test."""
        self._wanted: np.ndarray = np.zeros(_MOST_KIND, "?")
        self._filters: dict[int, list[list[_Passes]]] = {}
        for name, kind in KINDS.items():
            filters = [
                [_passes(test) for test in each.tests if _is_known(test, kind)]
                for each in handlers
                if each.kind == name
            ]
            self._wanted[kind] = bool(filters)
            if filters and all(filters):
                self._filters[int(kind)] = filters

    def wants(self, kind: int) -> bool:
        """Whether a handler is of this kind."""
        return bool(self._wanted[kind])

    def places(self, events: np.ndarray) -> np.ndarray:
        """The indices of those (EVENT, shape (n,)) that a handler may want, in their order."""
        kinds = np.minimum(events["kind"], _MOST_KIND - 1)
        wanted = self._wanted[kinds] & (events["run_number"] > 0)
        for kind, filters in self._filters.items():
            places = np.flatnonzero(wanted & (kinds == kind))
            if len(places):
                wanted[places] = _any_passes(_Columns(events, places), filters)
        found: np.ndarray = np.flatnonzero(wanted)
        return found


class _Columns:
    """What tests look at of some events; each is made once."""

    def __init__(self, events: np.ndarray, places: np.ndarray) -> None:
        self._events, self._places = events, places
        self._texts: dict[str, np.ndarray] = {}
        self.count = len(places)

    def numbers(self, field: str) -> tuple[np.ndarray, Any]:
        """The values, and which of them are there."""
        values, present = _NUMBERS[field](self._events)
        return values[self._places], present[self._places] if present.ndim else present

    def texts(self, column: str) -> np.ndarray:
        """A number for each text."""
        if column not in self._texts:
            self._texts[column] = _condensed(self._events[column][self._places])
        return self._texts[column]


_Passes = Callable[[_Columns], np.ndarray]


def _any_passes(columns: _Columns, filters: list[list[_Passes]]) -> np.ndarray:
    found: np.ndarray = np.zeros(columns.count, "?")
    for tests in filters:
        passes = tests[0](columns)
        for test in tests[1:]:
            passes = passes & test(columns)
        found |= passes
    return found


def _is_known(test: Test, kind: EventKind) -> bool:
    if kind is EventKind.EXCEPTION and test.field == "exception":  # its text has further parts
        return False
    return test.field in _TEXTS or test.field in _NUMBERS


def _passes(test: Test) -> _Passes:
    if test.field in _TEXTS:
        return _text_passes(_TEXTS[test.field], [value for value in test.values if isinstance(value, str)])
    if test.how is How.ONE_OF:
        return _value_passes(test.field, [value for value in test.values if not isinstance(value, str)])
    bound, holds = float(test.values[0]), _BOUNDS[test.how]

    def passes(columns: _Columns) -> np.ndarray:
        values, present = columns.numbers(test.field)
        found: np.ndarray = present & holds(values, bound) & (values.dtype != bool)
        return found

    return passes


def _text_passes(column: str, wanted: Sequence[str]) -> _Passes:
    texts: np.ndarray = np.zeros(len(wanted), f"S{COMPARED}")
    texts[:] = [text.encode("ascii", "replace") for text in wanted]
    numbers = np.unique(_condensed(texts))
    return lambda columns: np.isin(columns.texts(column), numbers)


def _value_passes(field: str, wanted: Sequence[bool | float]) -> _Passes:
    """In Lua, as here, no boolean is a number."""
    of_sort = {
        is_boolean: [each for each in wanted if isinstance(each, bool) is is_boolean] for is_boolean in (True, False)
    }

    def passes(columns: _Columns) -> np.ndarray:
        values, present = columns.numbers(field)
        found: np.ndarray = present & np.isin(values, of_sort[values.dtype == bool])
        return found

    return passes


def _has_exited(events: np.ndarray) -> Any:
    return events["exit_code"] >= 0


def _was_killed(events: np.ndarray) -> Any:
    return events["exit_code"] & 127 != 0


def _condensed(texts: np.ndarray) -> np.ndarray:
    """A number for each text (bytes, shape (n,), C order): of its bytes until the first NUL, COMPARED at most."""
    words = np.ascontiguousarray(texts).view("<u8").reshape(len(texts), texts.itemsize // 8)[:, : COMPARED // 8]
    found: np.ndarray = np.zeros(len(texts), "u8")
    goes_on: np.ndarray = np.ones(len(texts), "?")
    for word in words.T:
        ends = (word - _ONES) & ~word & _HIGHS  # its lowest bit is that of the first NUL; none: 0
        kept = word & (ends ^ (ends - np.uint64(1)))
        found = np.where(goes_on, (found ^ (kept | _SMALL)) * _PRIME, found)
        goes_on &= ends == 0
        if not goes_on.any():
            break
    return found
