"""Profiles that joblensd has announced, until they are records: users by turns, in a thread that may take its time.

It takes a tenth of a core at most, by a process of its own. The thread that reads the shared memory never waits for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Optional

from condor_joblens.common.errors import JobLensError
from condor_joblens.export.profile_maker import ProfileGone, ProfileMaker
from condor_joblens.shm.artifacts import ArtifactReader
from condor_joblens.sinks import Record

MOST_OF_ONE_USER = 256
"""Profiles that wait: some minutes of all the jobs that may be at level profile. Beyond that his oldest is lost."""

REST = 9.0
"""Seconds without work for each second of it."""

LONGEST_REST = 30.0
IDLE_SECONDS = 120.0
"""After which the process ends until it is needed again."""


@dataclass(frozen=True)
class Announced:
    """A profile that there is: numbering and number of the event that said so, and the artifact's name."""

    identity: int
    number: int
    name: str


@dataclass(frozen=True)
class Made:
    """What became of one. No record: it is lost."""

    announced: Announced
    owner: str
    record: Optional[Record]


@dataclass(frozen=True)
class _Waiting:
    announced: Announced
    sinks: frozenset[str]


class ProfileQueue:
    """`announce`, `taken` and `position` are for one thread, and never wait."""

    def __init__(self, folder: str, node: str, log: Callable[[str], None], rest: float = REST) -> None:
        """`folder`: of artifacts; `node`: the machine's name; `rest`: as REST."""
        self._reader, self._maker = ArtifactReader(folder), ProfileMaker(folder, node)
        self._log, self._rest = log, rest
        self._lock = threading.Condition()
        self._arrived: deque[Announced] = deque()
        self._waiting: OrderedDict[str, deque[_Waiting]] = OrderedDict()  # by user; who comes first is next
        self._open: set[Announced] = set()  # those that `taken` has not told of
        self._made: list[Made] = []
        self._identity, self._newest = 0, 0
        self._said = ""
        self._stopped = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def announce(self, found: Iterable[Announced]) -> None:
        """There are these, in the order of their numbers. Those that were announced before are left out."""
        with self._lock:
            new = [each for each in found if each.identity != self._identity or each.number > self._newest]
            if not new:
                return
            self._identity, self._newest = new[-1].identity, new[-1].number
            self._open.update(new)
            self._arrived += new
            self._lock.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="profiles", daemon=True)
            self._thread.start()

    def taken(self) -> list[Made]:
        """What has become of some since the last call."""
        with self._lock:
            made, self._made = self._made, []
            self._open.difference_update(each.announced for each in made)
            return made

    def position(self, identity: int, read: int) -> tuple[int, int, int]:
        """The numbering, the number up to which `taken` has told of all, and how many wait beyond that.

        `read`: up to where events of the numbering `identity` have been read.
        """
        with self._lock:
            numbers = [each.number - 1 for each in self._open if each.identity == identity]
            return identity, min([read, *numbers]), len(self._open)

    def stop(self) -> None:
        """What waits is announced again to the next process."""
        self._stopped.set()
        with self._lock:
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join(1.0)

    # --- the thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            found = self._next()
            if found is None:
                continue
            owner, waiting = found
            record, seconds = self._make(waiting)
            self._tell(Made(waiting.announced, owner, record))
            self._stopped.wait(min(LONGEST_REST, self._rest * seconds))
        self._maker.close()

    def _next(self) -> tuple[str, _Waiting] | None:
        """Of the user whose turn it is the oldest; None after a while without any."""
        with self._lock:
            if not self._arrived and not self._waiting and not self._lock.wait(IDLE_SECONDS):
                self._maker.close()
            arrived, self._arrived = list(self._arrived), deque()
        for announced in arrived:
            self._admit(announced)
        with self._lock:
            if not self._waiting or self._stopped.is_set():
                return None
            owner, waiting = self._waiting.popitem(last=False)
            first = waiting.popleft()
            if waiting:
                self._waiting[owner] = waiting  # behind the others
            return owner, first

    def _admit(self, announced: Announced) -> None:
        """It waits with those of its user, of which there may be so many."""
        try:
            about = self._reader.describe(announced.name)
        except JobLensError as error:
            self._say(str(error))
            self._tell(Made(announced, "", None))
            return
        sinks = frozenset(filter(None, (name.strip().lower() for name in about.sinks.split(","))))
        with self._lock:
            mine = self._waiting.setdefault(about.owner, deque())
            mine.append(_Waiting(announced, sinks))
            oldest = mine.popleft() if len(mine) > MOST_OF_ONE_USER else None
        if oldest is not None:
            self._tell(Made(oldest.announced, about.owner, None))

    def _make(self, waiting: _Waiting) -> tuple[Optional[Record], float]:
        """The record, if there is one, and what it took."""
        try:
            made = self._maker.make(waiting.announced.name, waiting.sinks)
        except ProfileGone:
            return None, 0.0
        except JobLensError as error:
            self._say(str(error))
            return None, 1.0
        return made.record, made.seconds

    def _tell(self, made: Made) -> None:
        with self._lock:
            self._made.append(made)

    def _say(self, message: str) -> None:
        if message != self._said:
            self._said = message
            self._log(message)
