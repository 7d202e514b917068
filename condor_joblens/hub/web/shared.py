"""Answers that many viewers share: each question is asked once a period, however many want to know.

A question is named by its viewer's scope and by what he asked for, never by the viewer: who sees the same sees one
answer. A question that is dear is asked less often, so that none takes more than a tenth of a core.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from condor_joblens.common.errors import JobLensError

T = TypeVar("T")

PERIOD = 1.0
"""Seconds for which an answer serves all, at least."""

SHARE = 10.0
"""An answer that took a second serves for ten."""

BACKOFF_SHARE = 200.0
"""The same of a question that is asked for long, where that may be: a page over all runs that somebody leaves open.

The store works on such a question with two cores and more, so it takes up to twice its time.
"""

BACKOFF_AFTER = 60.0
"""Seconds for which it has been wanted without a pause, until it backs off."""

BACKOFF_MOST = 60.0
"""Seconds for which such an answer serves, at most; unless SHARE says more."""

PAUSE = 5.0
"""Seconds after the end of an answer, in which nobody wants the next one: whoever comes then is as the first."""

MOST_OF_AN_ERROR = 10.0
"""Seconds for which an error serves all, however long it took: a store that hung for a minute may be back by then."""

MOST = 256
"""Answers that are kept; the one that was wanted longest ago goes first."""


class OfOneViewer(JobLensError):
    """Why this viewer gets no answer now: others who ask the same may get one."""


@dataclass
class _Answer:
    lock: threading.Lock = field(default_factory=threading.Lock)
    until: float = 0.0  # by the monotonic clock
    value: Any = None
    error: Exception | None = None
    stamp: Hashable = None  # of what it was asked of
    wanted_since: float = 0.0

    def seconds(self, took: float, is_for_long: bool) -> float:
        """For which it serves, if it took so many."""
        if self.error is not None:
            return min(max(PERIOD, SHARE * took), MOST_OF_AN_ERROR)
        return max(PERIOD, SHARE * took, min(BACKOFF_SHARE * took, BACKOFF_MOST) if is_for_long else 0.0)


class Shared:
    """Of one process; any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, question: Hashable, ask: Callable[[], T], stamp: Hashable = None, *, backs_off: bool = False) -> T:
        """What `ask` says, or said a moment ago; who wants it meanwhile waits for it. Raises what `ask` raised.

        stamp: the same as long as `ask` would say the same; then the answer serves on. Whom `ask` refuses by
        OfOneViewer gets the answer before, if there is one. backs_off: asked less often once it is wanted for long.
        """
        with self._lock:
            answer = self._answers.setdefault(question, _Answer())
            self._answers.move_to_end(question)
            while len(self._answers) > MOST:
                self._answers.popitem(last=False)
        with answer.lock:
            is_same = stamp is not None and stamp == answer.stamp and answer.value is not None
            if self._clock() >= answer.until and not is_same:
                begin = self._clock()
                if begin > answer.until + PAUSE:
                    answer.wanted_since = begin
                try:
                    answer.value, answer.error, answer.stamp = ask(), None, stamp
                except OfOneViewer:
                    if answer.value is None:
                        raise
                    return answer.value  # type: ignore[no-any-return]
                except Exception as error:  # all who wait are told the same, and don't ask one after the other
                    answer.value, answer.error = None, error
                end = self._clock()
                is_for_long = backs_off and end - answer.wanted_since > BACKOFF_AFTER
                answer.until = end + answer.seconds(end - begin, is_for_long)
            if answer.error is not None:
                raise answer.error
            found: T = answer.value
            return found
