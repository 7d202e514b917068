"""JOBLENS_RUN_DIR: the node's lock, the files in it, and who besides root may read them."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from condor_joblens.agent.output import run_artifacts, run_history
from condor_joblens.common.config import Config
from condor_joblens.common.daemon import owner_of
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.log_settings import DEFAULT_FOLDER
from condor_joblens.common.privilege import USER, let_read, let_read_folder, user
from condor_joblens.common.trusted_folder import changeable_by, make_folders
from condor_joblens.jobs.run_table import Ended, Runs
from condor_joblens.shm.artifact_header import split_name
from condor_joblens.shm.artifacts import FOLDER, ArtifactWriter
from condor_joblens.shm.history import HistoryWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer, file_bytes

ARTIFACTS_LOCK = "joblensd.lock"
"""In JOBLENS_ARTIFACT_DIR. Nobody else can open it, so nobody keeps joblensd out."""


@dataclass
class Files:
    """What joblensd writes for others, and its own table of runs."""

    runs: Runs
    ended: Ended
    rows: Writer
    events: EventWriter
    artifacts: ArtifactWriter
    history: HistoryWriter


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Holds the node's lock. Raises JobLensError if another joblensd has it, or the folder can't be used."""
    try:
        os.makedirs(folder, 0o755, exist_ok=True)
        lock = _lock(os.path.join(folder, "joblensd.lock"))
    except OSError as error:
        remedy = "jobs run unwatched; make JOBLENS_RUN_DIR writable for root"
        raise JobLensError(f"{folder}: {error.strerror}: {remedy}") from None
    if lock is None:
        raise JobLensError(
            f"another joblensd runs on this machine (it holds {folder}/joblensd.lock): stop one of the two"
        )
    try:
        yield
    finally:
        os.close(lock)


def open_files(config: Config, artifacts: ArtifactFolder, macros: dict[str, str], log: Callable[[str], None]) -> Files:
    """Opens what is there and makes what is not. Raises JobLensError if there is no room."""
    folder, group = config.run_dir, _group(log)
    runs = Runs(os.path.join(folder, "slots.state"), config.max_jobs, log)
    try:
        ended = Ended(os.path.join(folder, "ended"), group, log)
        rows = Writer(os.path.join(folder, "rows"), config.max_jobs, group)
        events = EventWriter(os.path.join(folder, "events"), _ring_bytes(config, log), os.getegid())
        history = HistoryWriter(os.path.join(folder, run_history.NAME), group)
        stored = _artifacts(config, artifacts, log)
    except OSError as error:
        raise JobLensError(f"{folder}: {error.strerror}: make room there or set JOBLENS_RUN_DIR") from None
    _let_exporter_read(os.path.join(folder, "events"), let_read, log)
    _let_exporter_read(stored.folder, let_read_folder, log)
    for name in ("rows", "ended"):
        _let_publisher_read(os.path.join(folder, name), macros, log)
    return Files(runs, ended, rows, events, stored, history)


class ArtifactFolder:
    """JOBLENS_ARTIFACT_DIR: one joblensd at a time has it, whatever its JOBLENS_RUN_DIR is."""

    def __init__(self) -> None:
        self.path = ""
        """Where it is, without links. Empty: it can't be made, others could move it, or another joblensd has it."""
        self.has_another = False
        """Whether another joblensd has it."""
        self._lock: int | None = None  # closed in programs that joblensd starts, so none holds it on

    def take(self, config: Config) -> None:
        """Makes it and what is missing above it, and holds its lock. What was taken before is let go."""
        self.let_go()
        folder = os.path.realpath(config.artifact_dir)
        try:
            make_folders(folder, os.geteuid(), os.getegid(), 0o755)
            if not changeable_by(os.path.dirname(folder)):
                self._lock = _lock(os.path.join(folder, ARTIFACTS_LOCK))
                self.has_another = self._lock is None
        except OSError:
            return
        self.path = "" if self._lock is None else folder

    def let_go(self) -> None:
        """Another joblensd may have it."""
        if self._lock is not None:
            os.close(self._lock)
        self.path, self.has_another, self._lock = "", False, None


