"""The one way to write a file that others read: under a temporary name, then renamed. Nobody ever sees half of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def replacing(path: str, mode: int = 0o644, sync: bool = False) -> Iterator[int]:
    """A descriptor of a new file, to be filled within the block; at its end the file is at `path`, with this mode.

    Until then nobody else can open it, and what was at `path` is as it was. What is left at the temporary name
    `path`.new by a process that was killed is removed, and no link there is followed. With `sync` the file survives a
    crash of the machine. Raises OSError, and whatever the block raises; no temporary file is left then.
    """
    temporary = f"{path}.new"
    descriptor = _create(temporary)
    try:
        yield descriptor
        os.fchmod(descriptor, mode)
        if sync:
            os.fsync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)
    if sync:
        _sync_folder(os.path.dirname(path) or ".")


def write(path: str, content: bytes, mode: int = 0o644, sync: bool = False) -> None:
    """The file at `path` has this content and this mode. Raises OSError; the file is as it was then."""
    with replacing(path, mode, sync) as descriptor:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _create(path: str) -> int:
    try:
        return os.open(path, _FLAGS, 0o600)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, _FLAGS, 0o600)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
