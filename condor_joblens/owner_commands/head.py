"""head and cat: a file of a job from its beginning."""

from __future__ import annotations

import os
from typing import Any

from condor_joblens.owner_commands.answers import Answers
from condor_joblens.owner_commands.tail import open_file

MOST_HEAD, MOST_CAT = 4 << 20, 16 << 20
"""Bytes of a file that are told: by head, and by cat."""

_BLOCK = 65536


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells the first `lines` lines of `file`. Raises Failed."""
    _tell(answers, open_file(str(request["file"]), scratch, cgroup)[0], MOST_HEAD, int(request["lines"]))


def whole(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells all of `file`. Raises Failed."""
    _tell(answers, open_file(str(request["file"]), scratch, cgroup)[0], MOST_CAT, None)


def _tell(answers: Answers, file: int, most: int, lines: int | None) -> None:
    """As much as it had at the beginning, up to `most` bytes; None: however many lines that is."""
    size, at, left = os.fstat(file).st_size, 0, lines
    while at < min(size, most) and left != 0:
        data = os.pread(file, min(_BLOCK, size - at, most - at), at)
        if not data:
            return
        if left is not None:
            data = _first(data, left)
            left -= data.count(b"\n")
        at += len(data)
        answers.content(data)
    if at < size and left != 0:
        answers.notice(f"{size - at} more bytes are not shown")


def _first(data: bytes, lines: int) -> bytes:
    """Its first lines, with their ends."""
    place = -1
    for _ in range(lines):
        place = data.find(b"\n", place + 1)
        if place < 0:
            return data
    return data[: place + 1]
