"""The files of sampled jobs in the reader of samples, and their unwind tables in the kernel.

Which file it is says the kernel, by fstat of a descriptor. A file that root owns and alone may write is one for all
jobs; any other is one of its job. Tables have a bounded size together. A job may have all of it while nobody else needs
it. Else the job that has most gives way, with what it used least lately. That is unwound by frame pointers then, and
its stacks are marked, until there is room again. Places for files are shared in the same way.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from condor_joblens.profiling import debug_files
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.profiling.fair_shares import FairShares
from condor_joblens.profiling.late_mappings import FILE_MASK
from condor_joblens.profiling.samples import MOST_TEXT, FileKey, MappedFile

NO_PLACE = FILE_MASK
"""The number of all files for which there is no place. No other file has it: it is the greatest."""

_ROW_BYTES = 8


@dataclass
class _File:
    mapped: MappedFile
    descriptor: int
    run: int  # 0: any run's
    symbols: int | None = None  # a descriptor of the file that has them, if it is another one
    bytes: int = 0  # of its table in the kernel
    lacks: int = 0  # bytes of a table for which there was no room
    looked: int = 0  # FairShares.changes, when there was none
    runs: set[int] = field(default_factory=set)  # that have it


def key_of(status: os.stat_result) -> FileKey:
    """Which file stat(2) tells of."""
    return FileKey(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)


class UnwindTables:
    """Files by number, from 1 on. `put` makes a table of rows (Elf.rows) for a number, and says whether it could.

    `closed` is told of files that are not open any more.
    """

    def __init__(
        self,
        most_bytes: int,
        most_files: int,
        put: Callable[[int, memoryview], bool],
        drop: Callable[[int], None],
        closed: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._most_bytes, self._most_files = most_bytes, most_files
        self._put, self._drop, self._closed = put, drop, closed
        self._files: dict[int, _File] = {}
        self._numbers: dict[tuple[int, FileKey], int] = {}
        self._of_key: dict[FileKey, set[int]] = {}  # of several runs
        self._of_roots: dict[tuple[int, int], int] = {}  # those of root's, by device and inode: the latest number
        self._tables, self._places = FairShares(), FairShares()
        self._last = 0
        self.bytes = 0

    @property
    def has_place(self) -> bool:
        """Whether there is one for another file, without any that has to go."""
        return len(self._files) < self._most_files

    def add(self, run: int, descriptor: int, path: str, symbols: int | None = None) -> int:
        """The number of an open file, which is kept if it is new, else closed; NO_PLACE, or 0 if it can't be had.

        `symbols` is a descriptor of the file that has its symbols (debug_files.py), and is kept as long.
        """
        if symbols is not None and not debug_files.is_trusted(symbols):
            os.close(symbols)
            symbols = None
        number, is_kept = self._add(run, descriptor, path, symbols)
        if not is_kept:
            os.close(descriptor)
            if symbols is not None:
                os.close(symbols)
        return number

    def _add(self, run: int, descriptor: int, path: str, symbols: int | None) -> tuple[int, bool]:
        """The number, and whether the descriptors are kept."""
        try:
            status = os.fstat(descriptor)
        except OSError:
            return 0, False
        key = key_of(status)
        is_roots = status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        owner = 0 if is_roots else run
        number = self._numbers.get((owner, key), 0)
        if number:
            self._found(run, number)
            return number, False
        if not self.has_place and not self._make_place(run):
            return NO_PLACE, False
        number = self._last = self._last + 1
        file = _File(MappedFile(key, path[-MOST_TEXT:], is_roots), descriptor, owner, symbols, runs={run})
        self._files[number], self._numbers[owner, key] = file, number
        self._of_key.setdefault(key, set()).add(number)
        if is_roots:
            self._of_roots[key.device, key.inode] = number
        self._places.put(number, 1, file.runs)
        self._make(run, number, may_be_own=True)
        return number, True

    def _found(self, run: int, number: int) -> None:
        """It is a file of this run as well."""
        self._files[number].runs.add(run)
        self._runs_changed(number)
        self.used(run, number)

    def known(self, run: int, device: int, inode: int) -> int:
        """The number of an open file of root's, which is this run's as well then; 0: there is none, or it has changed.

        As long as it is open, no other file has its inode. With layers of file systems a mapping has another device
        than stat(2) says: then it is not found. Nor is one that not all may read: that a run has it is only said.
        """
        number = self._of_roots.get((device, inode), 0)
        if not number:
            return 0
        file = self._files[number]
        status = os.fstat(file.descriptor)
        if key_of(status) != file.mapped.key or not status.st_mode & stat.S_IROTH:
            return 0
        self._found(run, number)
        return number

    def used(self, run: int, number: int) -> None:
        """It was in samples of a run a moment ago. A table that gave way comes back, if others have more by now."""
        file = self._files.get(number)
        if file is None or run not in file.runs:
            return
        self._places.use(number, run)
        self._tables.use(number, run)
        if file.lacks and file.looked != self._tables.changes:
            file.looked = self._tables.changes
            if self._to_go(run, file.lacks, may_be_own=False) is not None:
                self._make(run, number, may_be_own=False)

    def file(self, number: int) -> MappedFile | None:
        """What is known of a file."""
        found = self._files.get(number)
        return None if found is None else found.mapped

    def descriptor(self, file: MappedFile) -> int | None:
        """For reading, as samples.OpenFiles."""
        number = next(iter(self._of_key.get(file.key, ())), 0)
        return self._files[number].descriptor if number else None

    def symbols(self, file: MappedFile) -> int | None:
        """Of the file that has its symbols, as samples.OpenFiles."""
        number = next(iter(self._of_key.get(file.key, ())), 0)
        return self._files[number].symbols if number else None

    def forget_run(self, run: int) -> None:
        """The run is over: files that no other one has are closed."""
        for number in self._places.of(run):
            file = self._files[number]
            file.runs.discard(run)
            self._runs_changed(number)
            if not file.runs:
                self._close(number, file)

    def _runs_changed(self, number: int) -> None:
        for shares in (self._places, self._tables):
            shares.change_runs(number, self._files[number].runs)

    def _make(self, run: int, number: int, *, may_be_own: bool) -> None:
        """A table for a file, if there is room for one of this run."""
        file = self._files[number]
        rows = memoryview(b"")
        with contextlib.suppress(ElfError, OSError, MemoryError):
            rows = Elf.unmapped(file.descriptor).rows
        size = _ROW_BYTES * (len(rows) + 1)
        file.lacks = 0
        if not len(rows):
            return
        gone = self._to_go(run, size, may_be_own=may_be_own)
        if gone is None:
            file.lacks, file.looked = size, self._tables.changes
            return
        for each in gone:
            self._drop_table(each, self._files[each], is_for_room=True)
        if self._put(number, rows):
            file.bytes = size
            self.bytes += size
            self._tables.put(number, size, file.runs)

    def _to_go(self, run: int, size: int, *, may_be_own: bool) -> list[int] | None:
        """Whose tables give way to one of a run, those that have more, or its own; None if there is no room for it."""
        return self._tables.to_go(run, size, self._most_bytes - self.bytes, may_be_own=may_be_own)

    def _make_place(self, run: int) -> bool:
        """Whether there is a place for a file of a run, after one of a run that has more has gone."""
        gone = self._places.to_go(run, 1, 0, may_be_own=False)
        for number in gone or ():
            self._close(number, self._files[number])
        return bool(gone)

    def _drop_table(self, number: int, file: _File, *, is_for_room: bool = False) -> None:
        if file.bytes:
            self._drop(number)
            self._tables.remove(number)
            self.bytes -= file.bytes
            file.lacks, file.bytes = file.bytes if is_for_room else 0, 0

    def _close(self, number: int, file: _File) -> None:
        self._closed(number)
        self._drop_table(number, file)
        self._places.remove(number)
        os.close(file.descriptor)
        if file.symbols is not None:
            os.close(file.symbols)
        key = file.mapped.key
        del self._files[number], self._numbers[file.run, key]
        if self._of_roots.get((key.device, key.inode)) == number:
            del self._of_roots[key.device, key.inode]
        self._of_key[key].discard(number)
        if not self._of_key[key]:
            del self._of_key[key]
