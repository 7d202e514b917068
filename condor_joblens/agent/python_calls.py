"""Calls of Pythons of jobs that ask for it: joblensd gives each Python a ring, and keeps what is in it as an artifact.

joblensd makes a ring and seals it, so it takes no file from a job. It never looks into one: a process without any right
does that (tracing/recorder_reader.py), now and then, and once the run is over. What was recorded is there whatever ends
the Python.

A ring is over when no process of the job has it in its memory: a forked child goes on with that of its parent. Then
joblensd copies it, and the job has room for another one. The next reading puts what it has into a sum of all those.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from condor_joblens.agent import script_shares
from condor_joblens.agent.levels import policy_input, python_tracing
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.agent.reader_processes import ReaderProcesses
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.control.verbs import Refused
from condor_joblens.policy.trace_request import ATTRIBUTE
from condor_joblens.profiles import traced_calls
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.tracing import python_ring
from condor_joblens.tracing.recorder_reader import CALLS

MOST_OF_RUN = (8 << 20) // python_ring.RING_BYTES
SHARE_OF_MEMORY = 0.01
"""Of RequestMemory, for a run's rings: their memory is the job's."""

MOST_OF_NODE = 64
"""Rings; users share them."""

MOST_COPIES, MOST_COPIES_OF_RUN = 32, 6
"""Of rings that are over, until they are read: joblensd's memory, which users share. What has no place stays a ring."""

SOON = 10.0
"""Seconds between two readings of a run that has half of its copies."""

AGAIN_SECONDS = 10.0
"""Until the kernel is asked again whether a Python goes on (0.04 ms), while no other Python asks for a ring."""

MAPPED_SECONDS = 10.0
"""After so long a Python has the ring in its memory that it was given, or will never have it."""

SLOW_SECONDS, HELD_SECONDS = 0.02, 600.0
"""Where it takes the kernel so long to say no, it is not asked again before: somebody may hold pages of the ring."""

EVERY = 30.0
"""Seconds between two readings of a run's rings; more where all of them together would take more than their share."""

SAVED_SECONDS = 5.0
"""Of CPU, that readings can save up. Those of a run that is over are in the share, and don't wait for it."""

PATIENCE = 600.0
"""Seconds for one reading. It takes a second of CPU, and jobs of a full node leave a hundredth of one to nice 19. What
goes on without end is ended by its own limit (recorder_reader.CPU_SECONDS)."""

MOST_NOTES_OF_RUN = 8
"""Reasons for which Pythons of a run got no ring. Each is said once, and a job can name versions at will."""

MOST_ANSWER = 2 * traced_calls.MOST_BYTES + python_ring.LENGTH.size
MOST_READERS = 2
OLDEST = 3, 9
"""Python whose calls are recorded: before 3.12, which has sys.monitoring, in bursts."""


@dataclass(eq=False)
class _Ring:
    """One, or the copy of one that is over."""

    descriptor: int
    pid: int  # of who was given it
    begun: float  # epoch seconds
    given: float  # CLOCK_MONOTONIC
    asked_at: float = -math.inf
    not_before: float = 0.0

    def is_over(self, pid: int) -> bool:
        """Whether nobody can write to it any more. Who asks for another one now, `pid`, is another program by now.

        0: nobody asks. Then what was found before holds for a while.
        """
        now = time.monotonic()
        if now < self.not_before or (pid == 0 and now - self.asked_at < AGAIN_SECONDS):
            return False
        if now - self.given <= MAPPED_SECONDS and self.pid != pid and os.path.exists(f"/proc/{self.pid}"):
            return False
        self.asked_at = now
        found = python_ring.is_over(self.descriptor)
        if time.monotonic() - now > SLOW_SECONDS:
            self.not_before = now + HELD_SECONDS
        return found


