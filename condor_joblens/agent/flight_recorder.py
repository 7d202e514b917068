"""The flight recorder in joblensd: the last events of a job are kept as an artifact, when somebody wants them.

That is what tags a job: its end, if that was a death; a hang; a trigger; or a person. joblensd copies the job's rings
at once, into a file that is its own, so that they are safe whatever follows. A process without any right makes words of
the copy (tracing/recorder_reader.py). A copy that an earlier joblensd has left is taken over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import selectors
import time
from collections.abc import Callable, Sequence
from typing import Any

from condor_joblens.agent.node import Node
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.agent.reader_processes import ReaderProcesses
from condor_joblens.common import files
from condor_joblens.common.own_process import HelperLost
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.common.user_names import nobodys
from condor_joblens.jobs.death_sentence import Raised
from condor_joblens.model.metrics import text
from condor_joblens.profiles import last_events
from condor_joblens.profiles.last_events import Coverage
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.tracer.sensors import recorder_of
from condor_joblens.tracer.sensors.recorder import NODE_BYTES, Recording
from condor_joblens.tracing import recorder_reader

FOLDER = "recorder"
"""What the folder of copies is called in the run folder."""

MOST_BYTES = NODE_BYTES + (1 << 20)
"""Of all copies that wait to be made words of. It is as much as the kernel has: all jobs can die at once."""

MOST_FOR_OWNERS = 8
"""Copies that wait beyond which owners can ask for none: a death can't wait."""

MOST_READERS = 4
"""Processes that make words of copies at a time, each for one copy. Each uses half a second of CPU."""

MOST_OF_RUN = 4
"""Artifacts of one run: the first stays, and the newest."""

EVERY = 5.0
"""Seconds between two copies that an owner asks for: each takes a process half a second of CPU."""

PATIENCE = 600.0
"""Seconds for one copy; on an idle machine it takes half a second. On a full one, jobs leave a hundredth of a CPU to
nice 19. What goes on without end is ended by its own limit (recorder_reader.CPU_SECONDS)."""

MOST_RAISED, MOST_WORDS = 3, 200
"""Exceptions that stand among a job's last events, the last ones, and characters of each."""

_SECOND = 1e-9
_ABOUT = ("run_number", "run", "owner", "slot", "sinks", "node", "uid")


class NotTagged(Exception):
    """Why a job's last events can't be kept, in words for a person."""


class NotRecorded(NotTagged):
    """There are none."""


