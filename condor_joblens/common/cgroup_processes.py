"""The processes of a cgroup and of those below it, from their cgroup.procs."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

MOST_CGROUPS = 100
"""In how many cgroups processes are looked for: a job can make as many as it likes."""

MOST_PROCESSES = 1000
"""How many processes are found at most."""


def processes_in(path: str, most: int = MOST_PROCESSES, most_cgroups: int = MOST_CGROUPS) -> Iterator[int]:
    """The ids of the processes in the cgroup at `path` and below it; those of so many cgroups, and `most` at most.

    A cgroup that is removed meanwhile has none. Threaded cgroups are left out: their processes are those of a parent.
    """
    return itertools.islice(_all(path, most_cgroups), most)


def has_more(path: str, cgroups: int) -> bool:
    """Whether these are more cgroups than so many."""
    return sum(1 for _ in itertools.islice(os.walk(path), cgroups + 1)) > cgroups


def _all(path: str, most_cgroups: int) -> Iterator[int]:
    for folder, _, files in itertools.islice(os.walk(path), most_cgroups):
        if "cgroup.procs" in files:
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "cgroup.procs")) as procs:
                yield from map(int, procs)
