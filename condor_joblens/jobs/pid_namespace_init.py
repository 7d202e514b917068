"""condor_pid_ns_init: HTCondor's own first process of a job that has process ids of its own (USE_PID_NAMESPACES)."""

from __future__ import annotations

import os
import stat

from condor_joblens.jobs.wrapper_programs import file_of

NAME = "condor_pid_ns_init"
"""In LIBEXEC: as which the starter starts it."""

NOBODY = (0, 0)
"""No file has this device and inode."""


class PidNamespaceInit:
    """That program of an installation of HTCondor, which an upgrade replaces."""

    def __init__(self, libexec: str = "") -> None:
        """`libexec` is HTCondor's LIBEXEC; empty: there is none."""
        self._path = os.path.join(libexec, NAME) if os.path.isabs(libexec) else ""
        self._seen: tuple[int, ...] | None = None

    def look(self) -> tuple[int, int] | None:
        """Its device and inode as programs in the kernel see them, if they are other ones than at the last look.

        NOBODY if it is missing, or others than root can write it: then it is no more HTCondor's than the job's.
        """
        try:
            found = os.stat(self._path)
        except OSError:
            return self._known_as(())
        known = self._known_as((found.st_dev, found.st_ino, found.st_mode, found.st_uid))
        if known is None or found.st_uid or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return known
        try:
            return file_of(self._path)
        except (OSError, ValueError):
            return NOBODY

    def _known_as(self, seen: tuple[int, ...]) -> tuple[int, int] | None:
        """None if the file is the one that has been seen."""
        before, self._seen = self._seen, seen
        return None if seen == before else NOBODY
