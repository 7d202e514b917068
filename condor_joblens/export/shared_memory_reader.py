"""Reads the shared memory, and hands each channel what is new: one thread, whatever the sinks do.

It sleeps until joblensd has something, and polls nothing. It encodes a record once for all sinks that want the same of
it, and none where no sink takes its kind.
"""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Callable, Collection, Sequence

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.export import profile_records
from condor_joblens.export.channel import Channel
from condor_joblens.export.cursor import PLACES, RunIndex
from condor_joblens.export.profile_queue import Announced, ProfileQueue
from condor_joblens.export.records import EventEncoder, Owner, RowEncoder
from condor_joblens.model.events import EventKind
from condor_joblens.model.metrics import text
from condor_joblens.shm import artifacts
from condor_joblens.shm.artifact_header import split_name
from condor_joblens.shm.reader import Reader
from condor_joblens.shm.ring import EventReader, Position
from condor_joblens.sinks import ENDPOINTS, SERVERS, RecordKind
from condor_joblens.sinks.row_numbers import only
from condor_joblens.sinks.selection import chosen

EVENTS_AT_A_TIME = 4096
HELD_SECONDS = 7.0
"""How long the events of a run wait for its name, which joblensd gives it after five seconds at the latest."""

RETRY_SECONDS = 1.0
"""Between two looks for a joblensd that is not there."""

_OWNERS = 10 * PLACES


