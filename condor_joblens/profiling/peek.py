"""peek: a variable of a job's processes, read in their memory while they go on, one JSON object a process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from condor_joblens.model import peek_spec
from condor_joblens.model.peek_spec import PeekSpec
from condor_joblens.model.trace_spec import Kind, SpecError, Type, shown
from condor_joblens.owner_commands import job_processes
from condor_joblens.owner_commands.answers import Answers, Failed
from condor_joblens.profiling import dwarf
from condor_joblens.profiling.dwarf import Dwarf
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.profiling.process import Mapping, Process
from condor_joblens.profiling.symbols import Files
from condor_joblens.profiling.variables import MOST_TEXT, NoSuchPart, NotResident, Reader, number

MOST_PROCESSES = 64
MOST_VALUE = 4000
NOT_RESIDENT = "not resident: nobody has used it lately, or it is on a disk or a server"


@dataclass(frozen=True)
class _Place:
    """Where a variable is in a file, and by what its type is known."""

    address: int
    information: Optional[Dwarf]
    type: int = 0


def main(answers: Answers, request: dict[str, Any], scratch: int, cgroup: int) -> None:
    """Tells it of each process of the job that has the file, or of `pid` alone. Raises Failed."""
    try:
        spec = peek_spec.parse(str(request["spec"]))
    except SpecError as error:
        raise Failed(str(error)) from None
    wanted = int(request["pid"])
    pids = [pid for pid in sorted(job_processes.pids(cgroup)) if wanted in (0, pid)]
    if not pids:
        raise Failed(f"process {wanted} is none of the job" if wanted else "the job has no process")
    look, files = _Look(spec), 0
    for pid in pids[:MOST_PROCESSES]:
        process = Process(pid)
        mapping = _meant(process, spec)
        if mapping is not None:
            files += 1
            answers.record({"Pid": pid, "File": _path(mapping), "Variable": spec.shown, **look.at(process, mapping)})
        process.close()
    if not files:
        raise Failed(f"no process of the job has a file like {spec.file} in its memory")
    if len(pids) > MOST_PROCESSES:
        answers.notice(f"of the job's {len(pids)} processes, {MOST_PROCESSES} are looked at")


def _path(mapping: Mapping) -> str:
    return mapping.path.removesuffix(" (deleted)")


def _meant(process: Process, spec: PeekSpec) -> Optional[Mapping]:
    return next((each for each in process.mappings if each.is_code and each.inode and spec.is_file(_path(each))), None)


class _Look:
    """The variable in one process after the other; each file is read once."""

    def __init__(self, spec: PeekSpec) -> None:
        self._spec, self._files = spec, Files()
        self._places: dict[tuple[tuple[int, int], int], _Place] = {}

    def at(self, process: Process, mapping: Mapping) -> dict[str, str]:
        """Its type and value, or why there is none."""
        try:
            elf = self._files.of(process, mapping)
            if elf is None:
                raise Failed(f"{_path(mapping)} can't be opened as the job's owner")
            key = mapping.device, mapping.inode
            if key not in self._places:
                self._places[key] = self._place(elf)
            place, start = self._places[key], elf.start(mapping.start, mapping.offset)
            kind, value = self._value(process, start + place.address, place)
            return {"Type": kind, "Value": value[:MOST_VALUE]}
        except NotResident:
            return {"Why": "it may not be looked into" if process.is_refused else NOT_RESIDENT}
        except (NoSuchPart, Failed) as error:
            return {"Why": str(error)}
        except (ElfError, RecursionError, MemoryError, KeyError, ValueError) as error:
            return {"Why": f"its file can't be understood: {error}"}

    def _place(self, elf: Elf) -> _Place:
        """Raises Failed and ElfError."""
        spec = self._spec
        if spec.type is not None:
            places = elf.places([spec.name])
            if spec.name not in places:
                raise Failed(f"no symbol is called {spec.name}: with a type write the name that nm shows")
            return _Place(places[spec.name], None)
        try:
            information = Dwarf(elf)
        except ElfError as error:
            remedy = f"compile with -g, or write its type: '{spec.file}:{spec.name} as long'"
            raise Failed(f"the file has {error}: {remedy}") from None
        found = information.variables(spec.name)
        if not found:
            raise Failed(f"no variable with a fixed place is called {spec.name}")
        if len(found) > 1:
            names = ", ".join(sorted({each.name for each in found})[:8])
            raise Failed(f"{len(found)} variables are called so: write more of the name ({names})")
        return _Place(found[0].address, information, found[0].type)

    def _value(self, process: Process, address: int, place: _Place) -> tuple[str, str]:
        """Raises NotResident, NoSuchPart and ElfError."""
        if place.information is not None:
            return Reader(place.information, process.read).value(address, place.type, self._spec.steps)
        kind = self._spec.type
        assert kind is not None
        data = process.read(address, kind.bits // 8)
        if len(data) < kind.bits // 8:
            raise NotResident
        return kind.name, _by_word(process, kind, data)


def _by_word(process: Process, kind: Type, data: bytes) -> str:
    if kind.kind is Kind.FLOATING:
        return number(data, dwarf.FLOATING)
    value, texts = int.from_bytes(data, "little"), {}
    if kind.kind is Kind.TEXT and value:
        text, end, _ = process.read(value, MOST_TEXT).partition(b"\0")
        if text or end:
            texts[0] = f'"{text.decode("utf-8", "backslashreplace")}"' + ("" if end else "...")
    return shown(kind, value, texts, 0)
