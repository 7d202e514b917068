"""Failed opens of jobs at level trace, for triggers: of each path, how often it has failed in the last minute.

They are in the flight recorder's rings (recorded_events.py). What has been overwritten by a look is not counted, so a
count is never too large.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.common.redact import Redactor, clipped
from condor_joblens.common.system_calls import numbers
from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.tracer._bpf import lib

WINDOW_SECONDS = 60.0

MOST_TOLD = 8
"""Paths of one run that are told at a look: those that have failed most often."""

MOST_COUNTED = 32
"""Paths of one run that a look counts: those that have failed most often since the one before."""

_OPENS = np.array([number for name, number in numbers().items() if name in ("open", "openat", "openat2", "creat")])

_Key = tuple[bytes, int]
"""A path as the process gave it, and the error's number."""


@dataclass
class FailedOpens:
    """Of one run."""

    looks: deque[tuple[float, Counter[_Key]]] = field(default_factory=deque)  # of the last minute, CLOCK_MONOTONIC

    def add(self, now: float, found: Counter[_Key]) -> None:
        """What was found at a look."""
        while self.looks and now - self.looks[0][0] >= WINDOW_SECONDS:
            self.looks.popleft()
        self.looks.append((now, Counter(dict(found.most_common(MOST_COUNTED)))))

    def count(self, key: _Key) -> int:
        """How often it has failed in the last minute."""
        return sum(found[key] for _, found in self.looks)


def failed_opens(of: FailedOpens, records: np.ndarray, run_number: int, now: float, redactor: Redactor) -> np.ndarray:
    """What of a run is told (EVENT, shape (n,)), of the records (map_layout.RECORDED, shape (n,)) that are new.

    `now` is time.monotonic().
    """
    opens = records[
        (records["kind"] == lib.RECORDED_FAILED)
        & (records["subject"] == lib.RECORDED_PATH)
        & np.isin(records["other"], _OPENS)
        & (records["time_ns"] > (now - WINDOW_SECONDS) * 1e9)
    ]
    newest: dict[_Key, np.void] = {}
    found: Counter[_Key] = Counter()
    for key, count, place in _grouped(opens):
        found[key], newest[key] = count, opens[place]
    of.add(now, found)
    told = sorted(found, key=lambda key: (-of.count(key), key))[:MOST_TOLD]
    events: np.ndarray = np.zeros(len(told), EVENT)
    events["time"], events["kind"], events["run_number"], events["limit"] = (
        time.time(), EventKind.FAILED_OPEN, run_number, -1,
    )  # fmt: skip
    for place, key in enumerate(told):
        path, error = key
        event, is_cut = events[place : place + 1], len(path) >= lib.RECORDED_TEXT_BYTES - 1
        event["exit_code"], event["value"] = error, of.count(key)
        event["text"] = clipped(redactor.line(path, is_cut), EVENT["text"].itemsize)
        event["program"] = clipped(redactor.line(newest[key]["program"].tobytes().partition(b"\0")[0]), 31)
    return events


def _grouped(opens: np.ndarray) -> list[tuple[_Key, int, int]]:
    """Each path with its error, how often it is there, and the place of its last one."""
    if not len(opens):
        return []
    width = int(lib.RECORDED_TEXT_BYTES)
    texts = np.ascontiguousarray(opens["text"]).view("u1").reshape(len(opens), -1)[:, :width]
    keys: np.ndarray = np.zeros(len(opens), [("path", f"S{width}"), ("error", "<i4")])
    # behind its end there is what another event has left
    keys["path"] = np.where(np.arange(width) < opens["text_bytes"][:, None], texts, 0).view(f"S{width}")[:, 0]
    keys["error"] = opens["value"]
    unique, first, counts = np.unique(keys[::-1], return_index=True, return_counts=True)
    places = len(opens) - 1 - first
    return [
        ((bytes(key["path"]), int(key["error"])), int(count), int(place))
        for key, count, place in zip(unique, counts, places)
    ]
