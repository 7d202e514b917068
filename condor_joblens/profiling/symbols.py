"""Names of functions: which file an address of a process is in, and what that file calls it."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass

from condor_joblens.profiling import debug_files
from condor_joblens.profiling.demangle import demangled
from condor_joblens.profiling.elf import NO_RULE, Elf, ElfError, Rule
from condor_joblens.profiling.process import Mapping, Process

_MOST_RULES = 10_000
"""How to unwind at so many addresses of a process is remembered."""


@dataclass(frozen=True)
class Name:
    """Where an address is. `function` is empty if the file does not say it; `offset` is that in the file.

    `build_id` is in hexadecimal, and empty if the file has none.
    """

    function: str
    file: str
    offset: int
    build_id: str = ""


class Files:
    """The programs and libraries that have been opened, by device and inode as the kernel has them."""

    def __init__(self) -> None:
        self._files: dict[tuple[tuple[int, int], int], Elf | None] = {}
        self._own = Process(os.getpid())

    @property
    def count(self) -> int:
        """How many are known, those that can't be had included."""
        return len(self._files)

    def has(self, mapping: Mapping) -> bool:
        """Whether it is known what `of` answers."""
        return not mapping.inode or (mapping.device, mapping.inode) in self._files

    def of(self, process: Process, mapping: Mapping) -> Elf | None:
        """The file behind a mapping; None if it can't be had, or is another one by now."""
        key = mapping.device, mapping.inode
        if not mapping.inode:
            return None
        if key not in self._files:
            self._files[key] = self._open(process, mapping)
        return self._files[key]

    def _open(self, process: Process, mapping: Mapping) -> Elf | None:
        for path in paths_of(process, mapping):
            with contextlib.suppress(OSError, ElfError):
                elf, status = _opened(path)
                if mapping.is_told_by(status) or self._is_same(elf, mapping):
                    self._find_symbols(elf)
                    return elf
        return None

    @staticmethod
    def _find_symbols(elf: Elf) -> None:
        """Those of a package of its own."""
        descriptor = debug_files.opened_for(elf)
        if descriptor is None:
            return
        try:
            with contextlib.suppress(OSError, ElfError):
                elf.has_beside(Elf(descriptor))
        finally:
            os.close(descriptor)

    def _is_same(self, elf: Elf, mapping: Mapping) -> bool:
        """Compared as the kernel shows mappings: with layers of file systems, stat(2) says something else."""
        ours = self._own.mapping_from(elf.mapped_at)
        return ours is not None and (ours.device, ours.inode) == (mapping.device, mapping.inode)


def paths_of(process: Process, mapping: Mapping) -> list[str]:
    """Where the file behind a mapping can be: by its path in the process's root, or as the process's program.

    The kernel shows paths in another root from outside. A program that has been deleted can still be had by its link.
    """
    inside = process.root + mapping.path.removeprefix(process.root_seen)
    return list(dict.fromkeys((process.root + mapping.path, inside, process.root.removesuffix("root") + "exe")))


def _opened(path: str) -> tuple[Elf, os.stat_result]:
    """Raises OSError and ElfError. A device or a FIFO in its place is not opened at all."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode):
            raise ElfError("no plain file")
        file = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)
    try:
        return Elf(file), status
    finally:
        os.close(file)


def _build_id(elf: Elf | None) -> str:
    with contextlib.suppress(ElfError):
        return elf.build_id if elf is not None else ""
    return ""


class Code:
    """The code of one process: unwind.Program, and names."""

    def __init__(self, process: Process, files: Files) -> None:
        self._process, self._files = process, files
        self._rules: dict[int, Rule] = {}  # by address: many threads wait in the same places

    def rule(self, address: int) -> Rule:
        """How to unwind at an address."""
        if address not in self._rules:
            if len(self._rules) >= _MOST_RULES:  # stacks can be made so that no two are alike
                self._rules.clear()
            self._rules[address] = self._looked_up(address)
        return self._rules[address]

    def _looked_up(self, address: int) -> Rule:
        found = self._file(address)
        mapping, elf = found or (None, None)
        if mapping is None or elf is None:
            return NO_RULE
        with contextlib.suppress(ElfError):
            return elf.rule(address - mapping.start + mapping.offset)
        return NO_RULE

    def read(self, address: int, size: int) -> bytes:
        """Memory of the process."""
        return self._process.read(address, size)

    def name(self, address: int) -> Name:
        """Where an address is."""
        found = self._file(address)
        if found is None:
            return Name("", "", address)
        mapping, elf = found
        offset = address - mapping.start + mapping.offset
        with contextlib.suppress(ElfError):
            symbol = elf.function(offset) if elf is not None else None
            if symbol is not None:
                return Name(demangled(symbol[0]), mapping.path, offset, _build_id(elf))
        return Name("", mapping.path, offset, _build_id(elf))

    def _file(self, address: int) -> tuple[Mapping, Elf | None] | None:
        mapping = self._process.mapping_at(address)
        if mapping is None or not mapping.is_code:
            return None
        return mapping, self._files.of(self._process, mapping)
