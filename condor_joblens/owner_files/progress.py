"""What a job says of itself in a file of its scratch folder, if it reaches no socket of ours: in a container, say.

The file is the job's, which may have anything in its place at any moment. No link is followed, and nothing is opened
but what was a regular file a moment ago.
"""

from __future__ import annotations

import os
import stat

from condor_joblens.owner_files.notices import FOLDER

NAME = "progress"
"""Below the job's scratch folder, in FOLDER."""

MOST_BYTES = 128
"""Of which more is not read."""

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(scratch: int) -> bytes:
    """Its first bytes, in the open folder `scratch`; empty if there is none. The caller has its owner's ids.

    Raises nothing that a job can cause.
    """
    try:
        folder = os.open(FOLDER, _FOLDER, dir_fd=scratch)
    except OSError:
        return b""
    try:
        # before it is opened: to open a pipe wakes who writes to it
        if not stat.S_ISREG(os.stat(NAME, dir_fd=folder, follow_symlinks=False).st_mode):
            return b""
        file = os.open(NAME, _FILE, dir_fd=folder)
        try:
            return os.pread(file, MOST_BYTES, 0) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        finally:
            os.close(file)
    except OSError:
        return b""
    finally:
        os.close(folder)
