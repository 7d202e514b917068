"""Records as lines of JSON in a file of this machine, rotated by size and age."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.sinks import (
    DELIVERED,
    DeliveryResult,
    Diagnosis,
    Record,
    RecordKind,
    Sink,
    SinkContext,
    SinkKnob,
    folders,
    not_now,
    parsers,
)

_REMEDY = "make its folder writable for the user joblens, or set JOBLENS_SINK_FILE_PATH"
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


_KINDS = ", ".join(kind.value for kind in RecordKind)


def kinds(value: str) -> frozenset[RecordKind]:
    """A knob's parser: names of kinds of records. Raises ValueError."""
    words = value.replace(",", " ").lower().split()
    known = {kind.value: kind for kind in RecordKind}
    if not words or not set(words) <= set(known):
        raise ValueError(f"one or more of {', '.join(known)}")
    return frozenset(known[word] for word in words)


class FileSink(Sink):
    """A record is delivered once it is in the file, whole."""

    name = "file"
    knobs = (
        SinkKnob("PATH", "/var/lib/joblens/records/records.jsonl", parsers.file, "file", "where records are written"),
        SinkKnob("KINDS", "sample, event, job", kinds, "words", f"kinds of records: {_KINDS}"),
        SinkKnob(
            "BYTES", "104857600", parsers.integer(65536, 1 << 44), "bytes", "size at which the file is set aside"
        ),
        SinkKnob(
            "SECONDS", "86400", parsers.integer(1, 1 << 32), "seconds", "age at which the file is set aside"
        ),
        SinkKnob("KEEP", "9", parsers.integer(0, 10000), "files", "how many that were set aside are kept"),
    )  # fmt: skip

    @classmethod
    def wanted(cls, settings: Mapping[str, Any]) -> frozenset[RecordKind]:
        """Profiles too, if KINDS has them."""
        return cls.takes | {kind for kind in (RecordKind.PROFILE,) if kind in settings["kinds"]}

    def __init__(self, settings: Mapping[str, Any], context: SinkContext) -> None:
        super().__init__(settings, context)
        self._path: str = settings["path"]
        self._file = -1
        self._since = 0.0  # CLOCK_MONOTONIC

    def start(self) -> None:
        """Opens the file; a line that a killed process left unfinished is cut off. Raises JobLensError."""
        folder = os.path.dirname(self._path)
        try:
            os.makedirs(folder, 0o750, exist_ok=True)
            self._file = os.open(self._path, _FLAGS, 0o640)
            size = os.fstat(self._file).st_size
            end = _end_of_lines(self._file, size)
            if end < size:
                os.ftruncate(self._file, end)
        except OSError as error:
            raise JobLensError(f"{self._path}: {error.strerror}: {_REMEDY}") from None
        self._since = time.monotonic()

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """All of the batch or nothing is in the file afterwards."""
        lines = b"".join(record.json + b"\n" for record in batch if record.kind in self.settings["kinds"])
        before = os.fstat(self._file).st_size
        try:
            written = 0
            while written < len(lines):
                written += os.write(self._file, lines[written:])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            return not_now(batch, f"{self._path}: {error.strerror}")
        old = time.monotonic() - self._since > self.settings["seconds"]
        if before + len(lines) >= self.settings["bytes"] or (old and before + len(lines)):
            self._set_aside()
        return DELIVERED

    def _set_aside(self) -> None:
        """The file gets a name with the time and a number; the next one begins."""
        stem, suffix = os.path.splitext(self._path)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        number = 0
        while os.path.lexists(target := f"{stem}-{stamp}.{number}{suffix}"):
            number += 1
        os.rename(self._path, target)
        os.close(self._file)
        self._file = -1
        self.start()
        aside = sorted(self._aside(), key=lambda path: os.stat(path).st_mtime_ns)
        for path in aside[: len(aside) - self.settings["keep"]]:
            os.unlink(path)

    def _aside(self) -> list[str]:
        folder, name = os.path.split(self._path)
        stem, suffix = os.path.splitext(name)
        with os.scandir(folder) as entries:
            return [e.path for e in entries if e.name.startswith(f"{stem}-") and e.name.endswith(suffix)]

    def check(self) -> Iterable[Diagnosis]:
        """Whether the file can be written, and its folder has room."""
        folder, name = os.path.split(self._path)
        if refused := folders.refusal(folder, name):
            return [Diagnosis(False, refused, _REMEDY)]
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        room = os.statvfs(folder)
        free = room.f_bavail * room.f_frsize
        wanted = self.settings["bytes"] * (self.settings["keep"] + 1)
        if free < wanted:
            remedy = "make room, or lower JOBLENS_SINK_FILE_BYTES or JOBLENS_SINK_FILE_KEEP"
            return [Diagnosis(False, f"{folder} has {free} bytes left of the {wanted} that the files may take", remedy)]
        return [Diagnosis(True, f"writes {self._path}")]

    def close(self, seconds: float) -> None:
        """What was delivered is in the file already."""


def _end_of_lines(file: int, size: int) -> int:
    """The offset behind the last whole line."""
    end = size
    while end > 0:
        begin = max(0, end - 65536)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
