"""A variable in one process after the other: where it is, and what it holds there. A file is taken apart once."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional, Union

from condor_joblens.model.peek_spec import PeekSpec
from condor_joblens.model.trace_spec import Kind, Type, shown
from condor_joblens.owner_commands.answers import Failed
from condor_joblens.profiling import dwarf
from condor_joblens.profiling.demangle import demangled
from condor_joblens.profiling.dwarf import Dwarf
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.profiling.process import Mapping, Process
from condor_joblens.profiling.reading_turn import ReadingTurn
from condor_joblens.profiling.symbols import Files
from condor_joblens.profiling.variables import MOST_TEXT, NoSuchPart, NotResident, Reader, number

MOST_VALUE = 4000
MOST_FILES = 16
"""That are kept in mind for the next value of a series."""

NOT_RESIDENT = "not resident: nobody has used it lately, or it is on a disk or a server"
REFUSED = "it may not be looked into: the process is not the job's user's, or may not be dumped"

NOT_YET = "its program is read soon: those of other jobs are read first"

_MOST_COMPARED = 5000  # names, with one that there is not
_WRONG = (ElfError, RecursionError, KeyError, ValueError)
"""What a file that is no sound one raises."""


@dataclass(frozen=True)
class _Place:
    """Where a variable is in a file, and by what its type is known."""

    address: int
    information: Optional[Dwarf]
    type: int = 0


class Programs:
    """The files that were taken apart, for all variables that are looked at."""

    def __init__(self, turn: Optional[ReadingTurn] = None) -> None:
        """They are taken apart at any time, or when it is their reader's turn."""
        self._turn = turn
        self.files = Files()
        self._information: dict[Elf, Dwarf] = {}

    def information(self, elf: Elf) -> Dwarf:
        """Raises ElfError if it has none."""
        if elf not in self._information:
            self._information[elf] = Dwarf(elf)
        return self._information[elf]

    def file(self, process: Process, mapping: Mapping) -> Optional[Elf]:
        """The one behind a mapping; None if it can't be had. Raises Failed if it is not the time to read it."""
        if not self.files.has(mapping):
            self.may_read()
        return self.files.of(process, mapping)

    def may_read(self) -> None:
        """Raises Failed if it is not the time for it."""
        if self._turn is not None and not self._turn.take():
            raise Failed(NOT_YET)

    def begin_again(self) -> bool:
        """For other values. Whether all was forgotten: there can be ever new files."""
        if self.files.count > MOST_FILES:
            self.files, self._information = Files(), {}
            return True
        for each in self._information.values():
            each.begin_again()
        return False


def _path(mapping: Mapping) -> str:
    return mapping.path.removesuffix(" (deleted)")


def _meant(process: Process, spec: PeekSpec) -> Optional[Mapping]:
    return next((each for each in process.mappings if each.is_code and each.inode and spec.is_file(_path(each))), None)


class Look:
    """The variable in one process after the other; each file is read once."""

    def __init__(self, spec: PeekSpec, programs: Programs) -> None:
        self.spec, self._programs = spec, programs
        self._places: dict[Elf, Union[_Place, str]] = {}  # or why there is none

    def forget(self) -> None:
        """The files were forgotten."""
        self._places = {}

    @property
    def no_file(self) -> str:
        """What is said if `of` finds no process."""
        return f"no process of the job has a file like {self.spec.file} in its memory"

    def of(self, pid: int) -> Optional[dict[str, Any]]:
        """What is seen of a process; None if it does not have the file."""
        process = Process(pid)
        try:
            mapping = _meant(process, self.spec)
            if mapping is None:
                return None
            seen = self._at(process, mapping)
            return {"Pid": pid, "File": _path(mapping), "Variable": self.spec.shown, **seen}
        finally:
            process.close()

    def _at(self, process: Process, mapping: Mapping) -> dict[str, str]:
        """Its type and value, or why there is none."""
        try:
            elf = self._programs.file(process, mapping)
            if elf is None:
                raise Failed(f"{_path(mapping)} can't be opened as the job's owner")
            if elf not in self._places:
                self._programs.may_read()
                self._places[elf] = self._place_or_why(elf)
            place, start = self._places[elf], elf.start(mapping.start, mapping.offset)
            if isinstance(place, str):
                return {"Why": place}
            kind, value = self._value(process, start + place.address, place)
            return {"Type": kind, "Value": value[:MOST_VALUE]}
        except NotResident:
            return {"Why": REFUSED if process.is_refused else NOT_RESIDENT}
        except (NoSuchPart, Failed) as error:
            return {"Why": str(error)}
        except (*_WRONG, MemoryError) as error:
            return {"Why": _not_understood(error)}

    def _place_or_why(self, elf: Elf) -> Union[_Place, str]:
        try:
            return self._place(elf)
        except Failed as error:
            return str(error)
        except _WRONG as error:
            return _not_understood(error)
        except MemoryError:
            remedy = f"write its type, as in '{self.spec.file}:{self.spec.name} as long'"
            return f"there is too much debug information: {remedy}"

    def _place(self, elf: Elf) -> _Place:
        """Raises Failed and ElfError."""
        spec = self.spec
        if spec.type is not None:
            places = elf.places([spec.name])
            if spec.name not in places:
                near = _near(spec.name, elf.named_variables())
                raise Failed(f"no symbol is called {spec.name}: with a type write the name that nm shows{near}")
            return _Place(places[spec.name], None)
        try:
            information = self._programs.information(elf)
        except ElfError as error:
            remedy = f"compile with -g, or write its type: '{spec.file}:{spec.name} as long'"
            raise Failed(f"the file has {error}: {remedy}") from None
        found = information.variables(spec.name)
        if not found:
            near = _near(spec.name, map(demangled, elf.named_variables()))
            raise Failed(f"no variable with a fixed place is called {spec.name}{near}")
        if len(found) > 1:
            names = ", ".join(sorted({each.name for each in found})[:8])
            raise Failed(f"{len(found)} variables are called so: write more of the name ({names})")
        return _Place(found[0].address, information, found[0].type)

    def _value(self, process: Process, address: int, place: _Place) -> tuple[str, str]:
        """Raises NotResident, NoSuchPart and ElfError."""
        if place.information is not None:
            return Reader(place.information, process.read).value(address, place.type, self.spec.steps)
        kind = self.spec.type
        assert kind is not None
        data = process.read(address, kind.bits // 8)
        if len(data) < kind.bits // 8:
            raise NotResident
        return kind.name, _by_word(process, kind, data)


def _near(name: str, names: Iterable[str]) -> str:
    """Names that a person may have meant."""
    known = sorted(set(itertools.islice(names, _MOST_COMPARED)))
    found = difflib.get_close_matches(name, known, 3, 0.5)
    return f" (is it one of these: {', '.join(found)}?)" if found else ""


def _not_understood(error: BaseException) -> str:
    return f"its file can't be understood: {error}"


def _by_word(process: Process, kind: Type, data: bytes) -> str:
    if kind.kind is Kind.FLOATING:
        return number(data, dwarf.FLOATING)
    value, texts = int.from_bytes(data, "little"), {}
    if kind.kind is Kind.TEXT and value:
        text, end, _ = process.read(value, MOST_TEXT).partition(b"\0")
        if text or end:
            texts[0] = f'"{text.decode("utf-8", "backslashreplace")}"' + ("" if end else "...")
    return shown(kind, value, texts, 0)
