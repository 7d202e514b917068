"""Reads the folders of JOBLENS_POLICY_DIR. Whoever can write there decides how closely jobs are watched.

Files are asked in the order of their names, whatever folder they are in. Of two with the same name the one in the later
folder counts: a site replaces a shipped policy by a file of its name.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from condor_joblens.common.errors import JobLensError, printable

KNOB = "JOBLENS_POLICY_DIR"
TRIGGERS_KNOB, TRIGGERS_FOLDER = "JOBLENS_TRIGGERS", "/etc/joblens/triggers.d"
MAX_NAME = 60  # characters
MAX_BYTES = 256 << 10  # of one file
MAX_TOTAL = 1 << 20  # bytes of all
ATTEMPTS = 5  # to find them at rest

Policies = tuple[list[tuple[str, str]], list[str]]
"""(name, text) of every policy in name order, and a line for each folder and file that can't be used."""


def are_readable(folders: Iterable[str]) -> bool:
    """Whether this process may read all of them that are there: a site may keep its policies for root alone."""
    for folder in folders:
        paths = [folder]
        with contextlib.suppress(OSError):
            paths += [entry.path for entry in os.scandir(folder) if entry.name.endswith(".lua")]
        for path in paths:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.stat(path)
                if not os.access(path, os.R_OK | (os.X_OK if path == folder else 0)):
                    return False
    return True


def read_policies(folders: Iterable[str]) -> Policies:
    """The policies in these folders.

    What is replaced meanwhile is read again: the old set or the new one, never half of each.
    """
    folders = list(folders)
    for _ in range(ATTEMPTS):
        before = _state(folders)
        found = _read_once(folders)
        if _state(folders) == before:
            return found
    why = f"{KNOB}: the policies changed {ATTEMPTS} times while they were read; condor_reconfig when they are at rest"
    return found[0], [*found[1], why]


def read_triggers(folders: Iterable[str]) -> Policies:
    """The same of files of triggers. The folder that counts if nobody has set the knob may be missing."""
    there = [folder for folder in folders if folder != TRIGGERS_FOLDER or os.path.isdir(folder)]
    found, problems = read_policies(there)
    return found, [problem.replace(KNOB, TRIGGERS_KNOB, 1).replace("policies", "triggers") for problem in problems]


def _state(folders: list[str]) -> list[tuple[str, int, int, int, int]]:
    """What changes when a folder, or a file in it, is replaced or written."""
    state = []
    for folder in folders:
        try:
            for path in [Path(folder), *sorted(Path(folder).glob("*.lua"))]:
                status = os.stat(path)
                state.append((str(path), status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
        except OSError:
            state.append((folder, 0, 0, 0, 0))
    return state


def _read_once(folders: list[str]) -> Policies:
    problems: list[str] = []
    files: dict[str, Path] = {}
    for folder in folders:
        try:
            files.update(_names(Path(folder)))
        except JobLensError as error:
            problems.append(str(error))
    policies, total = [], 0
    for name, path in sorted(files.items()):
        try:
            text = _read(path)
            total += len(text.encode())
            if total > MAX_TOTAL:
                raise _unfit(path, f"all together have more than {MAX_TOTAL >> 10} KB", "shorten them")
            policies.append((name, text))
        except JobLensError as error:
            problems.append(str(error))
    return policies, problems


def _names(folder: Path) -> dict[str, Path]:
    try:
        _check_writers(folder, os.stat(folder))
        entries = [entry for entry in sorted(folder.iterdir()) if entry.suffix == ".lua"]
    except OSError as error:
        raise JobLensError(
            f"{KNOB} = {printable(str(folder))}: {error.strerror}, so none of its policies is in force; "
            "make the folder readable by root, or take it out of the knob"
        ) from None
    return {entry.name: entry for entry in entries if not entry.name.startswith(".")}


def _read(path: Path) -> str:
    name = path.name
    if len(name) > MAX_NAME or not (name.isascii() and name.isprintable()):
        raise _unfit(path, f"its name is not {MAX_NAME} printable ASCII characters at most", "rename it")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a fifo must not block
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _unfit(path, "it is no regular file", "replace it by one")
            _check_writers(path, status)
            data = os.read(descriptor, MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unfit(path, error.strerror or "can't be read", "make it readable by root") from None
    if len(data) > MAX_BYTES:
        raise _unfit(path, f"it has more than {MAX_BYTES >> 10} KB", "shorten it")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _unfit(path, f"line {line} is not UTF-8", "save it as UTF-8") from None


def _check_writers(path: Path, status: os.stat_result) -> None:
    """Refuse what others than root (or the user that this runs as) can write."""
    if status.st_uid not in (0, os.geteuid()):
        raise _unfit(path, f"it belongs to user {status.st_uid}, who is not root", "chown it to root")
    if status.st_mode & stat.S_IWOTH:
        raise _unfit(path, f"everybody can write it (mode {status.st_mode & 0o7777:o})", "chmod o-w it")


def _unfit(path: Path, why: str, remedy: str) -> JobLensError:
    return JobLensError(f"{KNOB}: {printable(str(path), 160)} is not used: {why}; {remedy}")