class FlightRecorder:
    """Copies of jobs' rings, until they are artifacts."""

    def __init__(
        self, node: Node, artifacts: RunArtifacts, raised: Callable[[int], Sequence[Raised]] = lambda number: ()
    ) -> None:
        """Copies wait until `open`. `raised` are exceptions that ended processes of a run, by its number."""
        self._node, self._artifacts, self._raised = node, artifacts, raised
        self._folder = os.path.join(node.config.run_dir, FOLDER)
        self._waiting: dict[str, int] = {}  # path -> bytes, in their order
        self._being_read: dict[str, int] = {}  # the same of those that are made words of
        self._charges: dict[str, Callable[[float], None]] = {}  # path -> who is told what its reading has used
        self._readers = ReaderProcesses(MOST_READERS, PATIENCE)
        self._number = 0
        self._asked: dict[int, float] = {}  # run number -> CLOCK_MONOTONIC, of what owners have asked for lately

    def open(self, readers: ProcessStarter | None, selector: selectors.BaseSelector) -> None:
        """From now on copies are made words of, those of an earlier joblensd as well. No `readers`: nobody can."""
        self._readers.open(readers, selector)
        if readers is None:
            return
        selector.register(readers, selectors.EVENT_READ, lambda: self._reports(readers, selector))
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self._folder)):
                path = os.path.join(self._folder, name)
                self._waiting.setdefault(path, os.stat(path).st_size)
        self._next()

    def tag(
        self, run: int, cause: str, *, not_so_often: bool = False, charge: Callable[[float], None] = lambda _: None
    ) -> float:
        """Keeps what the run's job did last. When that was, epoch seconds. `cause`: death, ended, owner, hang, trigger.

        The copy is safe when this returns; its artifact comes in a moment. `not_so_often`: once in EVERY seconds.
        `charge` is called with the seconds of CPU that it takes to make the artifact. Raises NotTagged.
        """
        number = int(self._node.runs.rows["run_number"][run])
        if not_so_often:
            self._check_pace(number)
        recording = self._recording(run)
        self._check_room(recording.records.nbytes)
        if not_so_often:
            self._asked[number] = time.monotonic()
        epoch = time.time() - time.monotonic()
        coverage = self._coverage(run, cause, recording, epoch)
        about = self._artifacts.about(run)
        if self._node.handles[run].sandbox is None:  # it ended while joblensd was down, and its folder is gone
            about = dataclasses.replace(about, uid=None if recording.uid in (0, *nobodys()) else recording.uid)
        told = {
            "coverage": dataclasses.asdict(coverage),
            "epoch": epoch,
            "about": {name: getattr(about, name) for name in _ABOUT},
            "raised": [[each.when, each.pid, each.words[:MOST_WORDS]] for each in self._raised(number)[-MOST_RAISED:]],
        }
        self._keep_copy(recorder_reader.head_of(told) + recording.records.tobytes(), charge)
        return coverage.tagged

    def _check_pace(self, number: int) -> None:
        """Raises NotTagged if an owner has to wait, before anything is copied for him."""
        now = time.monotonic()
        self._asked = {each: when for each, when in self._asked.items() if now - when < EVERY}
        if number in self._asked:
            raise NotTagged(f"it was kept a moment ago: try again in {EVERY:.0f} seconds")
        if len(self._waiting) >= MOST_FOR_OWNERS:
            raise NotTagged(f"{len(self._waiting)} copies of jobs' last events wait to be read here: try again")

    def _recording(self, run: int) -> Recording:
        """A copy of the run's rings. Raises NotRecorded."""
        sensor, slot = recorder_of(self._node.tracer.sensors), int(self._node.runs.state["kernel_slot"][run])
        recording = sensor.recording(slot) if sensor is not None and slot >= 0 else None
        if recording is None:
            raise NotRecorded("the job's last events are not recorded: that takes level trace, and room (its Note)")
        return recording

    def _coverage(self, run: int, cause: str, recording: Recording, epoch: float) -> Coverage:
        """What an artifact says of itself; `epoch` is the time, in epoch seconds, at which CLOCK_MONOTONIC was 0."""
        return Coverage(
            tagged=epoch + time.monotonic(),
            cause=cause,
            death=text(self._node.runs.rows["death"][run]) if cause in ("death", "ended") else "",
            since=epoch + recording.since,
            rare_since=epoch + recording.rare_since,
            frequent_since=epoch + recording.frequent_since,
            overwritten=recording.overwritten,
            lost=recording.lost,
            not_ours=recording.not_ours,
        )

    def tag_if_recorded(self, run: int, cause: str) -> None:
        """As `tag`, for what joblensd itself has seen. Most runs are not recorded, and nobody waits for an answer."""
        try:
            self.tag(run, cause)
        except NotRecorded:
            pass
        except NotTagged as error:
            self._node.log_once(f"{self._node.describe(run)}, {cause}: {error}")
            self._node.handles[run].notes["last events"] = f"its last events are not kept: {error}"
            self._node.update_note(run)

    def tick(self, now: float) -> None:
        """Once a round; `now` is time.monotonic()."""
        self._readers.tick(now)
        self._next()

    def _check_room(self, more: int) -> None:
        waiting = sum(self._waiting.values()) + sum(self._being_read.values())
        if waiting + more > MOST_BYTES:
            count = len(self._waiting) + len(self._being_read)
            raise NotTagged(f"{count} copies of jobs' last events wait to be read here")

    def _keep_copy(self, copy: bytes, charge: Callable[[float], None]) -> None:
        self._number += 1
        path = os.path.join(self._folder, f"{time.time_ns():020d}-{self._number}")
        try:
            os.makedirs(self._folder, 0o700, exist_ok=True)
            files.write(path, copy, 0o600)
        except OSError as error:
            raise NotTagged(f"the job's last events can't be kept in {self._folder}: {error.strerror}") from None
        self._waiting[path], self._charges[path] = len(copy), charge
        self._next()

    # -- the processes that make words of them --------------------------------------------------------------------

    def _next(self) -> None:
        while self._waiting and self._readers.has_place:
            path = next(iter(self._waiting))
            size = self._waiting.pop(path)
            try:
                self._begin(path)
            except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
                self._node.log_once(f"a job's last events are not kept: {error}")
                _remove(path)
            else:
                self._being_read[path] = size

    def _begin(self, path: str) -> None:
        charge = self._charges.pop(path, lambda _: None)  # nobody's, if an earlier joblensd has left it
        copy = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            about = _about(json.loads(os.pread(copy, recorder_reader.HEAD_BYTES, 0)))
            answered = functools.partial(self._answered, path, about)
            self._readers.begin(b"copy", [copy], last_events.MOST_KEPT_BYTES, time.monotonic(), answered, charge)
        finally:
            os.close(copy)

    def _answered(self, path: str, about: Artifact, made: bytes, why: str) -> None:
        del self._being_read[path]
        _remove(path)
        with contextlib.suppress(OSError):  # others wait there
            os.rmdir(self._folder)
        if why:
            self._say(about, why)
        else:
            self._keep(about, made)
        self._next()

    def _say(self, about: Artifact, why: str) -> None:
        """Why a job's last events are not kept, in the log and, as long as its run is there, in its Note."""
        note = f"its last events are not kept: {why}"
        self._node.log_once(f"{about.slot}: run {about.run}: {note}")
        run = self._node.runs.by_number().get(about.run_number)
        if run is not None:
            self._node.handles[run].notes["last events"] = note
            self._node.update_note(run)

    def _keep(self, about: Artifact, made: bytes) -> None:
        """The first of a run, and the newest."""
        store = self._artifacts.store
        kept = [
            stored
            for stored in store.stored(about.run_number)
            if stored.run == about.run and stored.name.endswith(f".{last_events.KIND}")
        ]
        if len(kept) >= MOST_OF_RUN:
            store.delete(kept[1].name)
        self._artifacts.keep_about(about, [made])

    def _reports(self, readers: ProcessStarter, selector: selectors.BaseSelector) -> None:
        try:
            readers.receive()
        except HelperLost as lost:
            self._node.log(f"{lost}: no job's last events are kept until joblensd is started anew")
            selector.unregister(readers)
            self._readers.open(None, selector)


def _about(told: dict[str, Any]) -> Artifact:
    coverage = Coverage(**told["coverage"])
    return Artifact(
        kind=last_events.KIND,
        content_type=last_events.CONTENT_TYPE,
        content_encoding=last_events.CONTENT_ENCODING,
        begun=min(coverage.rare_since, coverage.tagged),
        ended=coverage.tagged,
        **{name: told["about"][name] for name in _ABOUT},
    )


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
