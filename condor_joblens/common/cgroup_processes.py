"""The processes of a cgroup and of those below it, from their cgroup.procs."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

MOST_CGROUPS = 100
"""In how many cgroups processes are looked for: a job can make as many as it likes."""

MOST_DEEP = 100
"""How deep below the first one. A job can make thousands, one in the other, of which the last has no path any more."""

MOST_PROCESSES = 1000
"""How many processes are found at most."""


def processes_in(path: str, most: int = MOST_PROCESSES, most_cgroups: int = MOST_CGROUPS) -> Iterator[int]:
    """The ids of the processes in the cgroup at `path` and below it; those of so many cgroups, and `most` at most.

    A cgroup that is removed meanwhile has none. Threaded cgroups are left out: their processes are those of a parent.
    """
    return itertools.islice(_all(path, most_cgroups), most)


def has_more(path: str, cgroups: int) -> bool:
    """Whether these are more cgroups than so many, or some lie deeper than MOST_DEEP."""
    found = list(itertools.islice(_folders(path), cgroups + 1))
    return len(found) > cgroups or any(is_cut for _, is_cut in found)


def _all(path: str, most_cgroups: int) -> Iterator[int]:
    for folder, _ in itertools.islice(_folders(path), most_cgroups):
        with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "cgroup.procs")) as procs:
            yield from map(int, procs)


def _folders(path: str) -> Iterator[tuple[str, bool]]:
    """Each cgroup, and whether there are others below it that are not looked into. Not os.walk, which calls itself."""
    waiting = [(path, 0)]
    while waiting:
        folder, depth = waiting.pop()
        below: list[str] = []
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        is_cut = depth >= MOST_DEEP and bool(below)
        yield folder, is_cut
        if not is_cut:
            waiting += ((each, depth + 1) for each in reversed(below))