class SharedMemoryReader:
    """For one thread at a time."""

    def __init__(self, run_dir: str, node: str, log: Callable[[str], None], run_index: RunIndex) -> None:
        """node: the machine's name."""
        self._run_dir = run_dir
        self._log = log
        self._run_index = run_index
        self._events: EventReader | None = None
        self._files: dict[str, Reader] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        self._sent: dict[str, np.ndarray] = {"rows": np.zeros(PLACES, "u8"), "ended": np.zeros(PLACES, "u8")}
        self._owners: dict[int, Owner] = {}
        self._held: collections.deque[tuple[float, np.void]] = collections.deque()
        self._row_encoder, self._event_encoder = RowEncoder(node), EventEncoder(node)
        self._said: dict[str, str] = {}
        self._numbers: dict[str, list[int]] = {}  # run numbers in each file
        self._profiles = ProfileQueue(os.path.join(run_dir, artifacts.FOLDER), node, log)

    def round(self, channels: Collection[Channel]) -> bool:
        """Hands on all that is new; True where there may be more at once."""
        kinds = frozenset().union(*(channel.takes for channel in channels))
        if not kinds - {RecordKind.HEALTH}:
            return False
        rows = self._read_rows("rows", RecordKind.SAMPLE, channels)
        ended = self._read_rows("ended", RecordKind.JOB, channels)
        # a run that is in neither file can come no more: only where both could be read
        if self._run_index.is_crowded and rows is not None and ended is not None:
            freed = self._run_index.keep([*rows, *ended])
            for sent in self._sent.values():
                sent[freed] = 0
            for channel in channels:
                channel.forget(freed)
        more = bool(kinds & {RecordKind.EVENT, RecordKind.PROFILE}) and self._read_events(channels)
        self._hand_profiles(channels)
        for channel in channels:
            if rows is not None:
                channel.caught_up()
        return more

    def stop(self) -> None:
        """Profiles that wait are left to the next process."""
        self._profiles.stop()

    def offer_again(self) -> None:
        """All rows are handed on once more, for a sink that is new: each channel knows what it has had."""
        for sent in self._sent.values():
            sent[:] = 0
        self._versions.clear()

    def wake_word(self) -> int:
        """To be taken before `round`, for `wait`."""
        return self._events.wake_word() if self._events is not None else 0

    def wait(self, seen: int, seconds: float) -> None:
        """Sleeps until joblensd has something new, for so long at most."""
        if self._events is None:
            time.sleep(min(seconds, RETRY_SECONDS))
        else:
            self._events.wait(seen, min(seconds, RETRY_SECONDS))

    def _read_rows(self, name: str, kind: RecordKind, channels: Collection[Channel]) -> list[int] | None:
        """The run numbers in the file, of which what has changed was handed on. None where it can't be read."""
        try:
            if name not in self._files:
                self._files[name] = Reader(os.path.join(self._run_dir, name))
            version = self._files[name].version()
            if self._versions.get(name) == version:
                return self._numbers[name]
            rows, _ = self._files[name].rows()
        except JobLensError as error:
            self._files.pop(name, None)
            self._say(name, str(error))
            return None
        self._say(name, "")
        self._versions[name] = version
        numbers: list[int] = rows["run_number"].tolist()
        self._numbers[name] = numbers
        self._learn(rows)
        places, sequences = self._run_index.places(numbers), rows["sequence"]
        changed = sequences > self._sent[name][places]
        if changed.any():
            self._sent[name][places[changed]] = sequences[changed]
            takers = [channel for channel in channels if kind in channel.takes]
            for wanted in {channel.wanted for channel in takers}:
                found = self._row_encoder.records(selected(rows[changed], wanted), kind)
                for channel in takers:
                    if channel.wanted == wanted:
                        channel.samples(kind, found, places[changed], sequences[changed])
        return numbers

    def _learn(self, rows: np.ndarray) -> None:
        if len(self._owners) > _OWNERS:
            self._owners.clear()  # those that live come again with their rows
        unknown = [place for place, number in enumerate(rows["run_number"].tolist()) if number not in self._owners]
        for row in rows[unknown]:
            self._owners[int(row["run_number"])] = Owner(text(row["run"]), text(row["slot"]))

    def _read_events(self, channels: Collection[Channel]) -> bool:
        try:
            if self._events is None:
                self._begin(channels)
            assert self._events is not None
            before = self._events.position
            found = self._events.read(EVENTS_AT_A_TIME)
        except JobLensError as error:
            self._events = None
            self._say("events", str(error))
            return False
        self._say("events", "")
        takers = [channel for channel in channels if {RecordKind.EVENT, RecordKind.PROFILE} & channel.takes]
        after = self._events.position
        missed = after.identity == before.identity and _tell_missed(takers, before, found, after)
        self._hand_on(takers, found, after, missed)
        return len(found) == EVENTS_AT_A_TIME

    def _begin(self, channels: Collection[Channel]) -> None:
        """Behind what the sinks have; those that have more pass over what they know."""
        path = os.path.join(self._run_dir, "events")
        reader = EventReader(path)
        known = [channel.begins(reader.identity) for channel in channels]
        same = [number for number in known if number is not None]
        self._held.clear()
        self._events = EventReader(path, Position(reader.identity, min(same))) if same else reader

    def _hand_on(self, takers: Sequence[Channel], found: np.ndarray, after: Position, missed: bool) -> None:
        self._announce(takers, found, after.identity)
        now = time.monotonic()
        for event in found[found["kind"] == EventKind.RUN_START]:
            self._owners[int(event["run_number"])] = Owner(text(event["text"]), text(event["program"]))
        ready: list[np.void] = []
        held = self._held
        self._held = collections.deque()
        for since, event in held:
            known = int(event["run_number"]) in self._owners or now - since > HELD_SECONDS
            ready.append(event) if known else self._held.append((since, event))
        for event in found:
            number = int(event["run_number"])
            ready.append(event) if not number or number in self._owners else self._held.append((now, event))
        if not ready and not missed:
            return
        records = [
            self._event_encoder.record(event, after.identity, self._owners.get(int(event["run_number"])))
            for event in ready
        ]
        numbers = [int(event["sequence"]) for event in ready]
        # what is held would have to be read again
        done = min([after.sequence, *(int(event["sequence"]) - 1 for _, event in self._held)])
        for channel in takers:
            channel.events(records, numbers, (after.identity, done))

    def _announce(self, takers: Sequence[Channel], found: np.ndarray, identity: int) -> None:
        """Profiles that events tell of. A sink's mark of them goes before that of the events: none is forgotten."""
        if not any(RecordKind.PROFILE in channel.takes for channel in takers):
            return
        kept = found[found["kind"] == EventKind.ARTIFACT]
        names = [(int(event["sequence"]), text(event["text"])) for event in kept]
        self._profiles.announce(
            [
                Announced(identity, number, name)
                for number, name in names
                if (split_name(name) or (0, ""))[1] in profile_records.KINDS
            ]
        )
        self._hand_profiles(takers)

    def _hand_profiles(self, channels: Collection[Channel]) -> None:
        takers = [channel for channel in channels if RecordKind.PROFILE in channel.takes]
        if takers and self._events is not None:
            at = self._events.position
            made, position = self._profiles.taken(), self._profiles.position(at.identity, at.sequence)
            for channel in takers:
                channel.profiles(made, position)

    def _say(self, what: str, message: str) -> None:
        if message and self._said.get(what) != message:
            self._log(message)
        self._said[what] = message


def selected(rows: np.ndarray, wanted: frozenset[str] | None) -> np.ndarray:
    """The rows as a sink wants them: without the metrics that it has not asked for."""
    if wanted is None:
        return rows
    kept = only(rows, chosen(wanted))
    for name, column in ((ENDPOINTS, "endpoints"), (SERVERS, "servers")):
        if name not in wanted:
            kept[column] = np.zeros(1, kept.dtype[column].base)
    return kept


def _tell_missed(takers: Sequence[Channel], before: Position, found: np.ndarray, after: Position) -> bool:
    """Every gap in the numbers, with what lies before the first and behind the last. Whether there is one."""
    numbers = np.concatenate(([before.sequence], found["sequence"].astype("i8"), [after.sequence + 1]))
    gaps: list[int] = np.flatnonzero(np.diff(numbers) > 1).tolist()
    for place in gaps:
        for channel in takers:
            channel.missed_events(after.identity, int(numbers[place]) + 1, int(numbers[place + 1]))
    return bool(gaps)