def _lock(path: str) -> int | None:
    """The file, locked; None if another process has locked it. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    lock = os.open(path, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _artifacts(config: Config, taken: ArtifactFolder, log: Callable[[str], None]) -> ArtifactWriter:
    """The store on the disk, or the one in JOBLENS_RUN_DIR, which leads to it. Raises OSError."""
    in_run_dir = os.path.join(config.run_dir, FOLDER)
    on_disk = os.path.realpath(config.artifact_dir)
    if os.path.commonpath((config.run_dir, config.artifact_dir)) != config.run_dir:
        reason = f"another joblensd keeps its profiles in {on_disk}" if taken.has_another else changeable_by(on_disk)
        try:
            if not reason:
                writer = ArtifactWriter(on_disk, run_artifacts.limits(config, on_disk))
                _lead(in_run_dir, writer.folder)
                return writer
        except OSError as error:
            reason = f"{on_disk}: {error.strerror}"
        most = run_artifacts.MOST_IN_MEMORY >> 20
        log(f"{reason}: profiles are kept in {config.run_dir}, {most} MiB at most; set JOBLENS_ARTIFACT_DIR")
    with contextlib.suppress(OSError):  # it is no link
        os.readlink(in_run_dir)
        os.unlink(in_run_dir)
    return ArtifactWriter(in_run_dir, run_artifacts.limits(config, in_run_dir))


def _lead(link: str, folder: str) -> None:
    """Readers look for artifacts in JOBLENS_RUN_DIR. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(link).st_mode):  # of a time when they could not be on the disk
            for name in filter(split_name, os.listdir(link)):
                os.unlink(os.path.join(link, name))
            os.rmdir(link)
        else:
            os.unlink(link)
    os.symlink(folder, link)


def _ring_bytes(config: Config, log: Callable[[str], None]) -> int:
    """What JOBLENS_BUFFER_BYTES leaves for events beside the rows; a quarter at least."""
    rows = file_bytes(config.max_jobs) + file_bytes(Ended.KEPT)
    least = config.buffer_bytes // 4
    if rows + least > config.buffer_bytes:
        log(
            f"JOBLENS_BUFFER_BYTES = {config.buffer_bytes} is too little for JOBLENS_MAX_JOBS = {config.max_jobs}: "
            f"their rows take {rows} bytes, and events get {least} besides; set it to {2 * rows} or more"
        )
    return max(least, config.buffer_bytes - rows)


def _group(log: Callable[[str], None]) -> int:
    try:
        return grp.getgrnam(USER).gr_gid
    except KeyError:
        log(f"there is no group {USER}: only root can read the rows; run systemd-sysusers, or `make install` again")
        return os.getegid()


def _let_exporter_read(path: str, let: Callable[[str, int], None], log: Callable[[str], None]) -> None:
    """Command lines are in the events, and jobs' own texts in artifacts: only the user joblens may read them.

    Its group may not, because HTCondor's own user belongs to it.
    """
    reader = user(USER)
    if reader is None:
        log(f"there is no user {USER}: only root can read {path}; run systemd-sysusers, or `make install` again")
        return
    try:
        let(path, reader.pw_uid)
    except OSError as error:
        log(f"{path} can't get an access list ({error.strerror}): joblens-export can't read it")


def _let_publisher_read(path: str, macros: dict[str, str], log: Callable[[str], None]) -> None:
    """The startd's cron job runs as HTCondor's own user: the owner of its log folder.

    It gets an access list, though it is a member of group joblens. The startd learns of a new group only when it
    restarts, and that ends every job of the node.
    """
    owner = owner_of(macros.get("LOG", DEFAULT_FOLDER))
    try:
        if owner is not None and owner[0] != 0:
            let_read(path, owner[0])
    except OSError as error:
        log(f"{path} can't get an access list ({error.strerror}): the slots' ads stay empty until condor_restart")
