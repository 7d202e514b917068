"""Artifacts: what is bigger than a row and longer than an event. One file each, in a folder of the run folder.

joblensd writes them, and announces each by an event. A file gets its name when it is whole and never changes after
that, so a reader sees all of it or none. How much there may be is limited, and each owner of jobs has a share.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Union

from condor_joblens.common.errors import JobLensError
from condor_joblens.shm.artifact_header import HEADER_BYTES, Artifact, check_kind, pack, parse, split_name
from condor_joblens.shm.mapped import check_owner

FOLDER = "artifacts"
"""What the folder is called in the run folder."""

LEAST_SHARES = 4
"""An artifact takes at most this part of the room for all: one alone can't push out everything else."""

MAX_KEPT = 4096
"""Artifacts that are kept at a time, however small. Beyond that whoever has most of them loses his oldest."""

_PAGE = 4096
_UNFINISHED = "unfinished"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_Holder = Union[str, int, None]
"""The name of an owner, a user id, or None: nobody knows either."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class ArtifactGone(JobLensError):
    """The artifact has been deleted, or was never there."""


class ArtifactRefused(Exception):
    """Why an artifact is not kept, in words for a person. `cause`: too_large or no_room."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause


@dataclass(frozen=True)
class ArtifactLimits:
    """The bounds of a store. Sizes are those of whole files."""

    artifact_bytes: int  # of one artifact
    total_bytes: int  # of all, in whole pages
    seconds: float  # how long one is kept

    @property
    def greatest(self) -> int:
        """Bytes of the greatest artifact: also a small store has room for several."""
        return min(self.artifact_bytes, self.total_bytes // LEAST_SHARES)


@dataclass(frozen=True)
class StoredArtifact:
    """What the writer remembers of an artifact that it keeps."""

    name: str
    run_number: int
    run: str
    slot: str
    uid: int | None
    owner: str
    size: int  # bytes that it takes, in whole pages
    since: float  # CLOCK_MONOTONIC
    begun: float  # of the time that it shows, epoch seconds
    ended: float
    claimed_run: str = ""  # what the job's own ad calls the run and its owner, if that is not confirmed
    claimed_owner: str = ""


class ArtifactReader:
    """Reads artifacts, and trusts nothing that it finds. For any number of readers."""

    def __init__(self, folder: str) -> None:
        """`folder`: the artifacts' own. Opens nothing yet."""
        self._folder = folder

    def names(self) -> list[str]:
        """The names of all artifacts, the oldest first. Raises JobLensError if the folder can't be read."""
        try:
            found = os.listdir(self._folder)
        except OSError as error:
            raise JobLensError(f"{self._folder} can't be read: {error.strerror}: become root") from None
        return sorted(filter(split_name, found), key=lambda name: split_name(name) or (0, ""))

    def describe(self, name: str) -> Artifact:
        """What the artifact's header says. Raises as `open` does."""
        with self.open(name) as (artifact, _):
            return artifact

    def read(self, name: str) -> tuple[Artifact, bytes]:
        """The artifact with its content, whole. Raises as `open` does, and if the content's checksum is wrong."""
        with self.open(name) as (artifact, descriptor):
            content = _read_all(descriptor, artifact.length, HEADER_BYTES)
        if hashlib.sha256(content).digest() != artifact.sha256:
            raise JobLensError(f"{self._folder}/{name} is damaged: its content's checksum is wrong")
        return artifact, content

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[tuple[Artifact, int]]:
        """The header, and a descriptor of the file, whose content begins at HEADER_BYTES. Deleting it disturbs nobody.

        Raises ArtifactGone if there is no such artifact, JobLensError if it may not be read or is none.
        """
        path = f"{self._folder}/{name}"
        known = split_name(name)
        if known is None:
            raise ArtifactGone(f"{path} is no name of an artifact")
        descriptor = _open(path)
        try:
            status = os.fstat(descriptor)
            check_owner(path, status)
            try:
                artifact = parse(os.pread(descriptor, HEADER_BYTES, 0), status.st_size)
            except JobLensError as error:
                raise JobLensError(f"{path} {error}") from None
            if (artifact.sequence, artifact.kind) != known:
                raise JobLensError(f"{path} is damaged: its header is of {artifact.name}")
            yield artifact, descriptor
        finally:
            os.close(descriptor)


class ArtifactWriter:
    """The one writer of a folder of artifacts. What its predecessor left there is taken over."""

    def __init__(self, folder: str, limits: ArtifactLimits) -> None:
        """Makes the folder, which must be this user's own. Raises OSError if that is impossible."""
        self.folder, self.limits = folder, limits
        self.written = 0
        """How many it has kept so far, those that are deleted by now included."""
        self.refused: collections.Counter[str] = collections.Counter()
        """How many it did not keep, by cause: too_large, no_room."""
        self.deleted: collections.Counter[str] = collections.Counter()
        """How many it has deleted, by cause: age; room, for newer ones; damaged, or written by another version."""
        self._stored: dict[int, StoredArtifact] = {}  # sequence ->, the oldest first
        self._shares: dict[_Holder, _Share] = {}
        self._bytes = 0
        self._last = 0
        self._freed = 0  # on a full file system, for the artifact that is being written
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(errno.EEXIST, "is no folder of this user's", folder)
        os.chmod(folder, 0o700)
        self._take_over()

    @property
    def stored_bytes(self) -> int:
        """What all kept artifacts take, in whole pages."""
        return self._bytes

    @property
    def count(self) -> int:
        """How many artifacts there are."""
        return len(self._stored)

    def stored(self, run_number: int | None = None) -> list[StoredArtifact]:
        """The artifacts that there are, of one run or of all, the oldest first."""
        return [stored for stored in self._stored.values() if run_number is None or stored.run_number == run_number]

    def add(self, artifact: Artifact, pieces: Iterable[bytes]) -> Artifact:
        """Keeps an artifact whose content comes in pieces; returns it with what the store says of it.

        If there is no room for it, the owner who holds most loses his oldest. Raises ArtifactRefused if it is too large
        or the file system is full, OSError, and whatever `pieces` raise; nothing of it is left then.
        """
        check_kind(artifact.kind)
        path = f"{self.folder}/{_UNFINISHED}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        # 0640: a folder with an access list gives each file its own, of which these bits are the mask
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
        try:
            artifact = self._write(descriptor, artifact, pieces)
            self._make_room(artifact)
            os.rename(path, f"{self.folder}/{artifact.name}")
        except BaseException as error:
            os.unlink(path)
            if isinstance(error, ArtifactRefused):
                self.refused[error.cause] += 1
            raise
        finally:
            os.close(descriptor)
        self._last = artifact.sequence
        self.written += 1
        self._remember(artifact, time.monotonic())
        return artifact

    def delete_old(self) -> None:
        """Deletes what has been kept for long enough."""
        oldest = time.monotonic() - self.limits.seconds
        while self._stored and next(iter(self._stored.values())).since <= oldest:
            self._delete(next(iter(self._stored)), "age")

    def delete(self, name: str) -> None:
        """Deletes one for the sake of newer ones of its run; nothing if it is gone by now."""
        known = split_name(name)
        if known is not None and known[0] in self._stored:
            self._delete(known[0], "room")

    def limit(self, limits: ArtifactLimits) -> None:
        """Other limits hold from now on; what exceeds them is deleted."""
        self.limits = limits
        self.delete_old()
        while self._bytes > limits.total_bytes and self._delete_of_largest("", 0):
            pass

    # --- one artifact

    def _write(self, descriptor: int, artifact: Artifact, pieces: Iterable[bytes]) -> Artifact:
        checksum, length, greatest = hashlib.sha256(), 0, self.limits.greatest - HEADER_BYTES
        self._freed = 0
        self._put(descriptor, bytes(HEADER_BYTES), _holder(artifact))
        for piece in pieces:
            length += len(piece)
            if length > greatest:
                raise ArtifactRefused("too_large", f"it is larger than {max(0, greatest)} bytes")
            checksum.update(piece)
            self._put(descriptor, piece, _holder(artifact))
        # no number has been used before, also not by a predecessor: an old event must not announce a new file
        sequence = max(time.time_ns() // 1000, self._last + 1)
        artifact = dataclasses.replace(artifact, sequence=sequence, length=length, sha256=checksum.digest())
        os.pwrite(descriptor, pack(artifact), 0)
        return artifact

    def _put(self, descriptor: int, piece: bytes, holder: _Holder) -> None:
        """Writes all of it. A full file system gets room by what is kept, as much as this artifact may take."""
        view = memoryview(piece)
        while len(view):
            try:
                view = view[os.write(descriptor, view) :]
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                before = self._bytes
                is_enough = self._freed > self.limits.greatest
                if is_enough or not self._delete_of_largest(holder, os.fstat(descriptor).st_size):
                    raise ArtifactRefused("no_room", f"{self.folder}: {error.strerror}") from None
                self._freed += before - self._bytes

    def _make_room(self, artifact: Artifact) -> None:
        size = in_pages(HEADER_BYTES + artifact.length)
        while len(self._stored) >= MAX_KEPT:
            self._delete_of_most(_holder(artifact))
        while self._bytes + size > self.limits.total_bytes:
            if not self._delete_of_largest(_holder(artifact), size):
                raise ArtifactRefused("no_room", f"JOBLENS_ARTIFACT_BYTES = {self.limits.total_bytes} is too little")

    # --- what is kept

    def _take_over(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.folder}/{_UNFINISHED}")
        reader, now = ArtifactReader(self.folder), time.time()
        for name in reader.names():
            path = f"{self.folder}/{name}"
            try:
                artifact, age = reader.describe(name), max(0.0, now - os.stat(path).st_mtime)
            except (JobLensError, OSError):
                os.unlink(path)
                self.deleted["damaged"] += 1
                continue
            self._last = max(self._last, artifact.sequence)
            self._remember(artifact, time.monotonic() - age)
        self.limit(self.limits)

    def _remember(self, artifact: Artifact, since: float) -> None:
        size = in_pages(HEADER_BYTES + artifact.length)
        stored = StoredArtifact(
            artifact.name, artifact.run_number, artifact.run, artifact.slot, artifact.uid, artifact.owner, size, since,
            artifact.begun, artifact.ended, artifact.claimed_run, artifact.claimed_owner,
        )  # fmt: skip
        self._stored[artifact.sequence] = stored
        self._bytes += size
        share = self._shares.setdefault(_holder(artifact), _Share())
        share.bytes += size
        share.sequences[artifact.sequence] = None

    def _delete(self, sequence: int, cause: str) -> None:
        stored = self._stored.pop(sequence)
        with contextlib.suppress(OSError):  # what can't be deleted is found again by the next writer
            os.unlink(f"{self.folder}/{stored.name}")
        self._bytes -= stored.size
        self.deleted[cause] += 1
        holder = _holder(stored)
        share = self._shares[holder]
        share.bytes -= stored.size
        del share.sequences[sequence]
        if not share.sequences:
            del self._shares[holder]

    def _delete_of_largest(self, holder: _Holder, size: int) -> bool:
        """The owner who holds most loses his oldest; `holder` is to get `size` bytes more. False if nothing is kept.

        Of several who hold as much, it is the one whose artifact is the oldest.
        """
        if not self._shares:
            return False

        def holds(entry: tuple[_Holder, _Share]) -> tuple[int, int]:
            name, share = entry
            return share.bytes + (size if name == holder else 0), -next(iter(share.sequences))

        share = max(self._shares.items(), key=holds)[1]
        self._delete(next(iter(share.sequences)), "room")
        return True

    def _delete_of_most(self, holder: _Holder) -> None:
        """Whoever has most artifacts, however small, loses his oldest; `holder` is to get one more."""

        def count(entry: tuple[_Holder, _Share]) -> tuple[int, int]:
            name, share = entry
            return len(share.sequences) + (name == holder), -next(iter(share.sequences))

        share = max(self._shares.items(), key=count)[1]
        self._delete(next(iter(share.sequences)), "room")


def _holder(artifact: Artifact | StoredArtifact) -> _Holder:
    """Whose share it is in: the owner's, or, if that is not sure, that of the user as whom the job ran."""
    return artifact.owner or artifact.uid


class _Share:
    """What one owner holds."""

    def __init__(self) -> None:
        self.bytes = 0
        self.sequences: dict[int, None] = {}  # the oldest first


def in_pages(size: int) -> int:
    """What a file of so many bytes takes of a file system in memory."""
    return -(-size // _PAGE) * _PAGE


def _open(path: str) -> int:
    try:
        return os.open(path, _READ)
    except FileNotFoundError:
        raise ArtifactGone(f"{path} is not there: it has been deleted, by its age or for newer ones") from None
    except OSError as error:
        raise JobLensError(f"{path} can't be opened: {error.strerror}") from None


def _read_all(descriptor: int, length: int, offset: int) -> bytes:
    """Up to `length` bytes from `offset` on, fewer only at the end of the file."""
    content = os.pread(descriptor, length, offset)
    while len(content) < length and (more := os.pread(descriptor, length - len(content), offset + len(content))):
        content += more
    return content
