"""One guard for each run: an exception while joblensd handles a run costs that run alone.

The traceback is logged, and the run's `Note` says what failed. What fails again and again is no longer tried for that
run; everything else goes on, for it and for the others.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from condor_joblens.agent.log_once import LogOnce
from condor_joblens.common.signals import Stop
from condor_joblens.common.uncaught import log_exception

STRIKES = 3
"""After so many exceptions at one step of one run, all within AGAIN_SECONDS, the step is left out for it."""

AGAIN_SECONDS = 600.0
"""And is tried again after this time: what was short (memory, descriptors) may be there."""

Result = TypeVar("Result")


class Failures:
    """Errors whose tracebacks are in the log: each is logged once, by its kind and the line of code that raised it."""

    def __init__(self, log: Callable[[str], Any]) -> None:
        self._log = log
        self._once = LogOnce(log)

    def log(self, subject: str, head: str, error: Exception) -> None:
        """Logs `head` and the traceback, unless the same has happened to this `subject` before."""
        innermost = traceback.extract_tb(error.__traceback__, -1)[0]
        if self._once.is_new(f"{subject}: {type(error).__name__}: {innermost.filename}:{innermost.lineno}"):
            log_exception(self._log, head, error)


class Noted(Protocol):
    """What is open for a run: agent/node.py."""

    notes: dict[str, str]


class GuardedNode(Protocol):
    """The part of a node that the guard sees."""

    handles: Any  # run -> Noted
    runs: Any

    def describe(self, run: int) -> str:
        """The run as a line of the log names it."""

    def update_note(self, run: int) -> None:
        """Writes the row's note."""


class RunGuard:
    """Calls what concerns one run; the steps are named as the run's `Note` says them."""

    def __init__(self, node: GuardedNode, failures: Failures) -> None:
        self._node, self._failures = node, failures
        self._strikes: dict[int, dict[str, list[float]]] = {}  # run -> step -> when it raised, by time.monotonic()

    def __call__(self, run: int, step: str, work: Callable[..., Result], *arguments: Any) -> Result | None:
        """What `work` returns; None if it raises, or is left out because it has raised too often."""
        if self.leaves_out(run, step):
            return None
        try:
            return work(*arguments)
        except Stop:
            raise
        except Exception as error:
            self.failed(run, step, error)
            return None

    def leaves_out(self, run: int, step: str) -> bool:
        """Whether the step is no longer tried for this run."""
        if run not in self._strikes:
            return False
        strikes = self._strikes[run].get(step, [])
        if len(strikes) < STRIKES:
            return False
        if time.monotonic() - strikes[-1] < AGAIN_SECONDS:
            return True
        del self._strikes[run][step]
        return False

    def runs_left_out(self, step: str) -> set[int]:
        """The runs for which the step is no longer tried."""
        return {run for run in list(self._strikes) if self.leaves_out(run, step)}

    def failed(self, run: int, step: str, error: Exception) -> None:
        """The step has raised `error` for this run. Never raises."""
        now, before = time.monotonic(), self._strikes.setdefault(run, {}).get(step, [])
        strikes = self._strikes[run][step] = [strike for strike in before if now - strike < AGAIN_SECONDS] + [now]
        is_last = len(strikes) >= STRIKES
        end = f"it is left out for this run for {AGAIN_SECONDS:g} s" if is_last else "all others go on"
        try:
            who = self._node.describe(run)
        except Exception as unknown:
            who = f"run {run} ({type(unknown).__name__})"
        self._failures.log(step, f"{who}: {step} failed: {end}", error)
        try:
            self._node.runs.rows["complete"][run] = False
            handles = self._node.handles.get(run)
            if handles is not None:
                handles.notes[f"failed {step}"] = f"joblensd failed at {step} ({type(error).__name__}, see JobLensdLog)"
                self._node.update_note(run)
        except Exception as second:
            self._failures.log(step, f"{who}: and its note can't say so", second)

    def forget(self, run: int) -> None:
        """The run has ended."""
        self._strikes.pop(run, None)
