"""Processes of a job that are to be looked at, for which there can be more than are looked at in time."""

from __future__ import annotations

from condor_joblens.profiling.sample_counts import Process


class WaitingProcesses:
    """The one that has asked twice comes first: it lives on. Of those that have asked once, the latest.

    In a storm of forks most processes are gone when their turn comes. The kernel asks again for one that is not.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._once: dict[bytes, Process] = {}  # by struct process_key, the latest last
        self._again: dict[bytes, Process] = {}

    def __len__(self) -> int:
        return len(self._once) + len(self._again)

    def add(self, process: Process) -> None:
        """Of those that have asked once, the oldest makes room."""
        key = process.key
        if key in self._again:
            return
        if key in self._once and len(self._again) < self._most:
            self._again[key] = self._once.pop(key)
            return
        self._once[key] = process
        if len(self._once) > self._most:
            del self._once[next(iter(self._once))]

    def take(self) -> Process:
        """The next one, which does not wait any more. Raises KeyError if there is none."""
        if self._again:
            return self._again.pop(next(iter(self._again)))
        return self._once.popitem()[1]
