"""The files of sampled jobs in the reader of samples, and their unwind tables in the kernel.

Which file it is says the kernel, by fstat of a descriptor. A file that root owns and alone may write is one for all
jobs; any other is one of its job. Tables have a bounded size together, and those of one job's files a share of that.
What was used least lately goes: its code is then unwound by frame pointers, and such stacks are marked.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.profiling.samples import MOST_TEXT, FileKey, MappedFile

SHARE = 2
"""A job's own files may have half of all bytes, and those that no other job has half of all places."""

_ROW_BYTES = 8


@dataclass
class _File:
    mapped: MappedFile
    descriptor: int
    run: int  # 0: any run's
    bytes: int = 0  # of its table in the kernel
    runs: set[int] = field(default_factory=set)  # that have it


class UnwindTables:
    """Files by number, from 1 on. `put` makes a table of rows (n,) of u8 for a number, and says whether it could."""

    def __init__(
        self, most_bytes: int, most_files: int, put: Callable[[int, np.ndarray], bool], drop: Callable[[int], None]
    ) -> None:
        self._most_bytes, self._most_files = most_bytes, most_files
        self._put, self._drop = put, drop
        self._files: OrderedDict[int, _File] = OrderedDict()  # the one used least lately first
        self._numbers: dict[tuple[int, FileKey], int] = {}
        self._last = 0
        self.bytes = 0

    def add(self, run: int, descriptor: int, path: str) -> int:
        """The number of an open file, which is kept if it is new, else closed; 0 if it can't be kept."""
        try:
            status = os.fstat(descriptor)
        except OSError:
            os.close(descriptor)
            return 0
        key = FileKey(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
        is_roots = status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        owner = 0 if is_roots else run
        number = self._numbers.get((owner, key), 0)
        if number:
            os.close(descriptor)
            self._files[number].runs.add(run)
            self._files.move_to_end(number)
            return number
        if len(self._files) >= self._most_files or self._alone(run) >= self._most_files // SHARE:
            os.close(descriptor)
            return 0
        number = self._last = self._last + 1
        file = _File(MappedFile(key, path[-MOST_TEXT:], is_roots), descriptor, owner, 0, {run})
        self._files[number], self._numbers[owner, key] = file, number
        self._make(number, file)
        return number

    def _alone(self, run: int) -> int:
        """How many files no other run has."""
        return sum(file.runs == {run} for file in self._files.values())

    def used(self, number: int) -> None:
        """It was in samples a moment ago."""
        if number in self._files:
            self._files.move_to_end(number)

    def file(self, number: int) -> MappedFile | None:
        """What is known of a file."""
        found = self._files.get(number)
        return None if found is None else found.mapped

    def descriptor(self, file: MappedFile) -> int | None:
        """For reading, as samples.OpenFiles."""
        for (_, key), number in self._numbers.items():
            if key == file.key:
                return self._files[number].descriptor
        return None

    def forget_run(self, run: int) -> None:
        """The run is over: files that no other one has are closed."""
        for number, file in list(self._files.items()):
            file.runs.discard(run)
            if not file.runs:
                self._close(number, file)

    def _make(self, number: int, file: _File) -> None:
        rows: np.ndarray = np.zeros(0, "u8")
        with contextlib.suppress(ElfError, OSError, MemoryError):
            rows = Elf.unmapped(file.descriptor).rows
        size = _ROW_BYTES * (len(rows) + 1)
        if not len(rows) or not self._make_room(size, file):
            return
        if self._put(number, rows):
            file.bytes = size
            self.bytes += size

    def _make_room(self, size: int, wanted: _File) -> bool:
        """Whether there is room for a table, after those that were used least lately have gone."""
        if wanted.run:
            self._shrink(self._most_bytes // SHARE - size, wanted.run)
            if size > self._most_bytes // SHARE:
                return False
        self._shrink(self._most_bytes - size, None)
        return size <= self._most_bytes

    def _shrink(self, most: int, run: int | None) -> None:
        """Drops tables until those of a run, or all, have at most so many bytes."""
        tables = [(number, file) for number, file in self._files.items() if file.bytes and run in (None, file.run)]
        total = sum(file.bytes for _, file in tables)
        for number, file in tables:
            if total <= most:
                return
            total -= file.bytes
            self._drop_table(number, file)

    def _drop_table(self, number: int, file: _File) -> None:
        if file.bytes:
            self._drop(number)
            self.bytes -= file.bytes
            file.bytes = 0

    def _close(self, number: int, file: _File) -> None:
        self._drop_table(number, file)
        os.close(file.descriptor)
        del self._files[number]
        del self._numbers[file.run, file.mapped.key]
