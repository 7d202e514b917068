"""The file of what a backend will never take, a line of JSON each: {"Reason": ..., "Record": ...}."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable

from condor_joblens.common.errors import printable
from condor_joblens.sinks import Record

GREATEST = 10_000_000
"""Bytes after which it is rotated to `.old`."""


class DeadLetters:
    """Appends to the file at `path`; a disk that does not want it costs a line in the log, once."""

    def __init__(self, path: str, log: Callable[[str], None]) -> None:
        self._path, self._log, self._said = path, log, False

    def add(self, letters: Iterable[tuple[Record, str]]) -> None:
        """Keeps records, each with the reason why it was refused."""
        text = b"".join(
            b'{"Reason":%s,"Record":%s}\n' % (json.dumps(printable(reason, 1000)).encode(), record.json)
            for record, reason in letters
        )
        if not text or not self._path:
            return
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
            with contextlib.closing(os.fdopen(file, "ab")) as opened:
                opened.write(text)
                too_long = opened.tell() > GREATEST
            if too_long:
                os.replace(self._path, f"{self._path}.old")
        except OSError as error:
            if not self._said:
                self._log(f"refused records can't be kept in {self._path}: {error.strerror}: they are counted alone")
            self._said = True
