"""What is done as the owner of a folder, a file or a process: a short list, with names that nobody can choose."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from condor_joblens.common import inotify, privilege
from condor_joblens.common.log import APPEND
from condor_joblens.common.same_mount import folder_in, open_in
from condor_joblens.owner_files import notices, progress, reports
from condor_joblens.owner_files.ad_leases import AdLeases
from condor_joblens.owner_files.notices import NoticeResult
from condor_joblens.owner_files.reports import Report, ReportResult
from condor_joblens.publish import updatead
from condor_joblens.publish.updatead import Version, WriteResult, Written

MAX_AD_BYTES = 1 << 20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_IO_BYTES = 4096  # /proc/PID/io has 120


class Ad(enum.Enum):
    """The files that are read in a job's folder."""

    JOB = ".job.ad"
    MACHINE = ".machine.ad"
    UPDATE = updatead.NAME


@dataclass(frozen=True)
class AdWrite:
    """JobLensUsage for the `.update.ad` of an open folder; `is_users`: the folder is the job's (HTCondor 23)."""

    folder: int
    text: str
    is_users: bool


class OwnerFiles(Protocol):
    """Descriptors go in and out; whose they are is asked of the kernel, never of the caller."""

    tells_users_apart: bool
    """Whether HTCondor's user and a job's are different ones."""

    def open_folders(self, execute: str, starter: int) -> tuple[int, int] | None:
        """The folders of `.update.ad` and of `.job.ad` of this starter; twice the same one up to HTCondor 23."""

    def open_ad(self, folder: int, ad: Ad, not_owners: bool = False) -> int | None:
        """A plain file of at most MAX_AD_BYTES, open for reading; None for anything else.

        With `not_owners` also for a file of the folder's owner.
        """

    def lease_ads(self, folders: Sequence[int]) -> None:
        """Whoever opens the `.update.ad` of these folders waits for `write_ads`, some milliseconds at most."""

    def write_ads(self, writes: Sequence[AdWrite]) -> list[Written]:
        """Puts JobLensUsage into each `.update.ad`."""

    def write_report(self, folder: int, report: Report, content: bytes) -> ReportResult:
        """Puts a report of at most reports.MOST_BYTES into a job's open folder, if nothing of the job's is there."""

    def add_notice(self, folder: int, line: bytes) -> NoticeResult:
        """Appends a line of at most notices.MOST_BYTES to what people have told the job of this open folder."""

    def progress(self, folders: Sequence[int]) -> list[bytes]:
        """What the jobs of these open folders say in a file; empty: nothing."""

    def versions(self, folders: Sequence[int]) -> list[Version]:
        """Of the `.update.ad` in each folder."""

    def watch(self, watches: int, folder: int) -> int | None:
        """Adds a folder to an inotify instance: the number of the watch; None if that is impossible."""

    def process_io(self, pid: int) -> bytes:
        """/proc/PID/io. Raises OSError."""

    def open_log(self, path: str) -> int:
        """A plain file, open for appending, as the owner of its folder. Raises OSError."""

    def cpu_seconds(self) -> float:
        """CPU time that this has taken outside of joblensd."""


