"""Folders that nobody but root, or who is named, can change: checked from the root down, made by descriptors."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def changeable_by(path: str) -> str:
    """Who could put something else in the place of `path`, or into it, in words; empty: root and this user alone.

    Folders with the sticky bit, as /tmp, may be on the way: nobody can move what is another's there. The folder itself
    and what is below the last mount must be ours. What is not there yet is not looked at.
    """
    own = {0, os.geteuid()}
    parts = [part for part in os.path.abspath(path).split("/") if part]
    for depth in range(len(parts) + 1):
        folder = "/" + "/".join(parts[:depth])
        try:
            found = os.lstat(folder)
        except OSError:
            return ""
        if not stat.S_ISDIR(found.st_mode):
            return f"{folder} is no folder"
        if found.st_uid not in own:
            return f"{folder} belongs to the user {found.st_uid}"
        open_to_all = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if open_to_all and not (found.st_mode & stat.S_ISVTX and depth < len(parts)):
            return f"{folder} may be written by others than its owner"
    return ""


def make_folders(path: str, uid: int, gid: int, mode: int = 0o700) -> None:
    """Makes `path` and what is missing above it, for this user. Raises OSError that names what can't be made.

    Each step is taken from the folder before it, so nobody can lead it elsewhere meanwhile. A link is followed only in
    a folder that root alone can write.
    """
    at = os.open("/", _OPEN)
    done = "/"
    try:
        for part in (part for part in os.path.abspath(path).split("/") if part):
            done = os.path.join(done, part)
            at = _step(at, part, done, {0, uid}, (uid, gid, mode))
    finally:
        os.close(at)


def _step(at: int, part: str, done: str, owners: Collection[int], made: tuple[int, int, int]) -> int:
    """The folder `part` of the folder `at`, which is closed; made if it is missing."""
    uid, gid, mode = made
    above = os.fstat(at)
    is_roots = above.st_uid == 0 and not above.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    flags = _OPEN if is_roots else _OPEN | os.O_NOFOLLOW
    try:
        try:
            found = os.open(part, flags, dir_fd=at)
        except FileNotFoundError:
            if above.st_uid not in owners:
                raise PermissionError(1, f"{done} is missing, and the folder above it is another user's") from None
            os.mkdir(part, mode, dir_fd=at)
            found = os.open(part, _OPEN | os.O_NOFOLLOW, dir_fd=at)
            os.fchown(found, uid, gid)
    except OSError as error:
        error.filename = error.filename and done
        raise
    os.close(at)
    return found
