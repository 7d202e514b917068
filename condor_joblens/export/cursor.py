"""How far a sink has got, in a mapped file: a process that is killed leaves it as it was, and nothing is ever flushed.

For events it is one number. For samples and last records it is each run's `sequence`. All sinks share the places in the
table of runs, so a thousand runs are one operation of numpy's.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from condor_joblens.sinks import CAUSES

PLACES = 32768
"""Runs that are known at a time: many times what lives on a node or has ended lately."""

_HEAD: np.dtype[Any] = np.dtype(
    [
        ("magic", "S8"),
        ("identity", "u8"),  # the numbering of `event`
        ("event", "u8"),  # all events up to this one are confirmed, in the spool, or counted as lost
        ("spooled", "u8"),  # the number in the spool of the first record that is not confirmed
        ("undeclared", "u8", (len(CAUSES),)),  # lost, and the sink has not been told yet
        ("declaring", "u8", (len(CAUSES),)),  # lost, and it is not known whether the sink has heard it
        ("declarations", "u8"),  # how often it was told something
        ("author", "u8"),  # a random number, for the ids of what is told
        ("profile_identity", "u8"),  # the numbering of `profile`
        ("profile", "u8"),  # of profiles that events up to this one have announced, none waits
        ("profiles", "u8"),  # how many wait that later events have announced
    ],
    align=True,
)
_RUN: np.dtype[Any] = np.dtype([("key", "u8"), ("sample", "u8"), ("final", "u8")])
_MAGIC = b"JLCURS2"
_BYTES = 4096 + PLACES * _RUN.itemsize
_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class RunIndex:
    """The places of runs. For one thread at a time."""

    def __init__(self) -> None:
        self.keys: np.ndarray = np.zeros(PLACES, "u8")
        self._places: dict[int, int] = {}
        self._free = list(range(PLACES - 1, -1, -1))

    def places(self, runs: Sequence[int]) -> np.ndarray:
        """The place of each run by its run_number, shape (n,); a run that is new gets one."""
        found: np.ndarray = np.fromiter(map(self.place_of, runs), "i8", len(runs))
        return found

    def place_of(self, key: int) -> int:
        """The place of one run."""
        if key not in self._places:
            self._places[key] = self._free.pop()
            self.keys[self._places[key]] = key
        return self._places[key]

    @property
    def is_crowded(self) -> bool:
        """Whether `keep` should be called."""
        return len(self._free) < PLACES // 2

    def keep(self, runs: Iterable[int]) -> np.ndarray:
        """Forgets all runs but these; the places that are free by that, shape (n,)."""
        kept = set(runs)
        gone = [key for key in self._places if key not in kept]
        places = [self._places.pop(key) for key in gone]
        self._free += places
        freed: np.ndarray = np.array(places, "i8")
        self.keys[freed] = 0
        return freed


class Cursor:
    """One sink's. Without a file it is as good as long as the process lives."""

    def __init__(self, path: str | None, run_index: RunIndex) -> None:
        """Takes over what is at `path`, or begins there. Raises OSError where that is impossible."""
        before = None if path is None else _left_behind(path)
        in_place = False
        if path is None:
            memory = mmap.mmap(-1, _BYTES)
        else:
            try:
                memory = _new_file(path)
            except OSError:
                if before is None:
                    raise
                memory, in_place = _old_file(path), True  # the disk is full: what it has is enough
        self._head = np.frombuffer(memory, _HEAD, 1)
        self._runs = np.frombuffer(memory, _RUN, PLACES, 4096)
        self.is_new = before is None
        self._head["author"] = int.from_bytes(os.urandom(8), "little")
        self._head["magic"] = b""
        if before is not None:
            head, runs = before
            self._runs[:] = np.zeros(1, _RUN)
            self._runs[[run_index.place_of(key) for key in runs["key"].tolist()]] = runs
            self._head[:] = head
        self._head["magic"] = _MAGIC
        if path is not None and not in_place:
            os.rename(f"{path}.new", path)

    def add(self, other: Cursor) -> None:
        """What another one, of the same table, knows besides."""
        if other.event[0]:
            self.set_event(*other.event)
        if other.profile[0]:
            self.set_profile(*other.profile)
        self._head["undeclared"] += other._head["undeclared"]
        if self._head["declaring"].any():
            self._head["undeclared"] += other._head["declaring"]
        elif other._head["declaring"].any():
            for name in ("author", "declarations", "declaring"):
                self._head[name] = other._head[name]
        used = other._runs["key"] != 0
        self._runs["key"][used] = other._runs["key"][used]
        for column in ("sample", "final"):
            self._runs[column][used] = np.maximum(self._runs[column], other._runs[column])[used]

    @property
    def event(self) -> tuple[int, int]:
        """Identity and number of the last event that is dealt with."""
        return int(self._head["identity"][0]), int(self._head["event"][0])

    def set_event(self, identity: int, number: int) -> None:
        """All events up to this one are dealt with."""
        if identity != self._head["identity"][0]:
            self._head["event"] = number
            self._head["identity"] = identity
        else:
            self._head["event"] = max(number, int(self._head["event"][0]))

    @property
    def profile(self) -> tuple[int, int, int]:
        """Identity and number of the event up to which no profile waits, and how many do beyond."""
        identity, number, waiting = (int(self._head[name][0]) for name in ("profile_identity", "profile", "profiles"))
        return identity, number, waiting

    def set_profile(self, identity: int, number: int, waiting: int) -> None:
        """As `profile` from now on."""
        self._head["profile_identity"], self._head["profile"], self._head["profiles"] = identity, number, waiting

    @property
    def spooled(self) -> int:
        """The number in the spool of the first record that is not confirmed."""
        return int(self._head["spooled"][0])

    @spooled.setter
    def spooled(self, number: int) -> None:
        self._head["spooled"] = number

    def lose(self, cause: str, count: int) -> None:
        """So many records were lost, which the sink is to be told."""
        self._head["undeclared"][0, CAUSES.index(cause)] += np.uint64(count)

    def undeclared(self) -> dict[str, int]:
        """What the sink has still to be told, or may not have heard."""
        return _by_cause(self._head["undeclared"][0] + self._head["declaring"][0])

    def declare(self) -> tuple[str, dict[str, int]]:
        """A name for the losses to declare now, and these. Both stay the same until `confirm_declared`."""
        if not self._head["declaring"].any():
            self._head["declarations"] += np.uint64(1)
            self._head["declaring"] = self._head["undeclared"]
            self._head["undeclared"] = 0
        return f"{int(self._head['author'][0]):016x}/{int(self._head['declarations'][0])}", _by_cause(
            self._head["declaring"][0]
        )

    def confirm_declared(self) -> None:
        """The sink knows what it was told."""
        self._head["declaring"] = 0

    def sequences(self, column: str) -> np.ndarray:
        """A copy of the sequences by place; column: sample or final."""
        found: np.ndarray = self._runs[column].copy()
        return found

    def set_runs(self, column: str, keys: np.ndarray, places: np.ndarray, sequences: np.ndarray) -> None:
        """These sequences of the runs at `places` are dealt with; column: sample or final."""
        self._runs["key"][places] = keys
        self._runs[column][places] = sequences

    def forget(self, places: np.ndarray) -> None:
        """These places are free."""
        self._runs[places] = np.zeros(1, _RUN)


def _by_cause(counts: np.ndarray) -> dict[str, int]:
    return {cause: count for cause, count in zip(CAUSES, counts.tolist()) if count}


def _new_file(path: str) -> mmap.mmap:
    descriptor = os.open(f"{path}.new", _FLAGS | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, _BYTES)
        return mmap.mmap(descriptor, _BYTES)
    except OSError:
        os.unlink(f"{path}.new")  # it may have taken what room there was
        raise
    finally:
        os.close(descriptor)


def _old_file(path: str) -> mmap.mmap:
    descriptor = os.open(path, _FLAGS)
    try:
        return mmap.mmap(descriptor, _BYTES)
    finally:
        os.close(descriptor)


def _left_behind(path: str) -> tuple[np.void, np.ndarray] | None:
    try:
        with open(path, "rb") as file:
            content = file.read(_BYTES + 1)
    except OSError:
        return None
    if len(content) != _BYTES:
        return None
    head = np.frombuffer(content, _HEAD, 1)[0]
    runs = np.frombuffer(content, _RUN, PLACES, 4096)
    return (head, runs[runs["key"] != 0]) if head["magic"] == _MAGIC else None
