"""Tells when somebody puts a new `.update.ad` into a job's folder, as inotify reports it."""

from __future__ import annotations

from condor_joblens.common import inotify
from condor_joblens.owner_files.operations import OwnerFiles

NAME = b".update.ad"


class Watches:
    """The folders of many jobs; each watch is a number."""

    def __init__(self, files: OwnerFiles) -> None:
        """Raises OSError if the user's inotify instances are used up."""
        self._files = files
        self._inotify = inotify.Inotify()
        self._watches: set[int] = set()

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._inotify.fileno()

    def add(self, folder: int) -> int | None:
        """Watches the open folder. None if that is impossible (too many watches: fs.inotify.max_user_watches)."""
        watch = self._files.watch(self.fileno(), folder)
        if watch is not None:
            self._watches.add(watch)
        return watch

    def remove(self, watch: int) -> None:
        """Forgets a folder; one that is gone has been forgotten by itself."""
        self._inotify.remove(watch)
        self._watches.discard(watch)

    def take(self) -> set[int]:
        """The watches in whose folder an `.update.ad` has been put since the last call, by whomever.

        All watches if the kernel had no room for more events. One job can cause as many as it likes, and another job's
        must not be missed for that.
        """
        found = set()
        for watch, what, name in self._inotify.take():
            if what & inotify.OVERFLOW:
                return set(self._watches)
            if what & inotify.IGNORED:
                self._watches.discard(watch)
            elif name == NAME:
                found.add(watch)
        return found
