"""Whether joblens-export could write where a knob says: `joblens doctor` asks, and whoever runs that may write more."""

from __future__ import annotations

import errno
import os

from condor_joblens.common import privilege

_NO_SUCH_FILES = (errno.EOPNOTSUPP, errno.EISDIR)
"""What a file system says that has no files without a name."""


def refusal(folder: str, file: str = "") -> str:
    """Why the user joblens can't write `file` in `folder`; empty where it can, and where this user can't tell.

    Tried as that user, in the folder or the nearest above it that is there: a file without a name leaves nothing.
    """
    user = privilege.user(privilege.USER)
    if user is None or os.geteuid() not in (0, user.pw_uid):
        return ""  # that there is no such user is said elsewhere
    path = os.path.join(folder, file)
    with privilege.as_owner(user.pw_uid, user.pw_gid):
        try:
            if file and os.path.lexists(path):
                os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
                return ""
            path = folder
            while not os.path.lexists(path):
                path = os.path.dirname(path)
            os.close(os.open(path, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600))
        except OSError as error:
            return "" if error.errno in _NO_SUCH_FILES else f"{path}: {error.strerror} for the user joblens"
    return ""
