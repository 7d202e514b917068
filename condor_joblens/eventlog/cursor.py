"""Up to where the hub has the event log: a file of one line of JSON, which is replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError

_MOST = 4096


@dataclass(frozen=True)
class Cursor:
    """A place in the log. One of no file is before all that is there."""

    inode: int = 0
    offset: int = 0  # bytes of that file that were taken
    mark: str = ""  # a digest of what stands before the offset: the file is the same if it is there still
    sequence: int = 0  # of the last record


def load(path: str) -> Cursor:
    """What was kept; a new one if nothing was, or it makes no sense: records that come twice are kept once."""
    try:
        with open(path, encoding="ascii") as file:
            said = json.loads(file.read(_MOST))
        found = Cursor(int(said["inode"]), int(said["offset"]), str(said["mark"]), int(said["sequence"]))
    except FileNotFoundError:
        return Cursor()
    except OSError as error:
        raise JobLensError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        return Cursor()
    return found if min(found.inode, found.offset, found.sequence) >= 0 else Cursor()


def keep(path: str, cursor: Cursor) -> None:
    """Replaces it, on the disk when this returns. Raises JobLensError."""
    new = f"{path}.new"
    try:
        with open(new, "w", encoding="ascii") as file:
            file.write(json.dumps(vars(cursor)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise JobLensError(f"{path} can't be written: {error.strerror}") from None
