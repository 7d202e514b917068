"""Files in shared memory, mapped: a reader's, which trusts nothing it finds, and a writer's new one."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from condor_joblens.common.errors import JobLensError
from condor_joblens.common.files import replacing
from condor_joblens.common.privilege import may_be_joblensds
from condor_joblens.shm import layout
from condor_joblens.shm._shm import ffi, lib

_VERSION = "was written by another version of JobLens than this one"
_REMEDY = "install one version for all, then joblens restart"


class Mapped:
    """One writer's file as a reader has it."""

    def __init__(self, path: str, magic: bytes, record: np.dtype[Any], schema_hash: int | None) -> None:
        """Raises JobLensError where there is nothing that can be read, and says why. No hash: any schema will do."""
        self.path = path
        self._descriptor = _open(path)
        weakref.finalize(self, os.close, self._descriptor)
        status = os.fstat(self._descriptor)
        check_owner(path, status)
        if status.st_size < layout.HEADER.itemsize:
            raise JobLensError(f"{path} is no file of joblensd's: {status.st_size} bytes are too few")
        self._memory = mmap.mmap(self._descriptor, status.st_size, prot=mmap.PROT_READ)
        self.address = ffi.cast("struct joblens_header *", ffi.from_buffer(self._memory))
        self.header = np.frombuffer(self._memory, layout.HEADER, 1)[0]
        wrong = lib.joblens_check(self.address, status.st_size, magic)
        if wrong != ffi.NULL:
            said = ffi.string(wrong).decode()
            raise JobLensError(f"{path} {said}: {_REMEDY}" if said == _VERSION else f"{path} {said}")
        found = int(self.header["schema_hash"]), int(self.header["record_bytes"])
        if schema_hash is not None and found != (schema_hash, record.itemsize):
            raise JobLensError(f"{path} {_VERSION}: {_REMEDY}")
        self.capacity = int(self.header["capacity"])

    def is_replaced(self) -> bool:
        """Whether this file is no longer the one at its path.

        A new writer renames its file over this one, an orderly stop removes it: either way no link is left.
        """
        return os.fstat(self._descriptor).st_nlink == 0

    def records(self, record: np.dtype[Any]) -> np.ndarray:
        """The ring's records where they lie, shape (capacity,): whole only while nobody writes."""
        records: np.ndarray = np.frombuffer(self._memory, record, self.capacity, int(self.header["records_at"]))
        return records

    def described(self) -> np.dtype[Any]:
        """The type of a record as the file itself describes it. Raises JobLensError if that is impossible."""
        count, size = int(self.header["columns"]), int(self.header["record_bytes"])
        columns = np.frombuffer(self._memory, layout.COLUMN, count, int(self.header["columns_at"]))
        kinds = [kind.decode("latin-1") for kind in columns["type"].tolist()]
        try:
            if not set(kinds) <= set("biufSV"):
                raise ValueError("of unknown types")
            return np.dtype(
                {
                    "names": [name.decode("ascii") for name in columns["name"].tolist()],
                    "formats": [f"{kind}{length}" for kind, length in zip(kinds, columns["bytes"].tolist())],
                    "offsets": columns["offset"].tolist(),
                    "itemsize": size,
                }
            )
        except (ValueError, TypeError) as error:
            raise JobLensError(f"{self.path} is damaged: it describes impossible columns ({error})") from None

    def wake_word(self) -> int:
        """Changes whenever the writer has something new; to be taken before reading."""
        return int(lib.joblens_wake_word(self.address))

    def wait(self, seen: int, seconds: float) -> None:
        """Sleeps until the word is no longer `seen`, for so long at most; other threads go on meanwhile."""
        lib.joblens_wait(self.address, seen, seconds)

    def wake(self) -> None:
        """Wakes who waits at this file: it has a successor."""
        lib.wake_waiters(self.address)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        reason = "is not there: joblensd does not run on this machine"
    except PermissionError:
        reason = "may not be read by this user: become root or a member of group joblens"
    except OSError as error:
        reason = f"can't be opened: {error.strerror}"
    raise JobLensError(f"{path} {reason}")


def check_owner(path: str, status: os.stat_result) -> None:
    """Whoever can write the file can shorten it under a reader's feet: only joblensd may, or this user himself."""
    if not stat.S_ISREG(status.st_mode):
        raise JobLensError(f"{path} is no file of joblensd's: it is no plain file")
    if not may_be_joblensds(status.st_uid) or status.st_mode & 0o022:
        raise JobLensError(
            f"{path} is no file of joblensd's: user id {status.st_uid} owns it, or others may write it; "
            "remove it, then condor_off -subsystem joblensd and condor_on -subsystem joblensd"
        )


@contextlib.contextmanager
def new_file(path: str, plan: layout.FilePlan, group: int) -> Iterator[mmap.mmap]:
    """The memory of a new file, to be filled within the block; at its end it is in its place, mode 0640.

    A reader sees either the old file or a whole new one. Raises OSError if it can't be made; nothing is left then.
    """
    with replacing(path, 0o640) as descriptor:
        # every page now: a file system that is full later would be a SIGBUS, not an error
        os.posix_fallocate(descriptor, 0, plan.file_bytes)
        yield mmap.mmap(descriptor, plan.file_bytes)
        os.fchown(descriptor, -1, group)


def predecessor(open_it: Callable[[], Mapped]) -> Mapped | None:
    """The file that a new writer is about to replace; None where there is none, or nothing that can be read."""
    try:
        return open_it()
    except (JobLensError, OSError):
        return None


def new_identity() -> int:
    """A random number that is not 0."""
    return int.from_bytes(os.urandom(8), "little") | 1
