"""What a program's debug information (DWARF 2 to 5) says of its variables: where each is, and of which type.

The file is the job's: everything is read within bounds, and what is wrong in it is an ElfError. Only those units are
taken apart in which a variable's name occurs.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.profiling.elf import Elf, ElfError

MOST_BYTES = 128 << 20
"""Of one section."""

MOST_UNITS, MOST_ENTRIES = 50, 1_000_000
"""That are looked through for a variable."""

_MOST_PLACES = 1000  # of a name among strings, and of the references to each

# tags and attributes of the standard
ARRAY, ENUM, MEMBER, POINTER, INHERITANCE, RANGE, BASE, ENUMERATOR = 0x01, 0x04, 0x0D, 0x0F, 0x1C, 0x21, 0x24, 0x28
STRUCTURES, POINTERS = frozenset({0x02, 0x13, 0x17}), frozenset({0x0F, 0x10, 0x42})  # these also references
NAME, SIZE, BIT_SIZE, CONST_VALUE, UPPER, COUNT, OFFSET = 0x03, 0x0B, 0x0D, 0x1C, 0x2F, 0x37, 0x38
DECLARATION, ENCODING, TYPE = 0x3C, 0x3E, 0x49
BOOLEAN, FLOATING = 0x02, 0x04
SIGNED, CHARACTERS = frozenset({0x05, 0x06, 0x0D}), frozenset({0x06, 0x08})

_VARIABLE = 0x34
_QUALIFIED = frozenset({0x16, 0x26, 0x35, 0x37, 0x47})  # typedef, const, volatile, restrict, _Atomic
_SCOPES = STRUCTURES | {0x2E, 0x39}  # and functions, namespaces
_LOCATION, _SPECIFICATION, _STRINGS_BASE, _ADDRESSES_BASE = 0x02, 0x47, 0x72, 0x73

_FIXED = {0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x0E: 4, 0x10: 4, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8,
          0x17: 4, 0x1C: 4, 0x1D: 4, 0x1F: 4, 0x20: 8, 0x24: 8, 0x25: 1, 0x26: 2, 0x27: 3, 0x28: 4, 0x29: 1, 0x2A: 2,
          0x2B: 3, 0x2C: 4, 0x1F20: 4, 0x1F21: 4}  # fmt: skip
_LEB = frozenset({0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23, 0x1F01, 0x1F02})
_OF_UNIT = frozenset({0x11, 0x12, 0x13, 0x14, 0x15})
_BLOCKS = {0x0A: "<B", 0x03: "<H", 0x04: "<I"}


@dataclass(frozen=True)
class _Unit:
    """A header of .debug_info."""

    start: int
    first: int  # of its entries
    end: int
    abbreviations: int


_PLACES = frozenset((TYPE, _SPECIFICATION, _STRINGS_BASE, _ADDRESSES_BASE))
"""Attributes that are places, and nothing else."""


@dataclass
class Entry:
    """One entry; values of attributes are numbers or bytes, references places in .debug_info."""

    at: int
    depth: int
    tag: int
    has_children: bool
    values: dict[int, Any] = field(default_factory=dict)

    def number(self, name: int) -> int:
        """The value of an attribute; 0 if it is no number, or not there."""
        value = self.values.get(name)
        return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class Variable:
    """One variable; its address is as the file has it."""

    name: str
    address: int
    type: int  # place of its type


class Dwarf:
    """The debug information of one file."""

    def __init__(self, elf: Elf) -> None:
        """Raises ElfError if it has none."""
        self._info = elf.section(b".debug_info", MOST_BYTES)
        self._abbreviations = elf.section(b".debug_abbrev", MOST_BYTES)
        self._strings = elf.section(b".debug_str", MOST_BYTES)
        self._line_strings = elf.section(b".debug_line_str", MOST_BYTES)
        self._offsets = elf.section(b".debug_str_offsets", MOST_BYTES)
        self._addresses = elf.section(b".debug_addr", MOST_BYTES)
        if not self._info or not self._abbreviations:
            raise ElfError("no debug information")
        self._units = list(self._headers())
        self._starts = [unit.start for unit in self._units]
        self._forms: dict[int, dict[int, tuple[int, bool, list[tuple[int, int, int]]]]] = {}
        self._bases: dict[int, tuple[int, int]] = {}  # of a unit: of its strings, and of its addresses
        self._left = MOST_ENTRIES

    def begin_again(self) -> None:
        """As many entries may be looked through as at first: for another value of the same variables."""
        self._left = MOST_ENTRIES

    # -- variables ------------------------------------------------------------------------------------------

    def variables(self, name: str) -> list[Variable]:
        """Those of this name, `a::b` or its last part; if there is one with all of it, that alone. Raises ElfError."""
        found: dict[int, Variable] = {}
        for unit in self._candidates(name.rpartition("::")[2].encode())[:MOST_UNITS]:
            for variable in self._of_unit(unit):
                if variable.name == name or variable.name.endswith(f"::{name}"):
                    found.setdefault(variable.address, variable)
        whole = [each for each in found.values() if each.name == name]
        return whole or list(found.values())

    def _of_unit(self, unit: _Unit) -> Iterator[Variable]:
        scopes: list[str] = []
        declared: dict[int, tuple[str, int]] = {}  # by place: name and type
        placed: list[tuple[int, int]] = []  # address, and place of what declares it
        for entry in self._entries(unit.first, unit):
            del scopes[entry.depth :]
            own = entry.values.get(NAME)
            scopes.extend([""] * (entry.depth - len(scopes)))
            word = own.decode("utf-8", "replace") if isinstance(own, bytes) else ""
            scopes.append(word if entry.tag in _SCOPES else "")
            if entry.tag not in (_VARIABLE, MEMBER):
                continue
            name = "::".join([*filter(None, scopes[:-1]), word])
            declared[entry.at] = name, int(entry.values.get(TYPE, 0))
            address = self._address_of(entry.values.get(_LOCATION), unit)
            if address is not None:
                placed.append((address, int(entry.values.get(_SPECIFICATION, entry.at))))
        for address, at in placed:  # a declaration can come behind
            name, kind = declared.get(at, ("", 0))
            if name:
                yield Variable(name, address, kind)

    def _address_of(self, location: object, unit: _Unit) -> int | None:
        if not isinstance(location, bytes):
            return None
        if len(location) == 9 and location[0] == 0x03:
            return int(struct.unpack_from("<Q", location, 1)[0])
        if len(location) > 1 and location[0] == 0xA1:  # by a table
            index, end = _number(location, 1)
            at = self._base(unit)[1] + 8 * index
            if end == len(location) and at + 8 <= len(self._addresses):
                return int(struct.unpack_from("<Q", self._addresses, at)[0])
        return None

    def _candidates(self, name: bytes) -> list[_Unit]:
        """Units in which the name can occur."""
        places = set(_all_of(self._info, name + b"\0"))
        for at in _all_of(self._strings, name + b"\0"):
            places.update(_all_of(self._info, struct.pack("<I", at)))
        found = {bisect.bisect_right(self._starts, place) - 1 for place in places}
        if self._offsets:  # names by numbers: any unit can have it
            found.update(range(len(self._units)))
        return [self._units[number] for number in sorted(found) if number >= 0]

    # -- types ----------------------------------------------------------------------------------------------

    def entry(self, at: int) -> Entry:
        """The entry at a place; of names of types and what only qualifies a type the type itself. Raises ElfError."""
        for _ in range(32):
            unit = self._unit_of(at)
            found = next(self._entries(at, unit), None)
            if found is None:
                raise ElfError("a type that is none")
            if found.tag not in _QUALIFIED or TYPE not in found.values:
                return found
            at = found.values[TYPE]
        raise ElfError("a type that is made of itself")

    def children(self, of: Entry) -> Iterator[Entry]:
        """Those directly below an entry."""
        if of.has_children:
            entries = self._entries(of.at, self._unit_of(of.at))
            next(entries, None)
            for entry in entries:
                if entry.depth < 1:
                    return
                if entry.depth == 1:
                    yield entry

    # -- entries --------------------------------------------------------------------------------------------

    def _unit_of(self, at: int) -> _Unit:
        number = bisect.bisect_right(self._starts, at) - 1
        if number < 0 or not self._units[number].first <= at < self._units[number].end:
            raise ElfError("a reference to nothing")
        return self._units[number]

    def _headers(self) -> Iterator[_Unit]:
        at, info = 0, self._info
        while at + 12 <= len(info):
            length, version = struct.unpack_from("<IH", info, at)
            end = at + 4 + length
            if length >= 0xFFFFFFF0 or end > len(info) or length < 8:
                return
            if version == 5:
                kind, size, abbreviations = struct.unpack_from("<BBI", info, at + 6)
                first = at + 12 + {2: 12, 4: 8, 5: 8, 6: 12}.get(kind, 0)  # of types, and skeletons
            else:
                abbreviations, size = struct.unpack_from("<IB", info, at + 6)
                first = at + 11
            if 2 <= version <= 5 and size == 8 and first < end:
                yield _Unit(at, first, end, abbreviations)
            at = end

    def _entries(self, at: int, unit: _Unit) -> Iterator[Entry]:
        """All from there to the unit's end; the first one has depth 0."""
        forms, depth = self._forms_of(unit.abbreviations), 0
        while at < unit.end:
            start = at
            code, at = _number(self._info, at)
            if not code:
                depth -= 1
                if depth <= 0:
                    return
                continue
            self._left -= 1
            if self._left < 0:
                raise ElfError("too much debug information to look through")
            if code not in forms:
                raise ElfError("an entry of no known form")
            tag, has_children, attributes = forms[code]
            entry = Entry(start, depth, tag, has_children)
            for name, form, constant in attributes:
                value, at = self._value(form, at, unit, constant)
                if name in _PLACES and not isinstance(value, int):
                    raise ElfError("a reference that is none")
                entry.values[name] = value
            yield entry
            depth += has_children

    def _forms_of(self, at: int) -> dict[int, tuple[int, bool, list[tuple[int, int, int]]]]:
        """Tag, whether there are children, and attributes with their forms, by the code of an abbreviation."""
        if at in self._forms:
            return self._forms[at]
        found, data, place = {}, self._abbreviations, at
        while place < len(data):
            code, place = _number(data, place)
            if not code:
                break
            tag, place = _number(data, place)
            has_children, place = bool(_slice(data, place, 1)[0]), place + 1
            attributes = []
            while True:
                name, place = _number(data, place)
                form, place = _number(data, place)
                constant = 0
                if form == 0x21:
                    constant, place = _signed(data, place)
                if not name and not form:
                    break
                attributes.append((name, form, constant))
            found[code] = tag, has_children, attributes
        self._forms[at] = found
        return found

    def _value(self, form: int, at: int, unit: _Unit, constant: int) -> tuple[Any, int]:
        """The value of this form at a place, and where it ends. Raises ElfError."""
        info = self._info
        if form in _FIXED:
            size = _FIXED[form]
            number = int.from_bytes(_slice(info, at, size), "little")
            at += size
        elif form in _LEB:
            number, at = _number(info, at)
        elif form == 0x0D:
            return _signed(info, at)
        elif form == 0x21:
            return constant, at
        elif form == 0x19:
            return 1, at
        elif form == 0x1E:
            return _slice(info, at, 16), at + 16
        elif form == 0x08:
            text = _text(info, at)
            return text, at + len(text) + 1
        elif form in (0x09, 0x18):
            size, at = _number(info, at)
            return _slice(info, at, size), at + size
        elif form in _BLOCKS:
            width = struct.calcsize(_BLOCKS[form])
            size = int.from_bytes(_slice(info, at, width), "little")
            return _slice(info, at + width, size), at + width + size
        elif form == 0x16:
            form, at = _number(info, at)
            if form == 0x16:
                raise ElfError("a form that is none")
            return self._value(form, at, unit, constant)
        else:
            raise ElfError(f"debug information of form {form:#x}")
        return self._meaning(form, number, unit), at

    def _meaning(self, form: int, number: int, unit: _Unit) -> Any:
        if form in _OF_UNIT:
            return unit.start + number
        if form == 0x0E:
            return _text(self._strings, number)
        if form == 0x1F:
            return _text(self._line_strings, number)
        if form in (0x1A, 0x25, 0x26, 0x27, 0x28):
            at = self._base(unit)[0] + 4 * number
            return _text(self._strings, int.from_bytes(_slice(self._offsets, at, 4), "little"))
        return number

    def _base(self, unit: _Unit) -> tuple[int, int]:
        """Where the unit's strings and addresses begin in their tables."""
        if unit.start not in self._bases:
            self._bases[unit.start] = 8, 8  # while its own first entry is read
            first = next(self._entries(unit.first, unit), None)
            values = first.values if first is not None else {}
            self._bases[unit.start] = int(values.get(_STRINGS_BASE, 8)), int(values.get(_ADDRESSES_BASE, 8))
        return self._bases[unit.start]


def _all_of(data: bytes, what: bytes) -> list[int]:
    found: list[int] = []
    at = data.find(what)
    while at >= 0 and len(found) < _MOST_PLACES:
        found.append(at)
        at = data.find(what, at + 1)
    return found


def _slice(data: bytes, at: int, size: int) -> bytes:
    if not 0 <= at <= at + size <= len(data):
        raise ElfError("debug information that ends too early")
    return data[at : at + size]


def _text(data: bytes, at: int) -> bytes:
    end = data.find(b"\0", at, at + 65536)
    if not 0 <= at <= end:
        raise ElfError("a name without an end")
    return data[at:end]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of variable length (LEB128), and where it ends."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ElfError("a number without an end")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    begin = at
    number, at = _number(data, at)
    bits = 7 * (at - begin)
    return number - (1 << bits) if number >> (bits - 1) & 1 else number, at
