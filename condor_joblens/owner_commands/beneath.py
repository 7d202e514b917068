"""Opens regular files and folders below a folder, whatever its owner puts there meanwhile: links, fifos, devices.

No file is opened before it is known to be a regular one. To open a fifo wakes who writes to it, and to open a device
can do anything. Links are followed here, step by step. The kernel could (openat2, from Linux 5.6 on), but no list of
system calls sees whether that call opens to read or to write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from condor_joblens.owner_commands.answers import Failed

MOST_LINKS = 40
"""As many as the kernel follows in one path (include/linux/namei.h, MAXSYMLINKS)."""

_MOST_DEPTH = 64
_WORDS = {
    errno.EXDEV: "it is outside of the job's folder",
    errno.ELOOP: "it is behind too many links",
    errno.ENOENT: "the job's folder has no such file",
    errno.ENOTDIR: "the job's folder has no such file",
}


def open_regular(folder: int, name: str) -> int:
    """A descriptor that reads the regular file `name` below `folder`. Raises Failed with why there is none."""
    try:
        found = _open_path(folder, os.fsencode(name))
    except (OSError, ValueError) as error:
        raise Failed(_why(error)) from None
    try:
        return reopen_regular(found)
    finally:
        os.close(found)


def open_folder(folder: int, name: str) -> int:
    """A descriptor that reads the folder `name` below `folder`. Raises Failed with why there is none."""
    try:
        found = _open_path(folder, os.fsencode(name))
        try:
            return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(found)
    except NotADirectoryError:
        raise Failed("it is no folder") from None
    except (OSError, ValueError) as error:
        raise Failed(_why(error)) from None


def reopen_regular(path_only: int) -> int:
    """A descriptor that reads the regular file which `path_only` (O_PATH) stands for. Raises Failed."""
    mode = os.fstat(path_only).st_mode
    if not stat.S_ISREG(mode):
        raise Failed(f"it is no regular file, but {_kind(mode)}")
    try:
        return os.open(f"/proc/self/fd/{path_only}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Failed(_why(error)) from None


def _open_path(folder: int, name: bytes) -> int:
    """O_PATH of what `name` means, which may lead up and through links as long as that stays below. Raises OSError."""
    if b"\0" in name:
        raise ValueError("a name has no NUL byte")
    with contextlib.ExitStack() as held:
        way = [folder]  # down to where we are: `..` goes back on it, wherever that folder has been moved to
        parts, links = _parts(name), 0
        found = _opened(held, b".", folder)
        while parts:
            part = parts.pop()
            if part == b"..":
                if len(way) == 1:
                    raise OSError(errno.EXDEV, "outside")
                way.pop()
                found = way[-1]
                continue
            found = _opened(held, part, way[-1])
            mode = os.fstat(found).st_mode
            if stat.S_ISLNK(mode):
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, "links")
                parts += _parts(os.readlink(b"", dir_fd=found))
                found = way[-1]
            elif stat.S_ISDIR(mode):
                if len(way) > _MOST_DEPTH:
                    raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
                way.append(found)
            elif parts:
                raise OSError(errno.ENOTDIR, "no folder")
        return os.dup(found)


def _parts(path: bytes) -> list[bytes]:
    """The names in a path, the last one first. Raises OSError if it begins at the root."""
    if path.startswith(b"/"):
        raise OSError(errno.EXDEV, "outside")
    return [part for part in reversed(path.split(b"/")) if part not in (b"", b".")]


def _opened(held: contextlib.ExitStack, name: bytes, folder: int) -> int:
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    held.callback(os.close, found)
    return found


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return _WORDS.get(error.errno, os.strerror(error.errno))
    return str(error)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")
