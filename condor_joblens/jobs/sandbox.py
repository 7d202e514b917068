"""A job's folder on the node: where its ads are, and how to read them without trusting its owner.

    HTCondor     folder of the starter      .job.ad                   .update.ad
    24 and later EXECUTE/dir_PID (condor)   scratch/ (the user's)     htcondor/ (condor's)
    23           EXECUTE/dir_PID (the user) in it (condor's file)     in it (the user's file)

Whatever the user owns can be renamed, replaced by a link or a fifo, or be a gigabyte. So everything is opened
relative to a folder's descriptor, as that folder's owner, following no link, without waiting, and bounded.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from condor_joblens.common.privilege import as_owner

MAX_AD_BYTES = 1 << 20
NOBODY = 65534
"""The kernel's overflow user id: jobs of several owners can run as this user."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass
class JobSandbox:
    """The folder of one starter, by descriptors that stay valid whatever is renamed."""

    path: str
    ads: int  # descriptor of the folder that holds .update.ad
    uid: int  # its owner: whoever may write there
    gid: int
    scratch: int  # descriptor of the folder that holds .job.ad
    scratch_uid: int
    scratch_gid: int

    @classmethod
    def open(cls, execute: str, starter: int) -> JobSandbox | None:
        """The sandbox of the starter with this process id, or None where there is none."""
        path = os.path.join(execute, f"dir_{starter}")
        outer = _open_folder(path, None)
        if outer is None:
            return None
        ads, scratch = _open_folder("htcondor", outer), _open_folder("scratch", outer)
        if ads is not None and scratch is not None and _is_htcondors(execute, outer):
            os.close(outer)
        else:
            for stray in (ads, scratch):  # made by the job's user
                if stray is not None:
                    os.close(stray)
            ads = scratch = outer
        owner, user = os.fstat(ads), os.fstat(scratch)
        return cls(path, ads, owner.st_uid, owner.st_gid, scratch, user.st_uid, user.st_gid)

    @property
    def is_users(self) -> bool:
        """Whether all of it is the job's user's, as up to HTCondor 23: also what the startd says can be his then."""
        return os.geteuid() == 0 and self.ads == self.scratch

    def job_ad(self) -> bytes | None:
        """The job's ad as the starter wrote it, as bytes that nobody has looked at; None where it isn't there.

        Call this only before the job's own code runs: later the owner can have put anything in its place. Only a file
        of HTCondor's own user is safe, which `.job.ad` is if the folder is the owner's.
        """
        with as_owner(self.scratch_uid, self.scratch_gid):
            return read_bounded(self.scratch, ".job.ad", self.scratch_uid if self.is_users else None)

    def machine_ad(self) -> bytes | None:
        """The slot's ad as the starter wrote it, under the same conditions."""
        with as_owner(self.scratch_uid, self.scratch_gid):
            return read_bounded(self.scratch, ".machine.ad", self.scratch_uid if self.is_users else None)

    def update_ad(self) -> bytes | None:
        """What the startd last told the starter about the slot and its job."""
        with as_owner(self.uid, self.gid):
            return read_bounded(self.ads, ".update.ad")

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in {self.ads, self.scratch}:
            os.close(descriptor)


def _is_htcondors(execute: str, outer: int) -> bool:
    """Whether the starter's folder is not the job's user's, who could make any folder in it: by EXECUTE's owner."""
    try:
        return os.stat(execute).st_uid == os.fstat(outer).st_uid
    except OSError:
        return False


def _open_folder(name: str, outer: int | None) -> int | None:
    """Opens a folder as its owner, who alone may look into it: root without capabilities may not."""
    try:
        status = os.stat(name, dir_fd=outer, follow_symlinks=False)
        with as_owner(status.st_uid, status.st_gid):
            return os.open(name, _FOLDER, dir_fd=outer)
    except OSError:
        return None


def read_bounded(folder: int, name: str, stranger: int | None = None) -> bytes | None:
    """The bytes of a regular file of at most MAX_AD_BYTES in `folder`; None for anything else, and for `stranger`'s."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_AD_BYTES or status.st_uid == stranger:
            return None
        return os.read(descriptor, MAX_AD_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def job_uid(sandbox: JobSandbox | None) -> int | None:
    """The user as whom the job runs; None if that isn't known, or if jobs of several owners run as this user."""
    return None if sandbox is None or sandbox.scratch_uid in (0, NOBODY) else sandbox.scratch_uid


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
