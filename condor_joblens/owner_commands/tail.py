"""tail: the end of a file of a job, and what is written to it from then on."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from condor_joblens.common.redact import printable
from condor_joblens.owner_commands import job_processes, views
from condor_joblens.owner_commands.answers import Answers, Failed
from condor_joblens.owner_commands.beneath import open_regular, reopen_regular

STREAMS = {"stdout": 1, "stderr": 2}
"""Names that mean what the job writes there, and its descriptor."""

MOST_BYTES = 4 << 20
"""Of the file's end that are told at first."""

FOLLOWED_SECONDS = 3600.0
FOLLOWED_CPU_SECONDS = 180.0
"""A twentieth of a core in that time. An hour of 1 MiB/s takes less."""

PERIOD = 0.2
"""Seconds between two looks at a file that is followed."""

MOST_A_SECOND = 1 << 20
"""Bytes of a followed file; of one that grows faster parts are left out."""

_BLOCK = 65536
_LEFT = 65536  # of what was written too fast


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells the last `lines` lines of `file`; if `follow`, also what is written until the job ends. Raises Failed."""
    name = str(request["file"])
    followed = File(answers, name, scratch, cgroup)
    followed.begin(int(request["lines"]))
    if request["follow"]:
        follow(answers, [followed], cgroup)


def open_file(name: str, scratch: int, cgroup: int) -> tuple[int, str]:
    """A descriptor that reads a file below the folder `scratch`, and its name in there; or one of STREAMS.

    Raises Failed.
    """
    return (_open_stream(name, scratch, cgroup), name) if name in STREAMS else views.open_regular(scratch, name, cgroup)


def _open_stream(name: str, scratch: int, cgroup: int) -> int:
    """Raises Failed."""
    try:
        # as the job's starter calls it, if HTCondor transfers files
        return open_regular(scratch, f"_condor_{name}")
    except Failed:
        pass
    main_pid = job_processes.main_process(cgroup)
    target = job_processes.open_target(cgroup, main_pid, STREAMS[name]) if main_pid else None
    if target is None:
        raise Failed("the job's first process does not show what it has open")
    try:
        return reopen_regular(target)
    except Failed as failed:
        raise Failed(f"{failed}: {printable(os.readlink(f'/proc/self/fd/{target}'))}") from None
    finally:
        os.close(target)


def start_of_lines(file: int, size: int, lines: int) -> int:
    """Where the last `lines` lines of a file's first `size` bytes begin; MOST_BYTES before its end at the earliest."""
    least = max(0, size - MOST_BYTES)
    at, left = size, lines
    if lines == 0:
        return size
    if size and os.pread(file, 1, size - 1) == b"\n":
        left += 1
    while at > least:
        begin = max(least, at - _BLOCK)
        block = os.pread(file, at - begin, begin)
        place = len(block)
        while (place := block.rfind(b"\n", 0, place)) >= 0:
            left -= 1
            if left == 0:
                return begin + place + 1
        at = begin
    return least


class File:
    """A file of which a part has been told."""

    def __init__(self, answers: Answers, name: str, scratch: int, cgroup: int) -> None:
        """Raises Failed."""
        self._answers, self._name, self._scratch = answers, name, scratch
        self._file, self._path = open_file(name, scratch, cgroup)
        self._at = 0

    @property
    def descriptor(self) -> int:
        """Of the file that is being told."""
        return self._file

    def begin(self, lines: int) -> None:
        """Tells its end."""
        size = os.fstat(self._file).st_size
        self._at = start_of_lines(self._file, size, lines)
        if 0 < self._at == size - MOST_BYTES:
            self._answers.notice(f"{self._at} bytes before these are not shown: no more than {MOST_BYTES} are")
        self._tell(size)

    def go_on(self) -> None:
        """Tells what has been written since, and what has become of the file."""
        size = os.fstat(self._file).st_size
        if size < self._at:
            self._answers.notice(f"{self._name} was truncated")
            self._at = 0
        most = int(MOST_A_SECOND * PERIOD)
        if size - self._at > most + _LEFT:
            skipped = size - self._at - _LEFT
            self._answers.notice(f"{skipped} bytes are left out: they were written too fast")
            self._at += skipped
        self._tell(size)

    def look_for_another(self) -> None:
        """Goes on with the file that has the name by now."""
        if self._name in STREAMS:
            return
        try:
            other = open_regular(self._scratch, self._path)
        except Failed:
            return
        if os.path.sameopenfile(other, self._file):
            os.close(other)
            return
        self.go_on()  # with what was written to the one before it
        os.close(self._file)
        self._file, self._at = other, 0
        self._answers.notice(f"{self._name} is another file now")

    def _tell(self, size: int) -> None:
        while self._at < size and (data := os.pread(self._file, min(_BLOCK, size - self._at), self._at)):
            self._at += len(data)
            self._answers.content(data)


def follow(answers: Answers, files: Sequence[File], cgroup: int) -> None:
    """Tells what is written to them until the job has no process any more, or FOLLOWED_SECONDS are over."""
    until, most, looks = time.monotonic() + FOLLOWED_SECONDS, time.process_time() + FOLLOWED_CPU_SECONDS, 0
    while time.monotonic() < until:
        lives = looks % 5 > 0 or not job_processes.is_empty(cgroup)
        for file in files:
            file.go_on()
        if not lives:
            answers.notice("the job has ended")
            return
        looks += 1
        if looks % 5 == 0:
            for file in files:
                file.look_for_another()
        if answers.is_left(PERIOD):
            return
        if time.process_time() > most:
            answers.notice(f"a file is followed for {FOLLOWED_CPU_SECONDS:.0f} s of CPU time: ask again")
            return
    answers.notice(f"a file is followed for {FOLLOWED_SECONDS / 60:.0f} minutes: ask again")
