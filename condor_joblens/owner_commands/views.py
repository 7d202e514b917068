"""A job's names of its files: what its processes see can differ from what is there for the node.

In a container the job's folder has another path, and a private /tmp is a folder below it. A name is only ever turned
into one below the job's folder, which beneath.py opens then. So no mounts of a job's lead anywhere else.
Where a process of the job sees something else in that place, it is refused, and not taken for the job's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from condor_joblens.owner_commands import beneath, job_processes
from condor_joblens.owner_commands.answers import Failed
from condor_joblens.owner_commands.mount_table import MOST_BYTES, MountTable, Place
from condor_joblens.owner_commands.mount_table import beneath as name_beneath

MOST_PROCESSES, MOST_VIEWS = 100, 4
"""Of a job's processes, the oldest ones, that are looked at; and of tables of mounts that are read."""

_OUTSIDE = "it is outside of the job's folder"


def open_regular(scratch: int, name: str, cgroup: int) -> tuple[int, str]:
    """A descriptor that reads what the job calls `name`, and its name below its folder `scratch`. Raises Failed."""
    return _Views(scratch, cgroup).opened(beneath.open_regular, name)


def open_folder(scratch: int, name: str, cgroup: int) -> int:
    """The same of a folder. Raises Failed."""
    return _Views(scratch, cgroup).opened(beneath.open_folder, name)[0]


class _Views:
    """What the processes of a job see."""

    def __init__(self, scratch: int, cgroup: int) -> None:
        self._scratch, self._path = scratch, os.fsencode(os.readlink(f"/proc/self/fd/{scratch}"))
        own = MountTable(_read("/proc/self/mountinfo"))
        self._folder = own.place(self._path)
        self._tables = [own if is_own else MountTable(text) for is_own, text in _tables(cgroup)] or [own]
        self._own = own

    def opened(self, opens: Callable[[int, str], int], name: str) -> tuple[int, str]:
        """What `opens` opens, if the job sees the same. Raises Failed."""
        wanted = self._from_folder(os.fsencode(name))
        self._check(wanted)
        found = opens(self._scratch, os.fsdecode(wanted))
        try:  # links may have led elsewhere
            path = os.fsencode(os.readlink(f"/proc/self/fd/{found}"))
            self._check(os.path.relpath(path, self._path))
        except Failed:
            os.close(found)
            raise
        return found, os.fsdecode(wanted)

    def _from_folder(self, name: bytes) -> bytes:
        """The same name, from the job's folder on. Raises Failed."""
        if not name.startswith(b"/"):
            return name
        if b".." in name.split(b"/"):
            raise Failed("a path from the root on has no .. here: leave that out")
        path = b"/" + b"/".join(part for part in name.split(b"/") if part not in (b"", b"."))
        found = {self._beneath(table.place(path)) for table in self._tables} - {None}
        if len(found) > 1:
            raise Failed("the job's processes see different files by this name: name it from the job's folder on")
        if not found:
            raise Failed(_OUTSIDE)
        (only,) = found
        assert only is not None
        return only

    def _beneath(self, place: Place | None) -> bytes | None:
        return None if place is None or self._folder is None else name_beneath(self._folder, place)

    def _check(self, name: bytes) -> None:
        """Raises Failed if a process of the job sees something else by this name from its folder on."""
        tables = [table for table in self._tables if table is not self._own]
        if self._folder is None or not tables or b".." in name.split(b"/"):
            return
        device, path = self._folder
        wanted = device, os.path.normpath(os.path.join(path, name))
        seen = [(table, point) for table in tables for point in table.paths(self._folder)]
        if not seen and len(tables) == len(self._tables):
            raise Failed("the job does not see its folder of this node: its files are elsewhere")
        if any(table.place(os.path.normpath(os.path.join(point, name))) != wanted for table, point in seen):
            raise Failed("in the job something else is mounted there, which is not shown")


def _tables(cgroup: int) -> list[tuple[bool, bytes]]:
    """Of each kind of view that its oldest processes have: whether it is ours, and the table of mounts."""
    found: dict[tuple[int, ...], tuple[int, bool, bytes]] = {}
    own = _kind("/proc/self")
    for pid in job_processes.oldest_first(cgroup)[:MOST_PROCESSES]:
        with contextlib.suppress(OSError):
            kind = _kind(f"/proc/{pid}")
            if kind not in found and len(found) < MOST_VIEWS:
                found[kind] = pid, kind == own, _read(f"/proc/{pid}/mountinfo")
    living = job_processes.pids(cgroup)
    return [(is_own, text) for pid, is_own, text in found.values() if pid in living]


def _kind(process: str) -> tuple[int, ...]:
    """What tells processes that see the same from others: mount namespace and root folder. Raises OSError."""
    namespace, root = os.stat(f"{process}/ns/mnt"), os.stat(f"{process}/root")
    return namespace.st_ino, root.st_dev, root.st_ino


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(MOST_BYTES)
