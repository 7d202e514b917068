"""log: the end of what a job writes to stdout and to stderr, each under the file that it is, and what follows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from condor_joblens.common.redact import printable
from condor_joblens.owner_commands import tail
from condor_joblens.owner_commands.answers import Answers, Failed
from condor_joblens.owner_commands.tail import STREAMS


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells the last `lines` lines of each; if `follow`, also what is written until the job ends. Raises Failed."""
    files: list[tail.File] = []
    told: dict[tuple[int, int], str] = {}
    speaker, reasons = _Speaker(answers), []
    for name in STREAMS:
        try:
            file = tail.File(_Stream(speaker, name), name, scratch, cgroup)
        except Failed as failed:
            reasons.append(f"{name}: {failed}")
            continue
        identity = _identity(file.descriptor)
        if identity in told:
            answers.notice(f"{name} goes where {told[identity]} does")
            continue
        told[identity] = name
        speaker.begin(name, _path(file.descriptor))
        file.begin(int(request["lines"]))
        files.append(file)
    if not files:
        raise Failed("; ".join(reasons))
    for reason in reasons:
        answers.notice(reason)
    if request["follow"]:
        tail.follow(answers, files, cgroup)


class _Speaker:
    """Says whose bytes follow whenever that changes."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self._paths: dict[str, str] = {}
        self._last = ""

    def begin(self, name: str, path: str) -> None:
        """It is this file."""
        self._paths[name], self._last = path, name
        self.answers.source(f"{name}: {path}")

    def content(self, name: str, data: bytes) -> None:
        if name != self._last:
            self.begin(name, self._paths[name])
        self.answers.content(data)


class _Stream(Answers):
    """What is said of one of the two."""

    def __init__(self, speaker: _Speaker, name: str) -> None:
        self._speaker, self._name = speaker, name

    def content(self, data: bytes) -> None:
        self._speaker.content(self._name, data)

    def record(self, fields: Mapping[str, Any]) -> None:
        raise AssertionError("a file has none")

    def notice(self, sentence: str) -> None:
        self._speaker.answers.notice(sentence)


def _identity(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _path(file: int) -> str:
    """Where the file is, as the kernel has it; a name can hold anything."""
    try:
        return printable(os.readlink(f"/proc/self/fd/{file}"))
    except OSError:
        return "a file"