class Operations:
    """Each of them, by this very process: `as_owner` makes it this user and group, as far as files are concerned.

    `group` is the group that a file of this group gets, `proc` where the kernel tells of processes. Without `leases`
    nobody waits for an ad.
    """

    def __init__(
        self,
        as_owner: Callable[[int, int], AbstractContextManager[None]] = privilege.as_owner,
        group: Callable[[int], int] = lambda gid: gid,
        proc: str = "/proc",
        leases: AdLeases | None = None,
    ) -> None:
        self.tells_users_apart = os.geteuid() == 0
        self._leases = leases
        self._as, self._group, self._proc = as_owner, group, proc

    def open_folders(self, execute: str, starter: int) -> tuple[int, int] | None:
        outer = self._starters_folder(execute, starter)
        if outer is None or not _is_htcondors(execute, outer):  # what has these names there was made by the job's user
            return None if outer is None else (outer, outer)
        found: list[int] = []
        try:
            for name in ("htcondor", "scratch"):
                found.append(self._open_folder(outer, name))
        except OSError as error:
            for stray in found:
                os.close(stray)
            if error.errno in _NO_FOLDER:
                return outer, outer
            os.close(outer)  # the job's folder is below: this one is not the job's user's
            return None
        os.close(outer)
        return found[0], found[1]

    def open_ad(self, folder: int, ad: Ad, not_owners: bool = False) -> int | None:
        owner = os.fstat(folder)
        if ad is Ad.UPDATE and self._leases is not None:  # it would keep us out as well
            self._leases.release(folder)
        try:
            with self._as_owner_of(owner):
                file = open_in(folder, ad.value, _FILE)
        except OSError:
            return None
        status = os.fstat(file)
        is_theirs = not_owners and status.st_uid == owner.st_uid
        is_small = status.st_size <= MAX_AD_BYTES and updatead.is_quickly_deleted(status)
        if not stat.S_ISREG(status.st_mode) or not is_small or is_theirs:
            os.close(file)
            return None
        return file

    def lease_ads(self, folders: Sequence[int]) -> None:
        if self._leases is None:
            return
        for folder in folders:
            with contextlib.suppress(PermissionError), self._as_owner_of(os.fstat(folder)):  # nobody whom we may become
                self._leases.take(folder)

    def write_ads(self, writes: Sequence[AdWrite]) -> list[Written]:
        return [self._write_ad(write) for write in writes]

    def write_report(self, folder: int, report: Report, content: bytes) -> ReportResult:
        owner = os.fstat(folder)
        try:
            with self._as_owner_of(owner):
                return reports.write(folder, owner.st_uid, report, content)
        except PermissionError:  # nobody whom we may become
            return ReportResult.FAILED

    def add_notice(self, folder: int, line: bytes) -> NoticeResult:
        owner = os.fstat(folder)
        try:
            with self._as_owner_of(owner):
                return notices.add(folder, owner.st_uid, line)
        except PermissionError:  # nobody whom we may become
            return NoticeResult.FAILED

    def progress(self, folders: Sequence[int]) -> list[bytes]:
        return [self._progress(folder) for folder in folders]

    def versions(self, folders: Sequence[int]) -> list[Version]:
        return [self._version(folder) for folder in folders]

    def watch(self, watches: int, folder: int) -> int | None:
        what = inotify.MOVED_TO | inotify.CLOSE_WRITE
        try:
            with self._as_owner_of(os.fstat(folder)):
                return inotify.add_watch(watches, b"/proc/self/fd/%d" % folder, what)
        except OSError:
            return None

    def process_io(self, pid: int) -> bytes:
        folder = f"{self._proc}/{pid}"
        with self._as_owner_of(os.stat(folder)):
            # the kernel asks at each read who reads
            file = os.open(f"{folder}/io", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(file, _IO_BYTES)
            finally:
                os.close(file)

    def open_log(self, path: str) -> int:
        with self._as_owner_of(os.stat(os.path.dirname(path) or ".")):
            return os.open(path, APPEND, 0o644)

    def cpu_seconds(self) -> float:
        return 0.0

    def _as_owner_of(self, status: os.stat_result) -> AbstractContextManager[None]:
        return self._as(status.st_uid, status.st_gid)

    def _starters_folder(self, execute: str, starter: int) -> int | None:
        try:
            above = os.open(execute, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return self._open_folder(above, f"dir_{starter}")
        except OSError:
            return None
        finally:
            os.close(above)

    def _open_folder(self, outer: int, name: str) -> int:
        """Opens a folder as its owner, who alone may look into it. Raises OSError.

        Nobody's FUSE is asked, which would keep all jobs waiting. So EXDEV is raised where one is mounted over it.
        """
        place = folder_in(outer, name)
        try:
            with self._as_owner_of(os.fstat(place)):
                return open_in(place, ".", _FOLDER)
        finally:
            os.close(place)

    def _write_ad(self, write: AdWrite) -> Written:
        owner = os.fstat(write.folder)
        # a starter may transfer any other file of the job's folder as output
        temporary = updatead.STARTDS_TEMPORARY if write.is_users else updatead.TEMPORARY
        try:
            with self._as_owner_of(owner):
                if self._leases is not None:
                    written = self._leases.write(write.folder, owner.st_uid, write.text)
                    if written is not None:
                        return written
                group = self._group(owner.st_gid)
                return updatead.replace(write.folder, owner.st_uid, group, write.text, temporary)
        except PermissionError:  # nobody whom we may become
            return Written(WriteResult.DENIED)

    def _progress(self, folder: int) -> bytes:
        try:
            with self._as_owner_of(os.fstat(folder)):
                return progress.read(folder)
        except PermissionError:
            return b""

    def _version(self, folder: int) -> Version:
        try:
            with self._as_owner_of(os.fstat(folder)):
                return updatead.version(folder)
        except PermissionError:
            return None


def _is_htcondors(execute: str, outer: int) -> bool:
    """Whether the starter's folder is not the job's user's, who could make any folder in it: by EXECUTE's owner."""
    try:
        return os.stat(execute).st_uid == os.fstat(outer).st_uid
    except OSError:
        return False