@dataclass
class _Recorded:
    """A run's rings."""

    run: int
    whose: str  # a user, or the slot as long as nobody knows the user
    about: Artifact
    rings: list[_Ring] = field(default_factory=list)
    copies: list[_Ring] = field(default_factory=list)  # of those that are over
    known: bytes = b""  # of those of them that have been read
    begun: float = 0.0  # epoch seconds, of the first one
    next_at: float = 0.0  # CLOCK_MONOTONIC
    is_being_read: bool = False
    is_over: bool = False
    kept: str = ""  # name of the artifact
    notes: list[str] = field(default_factory=list)


class PythonCalls:
    """All of the node."""

    def __init__(self, levels: Levels, artifacts: RunArtifacts) -> None:
        """Nothing is recorded until `open`."""
        self._levels, self._artifacts = levels, artifacts
        self._recorded: dict[int, _Recorded] = {}  # by number of the run
        self._readers = ReaderProcesses(MOST_READERS, PATIENCE)
        self._paid_until = 0.0  # CLOCK_MONOTONIC, from when on there is CPU for a reading
        self._read_at: dict[str, float] = {}  # when something of a user's was read last

    def open(self, readers: ProcessStarter | None, selector: selectors.BaseSelector) -> None:
        """From now on it can be. No `readers`: it can't. Who serves `readers` learns how they ended."""
        self._readers.open(readers, selector)

    def give(self, run: int, pid: int, version: str) -> tuple[dict[str, str], int]:
        """What its answer says (commands/python.py), and a new ring for a process of the run. Raises Refused."""
        if not python_tracing.records_calls(self._levels, run):
            raise Refused(python_tracing.why_not(self._levels, run) or "no calls are recorded")
        recorded = self._of(run)
        self._let_go(recorded, pid)
        try:
            why = self._why_not(recorded, version)
            if why:
                raise Refused(why)
            ring = python_ring.create()
        except (Refused, OSError) as error:
            note = f"not all Pythons' calls are recorded: {error}"
            if self._note(recorded, note):
                self._levels.node.log_once(f"{self._levels.node.describe(run)}: process {pid}: {note}")
            raise Refused(str(error)) from None
        recorded.rings.append(_Ring(ring, pid, time.time(), time.monotonic()))
        recorded.begun = recorded.begun or recorded.rings[0].begun
        return python_tracing.what_of_calls(self._levels, run), ring

    def _note(self, recorded: _Recorded, note: str) -> bool:
        """Says it in the job's Note, once, and not for ever more. Whether it was said now."""
        if note in recorded.notes or len(recorded.notes) >= MOST_NOTES_OF_RUN:
            return False
        recorded.notes.append(note)
        if not recorded.is_over:
            self._levels.inputs[recorded.run].python_trouble = f"{ATTRIBUTE}: {note}"
            python_tracing.update(self._levels, recorded.run)
        return True

    def _of(self, run: int) -> _Recorded:
        number = int(self._levels.node.runs.rows["run_number"][run])
        if number not in self._recorded:
            whose, about = policy_input.owner(self._levels, run), self._about(run)
            self._recorded[number] = _Recorded(run, whose, about, next_at=time.monotonic() + EVERY)
        return self._recorded[number]

    def _about(self, run: int) -> Artifact:
        of_run = self._artifacts.about(run)
        return dataclasses.replace(of_run, kind=traced_calls.KIND, content_type=traced_calls.CONTENT_TYPE)

    def _why_not(self, recorded: _Recorded, version: str) -> str:
        """Why a Python gets no ring; empty if it gets one. The words are the same for each such Python."""
        if not self._readers.can_be_had:
            return "JobLensdLog says why"
        parts = version.split(".")
        numbers = tuple(int(part) for part in parts[:2] if part.isdigit() and len(part) < 4)
        if len(numbers) < 2 or numbers < OLDEST:
            shown = ".".join(map(str, numbers)) or "a Python of an unknown version"
            return f"Python {shown} is too old, 3.9 is not (joblens stacks shows what it does)"
        most = self._most(recorded.run)
        if len(recorded.rings) >= most:
            faster = ", and more end than can be read" if not self._has_room_for_copy(recorded) else ""
            return f"the job's memory has room for {most} at a time{faster}"
        return self._why_no_place(recorded.whose)

    def _why_no_place(self, whose: str) -> str:
        """A user may have as many rings as he leaves free: so there is one for each of some others."""
        of_users = [(each.whose, len(each.rings)) for each in self._recorded.values()]
        own, free = _own_and_free(whose, of_users, MOST_OF_NODE)
        if own < free:
            return ""
        all_of_node = f"{MOST_OF_NODE} Pythons are recorded on this node"
        return f"{all_of_node}, and the last {free} places are for other users" if free else all_of_node

    def _most(self, run: int) -> int:
        """Rings that the run may have: one always, and one alone as long as its RequestMemory is not known."""
        runs = self._levels.node.runs
        memory = int(runs.rows["request_memory_bytes"][run]) if runs.state["named"][run] else 0
        if memory < 0:
            return MOST_OF_RUN
        return max(1, min(MOST_OF_RUN, int(memory * SHARE_OF_MEMORY) // python_ring.RING_BYTES))

    # -- rings that are over --------------------------------------------------------------------------------------

    def _let_go(self, recorded: _Recorded, asks: int = 0) -> None:
        """Copies those that are over, as far as there is room. Process `asks` asks for another one, if any does."""
        for ring in list(recorded.rings):
            if not self._has_room_for_copy(recorded):
                return
            if not ring.is_over(asks):
                continue
            try:
                copy = python_ring.copied(ring.descriptor)
            except OSError as error:
                self._say(recorded, str(error))
                return
            recorded.rings.remove(ring)
            os.close(ring.descriptor)
            recorded.copies.append(dataclasses.replace(ring, descriptor=copy))

    def _has_room_for_copy(self, recorded: _Recorded) -> bool:
        """As for rings: a user may have as many as he leaves free."""
        of_users = [(each.whose, len(each.copies)) for each in self._recorded.values()]
        own, free = _own_and_free(recorded.whose, of_users, MOST_COPIES)
        return len(recorded.copies) < MOST_COPIES_OF_RUN and own < free

    # -- readings -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Once a round; `now` is time.monotonic()."""
        self._readers.tick(now)
        for number, recorded in list(self._recorded.items()):
            if not recorded.is_over:
                self._look(recorded, number)
            if recorded.is_being_read:
                continue
            if not recorded.is_over and self._is_refused(recorded.run):
                self._close(recorded)
            self._let_go(recorded)
        self._read_what_is_due(now)
        for number, recorded in list(self._recorded.items()):
            if recorded.is_over and not recorded.rings and not recorded.copies:
                del self._recorded[number]

    def _read_what_is_due(self, now: float) -> None:
        """What is over first. Then that of the user of whom nothing was read for the longest time."""
        users = {recorded.whose for recorded in self._recorded.values()}
        self._read_at = {whose: at for whose, at in self._read_at.items() if whose in users}
        due = [each for each in self._recorded.values() if self._is_due(each, now)]
        for recorded in sorted(
            due, key=lambda each: (not each.is_over, self._read_at.get(each.whose, 0), each.next_at)
        ):
            if not self._readers.has_place or not (recorded.is_over or now >= self._paid_until):
                return
            recorded.next_at = now + EVERY
            self._read_at[recorded.whose] = now
            self._read(recorded, now)

    @staticmethod
    def _is_due(recorded: _Recorded, now: float) -> bool:
        is_soon = len(recorded.copies) >= MOST_COPIES_OF_RUN // 2
        is_due = recorded.is_over or now >= recorded.next_at - (EVERY - SOON if is_soon else 0.0)
        return is_due and not recorded.is_being_read and bool(recorded.rings or recorded.copies)

    def _charge(self, seconds: float) -> None:
        """A reading has used so much CPU."""
        share = script_shares.OF_RINGS * self._levels.node.config.max_cpu
        self._paid_until = max(self._paid_until, time.monotonic() - SAVED_SECONDS / share) + seconds / share

    def _is_refused(self, run: int) -> bool:
        """Whether its policies have decided that the run's calls are not to be recorded, or nobody's are any more."""
        sent = self._levels.inputs.get(run)
        return sent is not None and sent.is_decided and not python_tracing.records_calls(self._levels, run)

    def _look(self, recorded: _Recorded, number: int) -> None:
        """Whether its run is over, whose it is and what is to be said of it: at its first Python nobody may know."""
        runs = self._levels.node.runs
        is_there = bool(runs.state["used"][recorded.run]) and int(runs.rows["run_number"][recorded.run]) == number
        if is_there:
            recorded.whose, recorded.about = policy_input.owner(self._levels, recorded.run), self._about(recorded.run)
        if not is_there or runs.rows["final"][recorded.run]:
            recorded.is_over = True

    def _read(self, recorded: _Recorded, now: float) -> None:
        """Begins to. The rings of a run that is over are closed here: who reads them has them."""
        copies, is_last = list(recorded.copies), recorded.is_over
        rings = [*copies, *recorded.rings]
        ended, epoch = time.time(), time.time() - time.monotonic()
        about = python_ring.About([ring.begun for ring in rings], ended, epoch, recorded.notes, len(copies))
        request = CALLS + json.dumps(dataclasses.asdict(about)).encode()

        def answered(made: bytes, why: str) -> None:
            recorded.is_being_read = False
            if not is_last:  # those of the last reading are closed by now
                self._close_copies(recorded, copies)
            known, content = python_ring.parts_of(made)
            if why or not content:
                self._say(recorded, why or "what reads it makes no sense")
                return
            recorded.known = known
            self._keep(recorded, content, ended)

        try:
            with open(os.memfd_create("joblens_known", os.MFD_CLOEXEC), "r+b", buffering=0) as known:
                known.write(recorded.known)
                given = [known.fileno(), *(ring.descriptor for ring in rings)]
                self._readers.begin(request, given, MOST_ANSWER, now, answered, self._charge)
            recorded.is_being_read = True
        except OSError as error:
            self._say(recorded, str(error))
        finally:
            if is_last:
                self._close(recorded)

    def _say(self, recorded: _Recorded, why: str) -> None:
        """Why a reading has kept nothing, in the log and, as long as the run goes on, in its Note."""
        note = f"calls of its Pythons are not kept: {why}"
        self._note(recorded, note)
        self._levels.node.log_once(f"{recorded.about.slot}: run {recorded.about.run}: {note}")

    def _close(self, recorded: _Recorded) -> None:
        for ring in recorded.rings:
            os.close(ring.descriptor)
        recorded.rings = []
        self._close_copies(recorded, recorded.copies)

    @staticmethod
    def _close_copies(recorded: _Recorded, copies: Sequence[_Ring]) -> None:
        """These have been read, or can't be: what can't be read now can never be."""
        for copy in copies:
            os.close(copy.descriptor)
        recorded.copies = [copy for copy in recorded.copies if copy not in copies]

    def _keep(self, recorded: _Recorded, made: bytes, ended: float) -> None:
        """In place of what was kept of the run before."""
        about = dataclasses.replace(recorded.about, begun=recorded.begun, ended=ended)
        kept = self._artifacts.keep_about(about, [made], is_new=not recorded.kept)
        if kept is None:
            return
        if recorded.kept:
            with contextlib.suppress(OSError):
                self._artifacts.store.delete(recorded.kept)
        recorded.kept = kept.name


def _own_and_free(whose: str, of_users: Sequence[tuple[str, int]], most: int) -> tuple[int, int]:
    """Of `most` places: how many a user has, and how many nobody has."""
    return sum(count for user, count in of_users if user == whose), most - sum(count for _, count in of_users)
