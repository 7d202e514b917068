"""Which cgroups are made, removed, filled and emptied, as inotify reports it: for the tracer without BPF."""

from __future__ import annotations

import os

from condor_joblens.common import inotify

POPULATION = "cgroup.events"
"""Changes when a cgroup of version 2 gets its first process or loses its last one."""


class CgroupInotify:
    """One inotify instance that watches base folders for new cgroups, and cgroups for their population."""

    def __init__(self) -> None:
        """Raises OSError if the user's inotify instances are used up."""
        self._inotify = inotify.Inotify()
        self._bases: dict[int, str] = {}
        self._populations: dict[int, str] = {}

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._inotify.fileno()

    def watch(self, base: str) -> None:
        """Folders that are made or removed directly below `base` are told from now on."""
        watch = self._inotify.add(base, inotify.CREATE | inotify.DELETE | inotify.MOVED_FROM)
        if watch is not None:
            self._bases[watch] = base

    def watch_population(self, path: str) -> None:
        """It is told when the cgroup at `path` gets its first process or loses its last; not of version 1."""
        watch = self._inotify.add(os.path.join(path, POPULATION), inotify.MODIFY)
        if watch is not None:
            self._populations[watch] = path

    def forget(self, path: str) -> None:
        """Nothing more is told of the population of the cgroup at `path`."""
        for watch in [watch for watch, known in self._populations.items() if known == path]:
            del self._populations[watch]
            self._inotify.remove(watch)

    def take(self) -> tuple[list[str], list[str], list[str]]:
        """Cgroups that were made, removed, and whose population changed, since the last call.

        If the kernel had no room for all events, the population of every cgroup is said to have changed. Cgroups that
        were made or removed meanwhile are found within a minute (agent/lifecycle/recovery.py).
        """
        made: list[str] = []
        gone: list[str] = []
        changed: dict[str, None] = {}
        for watch, what, name in self._inotify.take():
            if what & inotify.OVERFLOW:
                changed.update(dict.fromkeys(self._populations.values()))
            elif what & inotify.IGNORED:
                self._populations.pop(watch, None)
            elif watch in self._populations:
                changed[self._populations[watch]] = None
            elif watch in self._bases and what & inotify.IS_FOLDER:
                path = os.path.join(self._bases[watch], os.fsdecode(name))
                (made if what & inotify.CREATE else gone).append(path)
        return made, gone, list(changed)

    def close(self) -> None:
        """Gives the descriptor back."""
        self._inotify.close()
