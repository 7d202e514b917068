"""get: a page of a file of a job. Whoever fetches it asks for the next one where this one has ended."""

from __future__ import annotations

import os
from typing import Any

from condor_joblens.owner_commands.answers import Answers, Failed
from condor_joblens.owner_commands.tail import open_file

PAGE = 8 << 20
"""Bytes that are told at a time."""

_BLOCK = 32768


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells which file it is and how long (JSON), then its bytes from `offset` on, a page at most. Raises Failed.

    A file longer than `most` bytes is not told.
    """
    file, _ = open_file(str(request["file"]), scratch, cgroup)
    status, at, most = os.fstat(file), int(request["offset"]), int(request["most"])
    if status.st_size > most:
        limit = f"it has {status.st_size} bytes, and this node's JOBLENS_GET_MAX_BYTES is {most}"
        raise Failed(f"{limit}: let HTCondor transfer it")
    if at > status.st_size:
        raise Failed(f"it has {status.st_size} bytes: nothing begins at {at}")
    identity = f"{status.st_dev}:{status.st_ino}"
    answers.record({"Bytes": status.st_size, "File": identity, "Mode": status.st_mode & 0o777})
    end = min(status.st_size, at + PAGE)
    while at < end and (data := os.pread(file, min(_BLOCK, end - at), at)):
        at += len(data)
        answers.content(data)
