"""joblensd's end of the process that works as other users. Each call but one waits for its answer: none takes long."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from condor_joblens.common import descriptors, own_process, privilege
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.own_process import HelperLost
from condor_joblens.owner_files import messages, notices, reports
from condor_joblens.owner_files.allowed_ids import AllowedIds
from condor_joblens.owner_files.helper import UNFILTERED
from condor_joblens.owner_files.messages import Request, Verb
from condor_joblens.owner_files.notices import NoticeResult
from condor_joblens.owner_files.operations import Ad, AdWrite, Operations, OwnerFiles
from condor_joblens.owner_files.reports import Report, ReportResult
from condor_joblens.publish.updatead import Version, Written

T = TypeVar("T")

MODULE = "condor_joblens.owner_files.helper"

PATIENCE = 60.0
"""Seconds for an answer. Files of jobs can be on a server that is slow; who answers later is lost."""


class Helper:
    """The operations of another process, which alone may become the owners of folders (OwnerFiles)."""

    tells_users_apart = True

    def __init__(
        self, allowed: AllowedIds, uid: int, gid: int, watch: own_process.Watch = own_process.unwatched
    ) -> None:
        """Starts it as this user; `watch` is told who answers what its list of system calls refuses.

        Raises JobLensError if it does not come up.
        """
        self._memory = os.memfd_create("joblens-ads", os.MFD_CLOEXEC)
        os.ftruncate(self._memory, messages.MEMORY_BYTES)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = (allowed.encode(), str(uid), str(gid), str(self._memory))
        try:
            with theirs:
                self._process = own_process.start(own_process.command(MODULE, *arguments), theirs, (self._memory,))
            said = own_process.hear_ready(self._channel, "the process that works in jobs' folders", watch)
            self._channel.settimeout(PATIENCE)
        except OSError as error:
            said, reason = b"", f": {error.strerror or error}"
        else:
            reason = ""
        if not said:
            raise JobLensError(f"the process that works in jobs' folders can't be started{reason}: joblens doctor")
        self.is_filtered = said != UNFILTERED
        self.pid = self._process.pid

    def fileno(self) -> int:
        """Readable only when the process has ended."""
        return self._channel.fileno()

    def lost(self) -> NoReturn:
        """Raises HelperLost, and says how it ended."""
        own_process.lost(self._process, "the process that works in jobs' folders")

    def stop(self) -> None:
        """Closes the connection; the process ends then."""
        self._channel.close()
        os.close(self._memory)
        self._process.wait()

    def open_folders(self, execute: str, starter: int) -> tuple[int, int] | None:
        _, found = self._ask(Request(Verb.OPEN_FOLDERS, path=execute, number=starter), most=2)
        return (found[0], found[-1]) if found else None

    def open_ad(self, folder: int, ad: Ad, not_owners: bool = False) -> int | None:
        _, found = self._ask(Request(Verb.OPEN_AD, ad=ad, not_owners=not_owners), [folder], most=1)
        if found and not stat.S_ISREG(os.fstat(found[0]).st_mode):  # reading it could take for ever
            self._mistrust(found)
        return found[0] if found else None

    def lease_ads(self, folders: Sequence[int]) -> None:
        for first in range(0, len(folders), messages.MAX_ADS):
            self._send(Request(Verb.LEASE_ADS), folders[first : first + messages.MAX_ADS])

    def write_ads(self, writes: Sequence[AdWrite]) -> list[Written]:
        return [
            written
            for first in range(0, len(writes), messages.MAX_ADS)
            for written in self._write_ads(writes[first : first + messages.MAX_ADS])
        ]

    def _write_ads(self, writes: Sequence[AdWrite]) -> list[Written]:
        texts = [write.text.encode() for write in writes]
        if any(len(text) > messages.MAX_TEXT or b"\n" in text or b"\r" in text for text in texts):
            raise ValueError("an ad that is too long, or has several lines")  # it would end the process
        os.pwrite(self._memory, b"".join(texts), 0)
        sizes = tuple((len(text), write.is_users) for text, write in zip(texts, writes))
        answer, _ = self._ask(Request(Verb.WRITE_ADS, writes=sizes), [write.folder for write in writes])
        return self._all(messages.decode_written, answer, len(writes))

    def write_report(self, folder: int, report: Report, content: bytes) -> ReportResult:
        if not 0 < len(content) <= reports.MOST_BYTES:
            raise ValueError("a report of an impossible size")  # it would end the process
        os.pwrite(self._memory, content, 0)
        answer, _ = self._ask(Request(Verb.WRITE_REPORT, report=report, size=len(content)), [folder])
        if len(answer) != 1 or answer[0] >= len(messages.REPORT_RESULTS):
            self._mistrust()
        return messages.REPORT_RESULTS[answer[0]]

    def add_notice(self, folder: int, line: bytes) -> NoticeResult:
        if not 0 < len(line) <= notices.MOST_BYTES:
            raise ValueError("a notice of an impossible size")  # it would end the process
        os.pwrite(self._memory, line, 0)
        answer, _ = self._ask(Request(Verb.ADD_NOTICE, size=len(line)), [folder])
        if len(answer) != 1 or answer[0] >= len(messages.NOTICE_RESULTS):
            self._mistrust()
        return messages.NOTICE_RESULTS[answer[0]]

    def progress(self, folders: Sequence[int]) -> list[bytes]:
        found: list[bytes] = []
        for first in range(0, len(folders), messages.MAX_PROGRESS):
            some = folders[first : first + messages.MAX_PROGRESS]
            found += self._all(messages.decode_progress, self._ask(Request(Verb.PROGRESS), some)[0], len(some))
        return found

    def versions(self, folders: Sequence[int]) -> list[Version]:
        found: list[Version] = []
        for first in range(0, len(folders), messages.MAX_ADS):
            some = folders[first : first + messages.MAX_ADS]
            found += self._all(messages.decode_versions, self._ask(Request(Verb.VERSIONS), some)[0], len(some))
        return found

    def watch(self, watches: int, folder: int) -> int | None:
        answer, _ = self._ask(Request(Verb.WATCH), [watches, folder])
        if not answer:
            return None
        return int(answer) if answer.isdigit() and len(answer) < 10 else self._mistrust()

    def process_io(self, pid: int) -> bytes:
        return self._ask(Request(Verb.PROCESS_IO, number=pid))[0]

    def open_log(self, path: str) -> int:
        _, found = self._ask(Request(Verb.OPEN_LOG, path=os.path.abspath(path)), most=1)
        return found[0] if found else self._mistrust()

    def confine(self, folders: Sequence[str]) -> bool:
        """From now on it opens nothing but what is below these folders; False if the kernel has no Landlock.

        Processes of others can't be looked at any more (process_io). Raises OSError, and ValueError for too many.
        """
        request = Request(Verb.CONFINE, paths=tuple(folders))
        if len(messages.encode(request)) > messages.MAX_PACKET:
            raise ValueError("too many folders")
        return self._ask(request)[0] == b"\1"

    def cpu_seconds(self) -> float:
        return own_process.cpu_seconds(self.pid)

    def _receive(self) -> tuple[bytes, list[int]]:
        return descriptors.receive(self._channel, messages.MAX_PACKET, 2)

    def _ask(self, request: Request, given: Sequence[int] = (), most: int = 0) -> tuple[bytes, list[int]]:
        """The answer without its first byte, and `most` descriptors at most.

        Raises OSError if that byte is an error's number, and HelperLost.
        """
        self._send(request, given)
        try:
            answer, found = self._receive()
        except (OSError, ValueError):
            answer, found = b"", []
        if not answer:
            self.lost()
        if len(found) > most:
            self._mistrust(found)
        if answer[0]:
            _close(found)
            raise OSError(answer[0], os.strerror(answer[0]))
        return answer[1:], found

    def _send(self, request: Request, given: Sequence[int] = ()) -> None:
        """Raises HelperLost."""
        try:
            descriptors.send(self._channel, messages.encode(request), given)
        except (OSError, ValueError):
            self.lost()

    def _all(self, decode: Callable[[bytes], list[T]], answer: bytes, count: int) -> list[T]:
        """What the answer says of so many folders. Raises HelperLost if it says nothing of the kind."""
        try:
            found = decode(answer)
        except (ValueError, IndexError, struct.error):
            found = []
        return found if len(found) == count else self._mistrust()

    def _mistrust(self, found: Sequence[int] = ()) -> NoReturn:
        """Raises HelperLost: what answers so is not our program any more. Its descriptors are closed."""
        _close(found)
        raise HelperLost("the process that works in jobs' folders sent an answer that does not fit the question")


def _close(found: Sequence[int]) -> None:
    for descriptor in found:
        os.close(descriptor)


def open_owner_files(
    allowed: AllowedIds, log: Callable[[str], None], watch: own_process.Watch = own_process.unwatched
) -> OwnerFiles:
    """The helper, if this process is root; else this process itself. Raises JobLensError."""
    if os.geteuid() != 0:
        return Operations()
    user = privilege.unprivileged_user()
    if user is None:
        raise JobLensError(f"there is no user {privilege.FILES_USER} on this machine: run systemd-sysusers")
    if user.pw_name != privilege.FILES_USER:
        end = f"processes of {user.pw_name} can end the one that works in jobs' folders; run systemd-sysusers"
        log(f"there is no user {privilege.FILES_USER}: {end}")
    helper = Helper(allowed, user.pw_uid, user.pw_gid, watch)
    if not helper.is_filtered:
        log("this kernel has no filter of system calls: the process that works in jobs' folders could become root")
    return helper
