"""What a job says of itself in a file of its scratch folder, if it reaches no socket of ours: in a container, say.

The file is the job's, which may have anything in its place at any moment. No link is followed, and nothing is opened
but what was a regular file a moment ago.
"""

from __future__ import annotations

import os
import stat

from condor_joblens.common.same_mount import is_plain, open_in
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
        folder = open_in(scratch, FOLDER, _FOLDER)
    except OSError:
        return b""
    try:
        if not is_plain(folder, NAME):
            return b""
        file = open_in(folder, NAME, _FILE)
        try:
            return os.pread(file, MOST_BYTES, 0) if stat.S_ISREG(os.fstat(file).st_mode) else b""
        finally:
            os.close(file)
    except OSError:
        return b""
    finally:
        os.close(folder)
