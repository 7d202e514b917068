"""A job's folder on the node: where its ads are, and how to read them without trusting its owner.

    HTCondor     folder of the starter      .job.ad                   .update.ad
    24 and later EXECUTE/dir_PID (condor)   scratch/ (the user's)     htcondor/ (condor's)
    23           EXECUTE/dir_PID (the user) in it (condor's file)     in it (the user's file)

Whatever the user owns can be renamed, replaced by a link or a fifo, or be a gigabyte. So everything is opened
relative to a folder's descriptor, as that folder's owner (owner_files/), following no link, without waiting, and
bounded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from condor_joblens.common.user_names import nobodys
from condor_joblens.owner_files.notices import NoticeResult
from condor_joblens.owner_files.operations import MAX_AD_BYTES, Ad, AdWrite, OwnerFiles
from condor_joblens.owner_files.reports import Report, ReportResult

OF_ANOTHER = "the job's folder belongs to another user than when the job began: nothing is done in it"
"""Why nobody's command is done where `is_of_its_user` is false."""


@dataclass
class JobSandbox:
    """The folder of one starter, by descriptors that stay valid whatever is renamed."""

    files: OwnerFiles
    path: str
    ads: int  # descriptor of the folder that holds .update.ad
    uid: int  # its owner: whoever may write there
    scratch: int  # descriptor of the folder that holds .job.ad
    scratch_uid: int  # whose that was when the run began

    @classmethod
    def open(cls, files: OwnerFiles, execute: str, starter: int) -> JobSandbox | None:
        """The sandbox of the starter with this process id, or None where there is none."""
        found = files.open_folders(execute, starter)
        if found is None:
            return None
        ads, scratch = found
        path = os.path.join(execute, f"dir_{starter}")
        return cls(files, path, ads, os.fstat(ads).st_uid, scratch, os.fstat(scratch).st_uid)

    @property
    def is_users(self) -> bool:
        """Whether all of it is the job's user's, as up to HTCondor 23: also what the startd says can be his then."""
        return self.files.tells_users_apart and self.ads == self.scratch

    def job_ad(self) -> bytes | None:
        """The job's ad as the starter wrote it, as bytes that nobody has looked at; None where it isn't there.

        Call this only before the job's own code runs: later the owner can have put anything in its place. Only a file
        of HTCondor's own user is safe, which `.job.ad` is if the folder is the owner's.
        """
        return self._read(self.scratch, Ad.JOB, self.is_users)

    def machine_ad(self) -> bytes | None:
        """The slot's ad as the starter wrote it, under the same conditions."""
        return self._read(self.scratch, Ad.MACHINE, self.is_users)

    def update_ad(self) -> bytes | None:
        """What the startd last told the starter about the slot and its job."""
        return self._read(self.ads, Ad.UPDATE)

    def is_of_its_user(self) -> bool:
        """Whether the job's folder belongs to the same user as when it was opened. What is done in it is done as that.

        Root can give the folder to somebody else, as when a user is removed while his job runs. The table of runs
        keeps whose it was. A joblensd without that, which opens it for the first time, can't know.
        """
        return os.fstat(self.scratch).st_uid == self.scratch_uid

    def usage_write(self, usage: str) -> AdWrite:
        """What puts JobLensUsage = `usage` into `.update.ad`."""
        return AdWrite(self.ads, usage, self.is_users)

    def write_report(self, report: Report, content: bytes) -> ReportResult:
        """Puts a report beside the job's own files, if nothing of the job's is there."""
        return self.files.write_report(self.scratch, report, content)

    def add_notice(self, line: bytes) -> NoticeResult:
        """Tells the job a line. Raises OSError."""
        return self.files.add_notice(self.scratch, line)

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in {self.ads, self.scratch}:
            os.close(descriptor)

    def _read(self, folder: int, ad: Ad, not_owners: bool = False) -> bytes | None:
        file = self.files.open_ad(folder, ad, not_owners)
        if file is None:
            return None
        try:
            return os.read(file, MAX_AD_BYTES)
        except OSError:
            return None
        finally:
            os.close(file)


def job_uid(sandbox: JobSandbox | None) -> int | None:
    """The user as whom the job runs; None if that isn't known, or if jobs of several owners run as this user."""
    return None if sandbox is None or sandbox.scratch_uid in (0, *nobodys()) else sandbox.scratch_uid


def is_roots(pid: int) -> bool:
    """Whether root started the process, as a starter: its real user id is root's, and no job's is."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return any(line.split()[1] == "0" for line in file if line.startswith("Uid:"))
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """The parent of a process; 0 where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # the name in parentheses may hold anything, also parentheses
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
