"""Tells when somebody puts a new `.update.ad` into a job's folder, as inotify reports it."""

from __future__ import annotations

from condor_joblens.common import inotify

NAME = b".update.ad"


class Watches:
    """The folders of many jobs; each watch is a number."""

    def __init__(self) -> None:
        """Raises OSError if the user's inotify instances are used up."""
        self._inotify = inotify.Inotify()

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._inotify.fileno()

    def add(self, folder: int) -> int | None:
        """Watches the open folder. None if that is impossible (too many watches: fs.inotify.max_user_watches)."""
        return self._inotify.add(f"/proc/self/fd/{folder}", inotify.MOVED_TO | inotify.CLOSE_WRITE)

    def remove(self, watch: int) -> None:
        """Forgets a folder; one that is gone has been forgotten by itself."""
        self._inotify.remove(watch)

    def take(self) -> set[int]:
        """The watches in whose folder an `.update.ad` has been put since the last call, by whomever."""
        return {watch for watch, _, name in self._inotify.take() if name == NAME}
