"""Starters' folders, as inotify reports that they are made and removed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from condor_joblens.common import inotify

_FOLDER = re.compile(rb"dir_([0-9]{1,9})")


@dataclass
class Changes:
    """Starters whose folders were made, or are gone."""

    made: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)


class StarterFolders:
    """The EXECUTE folders of a node, by one inotify instance."""

    def __init__(self) -> None:
        """Raises OSError if the user's inotify instances are used up."""
        self._inotify = inotify.Inotify()

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._inotify.fileno()

    def watch(self, executes: Iterable[str]) -> None:
        """Watches these folders from now on; those that are watched already stay so."""
        for execute in executes:
            self._inotify.add(execute, inotify.CREATE | inotify.DELETE)

    def take(self) -> Changes:
        """What has happened since the last call."""
        changes = Changes()
        for _, what, name in self._inotify.take():
            found = _FOLDER.fullmatch(name)
            if found is not None:
                (changes.made if what & inotify.CREATE else changes.gone).append(int(found.group(1)))
        return changes
