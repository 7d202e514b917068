"""The functions of a file that a SPEC means, and where their probes are to be. The file is the job's."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from condor_joblens.model.trace_spec import Spec, without_parameters
from condor_joblens.profiling.demangle import demangled
from condor_joblens.profiling.elf import Elf, ElfError
from condor_joblens.tracing.exits import MOST_BYTES, Piece, Place, Unreadable, entry_alone, places

MOST_FUNCTIONS = 16
"""Functions of a file that a SPEC may mean."""

MOST_PLACES = 1000
"""Probes of one function."""

_X86_64 = 62
_MOST_COMPARED = 20_000
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Function:
    """One that can be traced: its probes are at `offset` in the file, and at their distances from there."""

    name: str
    offset: int
    size: int
    cold: tuple[int, int]  # distance and size of what the compiler has put elsewhere of it
    places: tuple[Place, ...]
    is_entry_alone: bool = False  # nothing is known of how its calls end
    variables: tuple[int, ...] = ()  # of a bash: how far from its first place, in the order of struct traced_shell


@dataclass
class Found:
    """What a SPEC means in a file."""

    functions: list[Function] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # a sentence for each that can't be traced
    nearest: list[str] = field(default_factory=list)  # names, if there is none


def find(elf: Elf, spec: Spec) -> Found:
    """Raises ElfError for a file that is none, and Unreadable if it means too many."""
    if elf.machine != _X86_64:
        raise Unreadable("is for another kind of machine than x86-64")
    if elf.is_go and (spec.arguments is not None or spec.result is not None):
        raise Unreadable(
            "is a program in Go, which has arguments and results elsewhere: write the function's name alone"
        )
    meant, others, cold = _named(elf, spec)
    found = Found()
    if len(meant) > MOST_FUNCTIONS:
        raise Unreadable(
            f"has {len(meant)} functions of this name: at most {MOST_FUNCTIONS} are traced, write more of it"
        )
    for address, (name, raw, size) in sorted(meant.items()):
        try:
            found.functions.append(_function(elf, name, address, size, cold.get(raw)))
        except Unreadable as error:
            found.refused.append(f"{name} {error}")
        except ElfError as error:
            found.refused.append(f"{name} has {error}")
    if not meant:
        names = sorted(others)[:_MOST_COMPARED]
        found.nearest = difflib.get_close_matches(spec.function, names, 3, 0.5)
        if elf.is_stripped:
            found.refused.append(_stripped(found.nearest))
    return found


def _stripped(nearest: Sequence[str]) -> str:
    """Why a name may not be found."""
    near = f"; is it one of these: {', '.join(nearest)}?" if nearest else ""
    return f"has been stripped: it has names of those functions alone that other files use{near}"


def _named(elf: Elf, spec: Spec) -> tuple[dict[int, tuple[str, str, int]], set[str], dict[str, tuple[int, int]]]:
    """Functions that are meant, by their addresses; names of the others; cold parts, by the function's raw name."""
    meant: dict[int, tuple[str, str, int]] = {}
    others: set[str] = set()
    cold: dict[str, tuple[int, int]] = {}
    words = [word for word in _WORD.findall(spec.function) if word != "operator"]
    for raw, address, size in elf.named_functions():
        name, _, part = raw.partition(".cold")
        if part or raw.endswith(".cold"):
            cold.setdefault(name, (address, size))
            continue
        # a mangled name has the words of the written one in it
        if not all(word in raw for word in words) and not raw.startswith("_ZNSs"):
            others.add(raw if not raw.startswith("_Z") else without_parameters(demangled(raw)))
            continue
        written = demangled(raw)
        if spec.is_function(written) or spec.is_function(raw):
            meant.setdefault(address, (written, raw, size))
        else:
            others.add(without_parameters(written))
    return meant, others, cold


def _function(elf: Elf, name: str, address: int, size: int, cold: tuple[int, int] | None) -> Function:
    if not 0 < size <= MOST_BYTES:
        raise Unreadable("has no length in the file" if size <= 0 else "is too long")
    offset, code = elf.code(address, size)
    if elf.is_go:
        return Function(name, offset, size, (0, 0), tuple(entry_alone(code)), True)
    piece, place = None, (0, 0)
    if cold is not None and 0 < cold[1] <= MOST_BYTES:
        at, text = elf.code(*cold)
        piece, place = Piece(at - offset, text), (at - offset, cold[1])
    found = places(Piece(0, code), piece)
    if len(found) > MOST_PLACES:
        raise Unreadable(f"has more than {MOST_PLACES} exits")
    return Function(name, offset, size, place, tuple(found))
