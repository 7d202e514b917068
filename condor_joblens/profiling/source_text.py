"""The text of scripts of a job: a process of `joblens trace --source`.

It is the user who asks or, if that is root, the job's owner. The files are a job's, so memory and time are bounded, and
what is no file of text costs its lines.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import Any

from condor_joblens.profiling.source_lines import confine

MOST_FILES, MOST_BYTES = 20, 1 << 20
"""Files, and bytes of one."""

_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def main() -> None:
    """Answers one question, a JSON document in and one out: `{"paths": [...]}` and `{"texts": [[text, why], ...]}`."""
    asked = json.load(sys.stdin)
    confine(asked)
    print(json.dumps({"texts": [read(str(path)) for path in asked["paths"][:MOST_FILES]]}), flush=True)


def read(path: str) -> list[Any]:
    """Its text, or null, and why it was not read."""
    try:
        if not os.path.isabs(path):
            return [None, "its path is not known"]
        descriptor = os.open(path, _OPEN)
    except (OSError, ValueError) as error:
        return [None, getattr(error, "strerror", None) or "it has no such name"]
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return [None, "it is no regular file"]
        if about.st_size > MOST_BYTES:
            return [None, f"it has more than {MOST_BYTES >> 20} MiB"]
        return [os.read(descriptor, MOST_BYTES).decode("utf-8", "replace"), ""]
    except OSError as error:
        return [None, error.strerror or "it can't be read"]
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
