"""Where the schedds say that jobs run: RemoteHost of the queue, asked once a minute by condor_q.

A record contradicts it if its job ran elsewhere at that time, without a break. It was there before the record's time
then, and is there still after it. Of all else nothing is known: jobs that don't run now, earlier runs, and what no
queue has.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.ingest.command_output import ANSWER_SECONDS, output

PERIOD = 60.0
"""Seconds between two questions."""

CLOCKS = 60.0
"""Seconds by which clocks of nodes, access points and the hub may differ."""

GOOD_SECONDS = 600.0
"""After which an answer says nothing any more."""

QUESTION = (
    *("-constraint", "JobStatus == 2 && JobUniverse != 11 && RemoteHost isnt undefined"),
    *("-af:r", "GlobalJobId", "RemoteHost", "JobCurrentStartDate"),
)
"""Strings come quoted: a user can edit his job's attributes, and writes no line about another's."""

_FOR_EVER = 1e11
_LINE = re.compile(r'"([^"\\\s]{1,1024})" +"([^"\\\s]{1,1024})" +(\d{1,12})')


@dataclass(frozen=True)
class Answer:
    """Of the queues, at one time."""

    time: float = 0.0  # epoch seconds, before they were asked; 0: they never were
    jobs: dict[str, tuple[str, int]] = field(default_factory=dict)  # GlobalJobId -> host in small letters, start


class Unsure(JobLensError):
    """It can't be told yet: the queue was asked before that time."""


class Places:
    """Any thread may ask; `begin` starts the one that asks the queues."""

    def __init__(self, command: str, say: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        """command: condor_q with whatever says which queues. Empty: nothing is known."""
        self._command = [*shlex.split(command), *QUESTION] if command else []
        self._say, self._clock = say, clock
        self._answer = Answer()
        self._said = ""
        self._first = threading.Event()

    @property
    def time(self) -> float:
        """Epoch seconds for which we know it; 0: for none, or the answer is too old. Without a command, the far future:
        nothing waits for an answer that never comes."""
        return self._current().time if self._command else _FOR_EVER

    def begin(self) -> None:
        """Asks once a period from now on, and waits for the first answer, good or not."""
        if self._command:
            threading.Thread(target=self._run, daemon=True).start()
            self._first.wait(ANSWER_SECONDS + 10)

    def contradiction(self, job: str, node: str, moment: float) -> str:
        """Why the job can't have been on the node at that moment, by epoch seconds; empty: it may. Raises Unsure."""
        known = self._current()
        found = known.jobs.get(job)
        if found is None or found[0] == node.lower() or found[1] + CLOCKS > moment:
            return ""
        if known.time <= moment + CLOCKS:
            raise Unsure(f"the queue has it on {found[0]}, and was asked before that time")
        return f"the queue has the job on {found[0]} since {found[1]}"

    def ask(self) -> None:
        """The queues, now. An error is said once, and changes nothing."""
        try:
            begin = self._clock()
            self._answer = Answer(begin, parsed(output(self._command).splitlines()))
            self._said = ""
        except (JobLensError, OSError) as error:
            if str(error) != self._said:
                self._said = str(error)
                self._say(f"the queue can't be asked: {error}; after ten minutes nodes are believed without it")

    def _run(self) -> None:
        while True:
            self.ask()
            self._first.set()
            time.sleep(PERIOD)

    def _current(self) -> Answer:
        found = self._answer
        return found if self._clock() < found.time + GOOD_SECONDS else Answer()


def parsed(lines: Iterable[str]) -> dict[str, tuple[str, int]]:
    """Of condor_q's lines: GlobalJobId -> host, start. Other lines, as those of jobs without a host, are left out."""
    found: dict[str, tuple[str, int]] = {}
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match and "@" in match[2]:
            found[match[1]] = (match[2].rpartition("@")[2].lower(), int(match[3]))
    return found
