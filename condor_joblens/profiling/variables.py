"""What a variable holds, by its type: members and elements are followed, and values are made text for people."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Optional, Union

from condor_joblens.profiling import dwarf
from condor_joblens.profiling.dwarf import Dwarf, Entry
from condor_joblens.profiling.elf import ElfError

MOST_MEMBERS, MOST_ELEMENTS, MOST_TEXT = 32, 16, 200
"""That are shown."""

MOST_DEEP = 3  # structures in one another

Read = Callable[[int, int], bytes]
"""Bytes of the process at an address; fewer than were asked for if they are not resident."""


class NotResident(Exception):
    """It would have to be read from a disk or a server first, or nothing is there."""


class NoSuchPart(Exception):
    """What of the written name can't be followed, in words."""


class Reader:
    """Of one process and one file."""

    def __init__(self, information: Dwarf, read: Read) -> None:
        self._dwarf, self._read = information, read

    def value(self, address: int, kind: int, steps: Sequence[Union[str, int]]) -> tuple[str, str]:
        """Type and value at an address, after these steps. Raises NotResident, NoSuchPart and ElfError."""
        entry = self._dwarf.entry(kind)
        for step in steps:
            address, entry = self._follow(address, entry, step)
        return self._name(entry), self._shown(address, entry, 0)

    def _follow(self, address: int, entry: Entry, step: Union[str, int]) -> tuple[int, Entry]:
        is_element = isinstance(step, int)
        if entry.tag in dwarf.POINTERS and (not is_element or entry.tag != dwarf.POINTER):
            address, entry = self._target(address, entry)
        if isinstance(step, str):
            found = self._member(entry, step, address, 0)
            if found is None:
                raise NoSuchPart(f"{self._name(entry)} has no member {step}{self._members(entry)}")
            return found
        if entry.tag == dwarf.POINTER:
            address, target = self._target(address, entry)
            return address + step * self._size(target), target
        if entry.tag != dwarf.ARRAY:
            raise NoSuchPart(f"{self._name(entry)} has no elements")
        count, element = self._count(entry), self._dwarf.entry(entry.values[dwarf.TYPE])
        if count is not None and step >= count:
            raise NoSuchPart(f"it has {count} elements: the last one is {count - 1}")
        return address + step * self._size(element), element

    def _target(self, address: int, entry: Entry) -> tuple[int, Entry]:
        (target,) = struct.unpack("<Q", self._bytes(address, 8))
        if not target:
            raise NoSuchPart("it is NULL")
        if dwarf.TYPE not in entry.values:
            raise NoSuchPart("what it points to has no type")
        return target, self._dwarf.entry(entry.values[dwarf.TYPE])

    def _member(self, entry: Entry, name: str, address: int, depth: int) -> Optional[tuple[int, Entry]]:
        for child in self._dwarf.children(entry):
            place = child.values.get(dwarf.OFFSET, 0)
            if child.tag not in (dwarf.MEMBER, dwarf.INHERITANCE) or not isinstance(place, int):
                continue
            if dwarf.TYPE not in child.values or child.values.get(dwarf.DECLARATION):
                continue
            own = child.values.get(dwarf.NAME)
            if child.tag == dwarf.MEMBER and own == name.encode():
                if dwarf.BIT_SIZE in child.values:
                    raise NoSuchPart(f"{name} is a part of a number (a bit field)")
                return address + place, self._dwarf.entry(child.values[dwarf.TYPE])
            if own is None and depth < MOST_DEEP:  # a base, or a structure without a name
                found = self._member(self._dwarf.entry(child.values[dwarf.TYPE]), name, address + place, depth + 1)
                if found is not None:
                    return found
        return None

    def _members(self, entry: Entry) -> str:
        names = [_word(child.values.get(dwarf.NAME)) for child in self._dwarf.children(entry)]
        known = ", ".join(list(filter(None, names))[:MOST_ELEMENTS])
        return f": it has {known}" if known else ""

    # -- sizes and values -----------------------------------------------------------------------------------

    def _size(self, entry: Entry) -> int:
        if entry.tag in dwarf.POINTERS:
            return 8
        if entry.tag == dwarf.ARRAY and dwarf.SIZE not in entry.values:
            return (self._count(entry) or 0) * self._size(self._dwarf.entry(entry.values[dwarf.TYPE]))
        return entry.number(dwarf.SIZE)

    def _count(self, entry: Entry) -> Optional[int]:
        for child in self._dwarf.children(entry):
            if child.tag == dwarf.RANGE:
                if isinstance(child.values.get(dwarf.COUNT), int):
                    return int(child.values[dwarf.COUNT])
                if isinstance(child.values.get(dwarf.UPPER), int):
                    return int(child.values[dwarf.UPPER]) + 1
        return None

    def _shown(self, address: int, entry: Entry, depth: int) -> str:
        if entry.tag == dwarf.BASE:
            size = self._size(entry)
            return number(self._bytes(address, size), entry.number(dwarf.ENCODING))
        if entry.tag in dwarf.POINTERS:
            return self._pointer(address, entry)
        if entry.tag == dwarf.ENUM:
            return self._enumerator(address, entry)
        if entry.tag == dwarf.ARRAY:
            return self._array(address, entry, depth)
        if entry.tag in dwarf.STRUCTURES:
            return self._structure(address, entry, depth)
        raise NoSuchPart("its type can't be shown")

    def _pointer(self, address: int, entry: Entry) -> str:
        (target,) = struct.unpack("<Q", self._bytes(address, 8))
        if target and entry.tag == dwarf.POINTER and self._is_text(entry):
            return self._text(target)
        return f"{target:#x}" if target else "NULL"

    def _is_text(self, entry: Entry) -> bool:
        if dwarf.TYPE not in entry.values:
            return False
        target = self._dwarf.entry(entry.values[dwarf.TYPE])
        return target.tag == dwarf.BASE and target.values.get(dwarf.ENCODING) in dwarf.CHARACTERS

    def _text(self, address: int) -> str:
        found = self._read(address, MOST_TEXT)
        if not found:
            return f"{address:#x} (not resident)"
        text, end, _ = found.partition(b"\0")
        return f'"{text.decode("utf-8", "backslashreplace")}"' + ("" if end else "...")

    def _enumerator(self, address: int, entry: Entry) -> str:
        data = self._bytes(address, self._size(entry))
        values = int.from_bytes(data, "little"), int.from_bytes(data, "little", signed=True)
        for child in self._dwarf.children(entry):
            if child.tag == dwarf.ENUMERATOR and child.values.get(dwarf.CONST_VALUE) in values:
                return f"{_word(child.values.get(dwarf.NAME))} ({values[1]})"
        return str(values[1])

    def _array(self, address: int, entry: Entry, depth: int) -> str:
        count, element = self._count(entry) or 0, self._dwarf.entry(entry.values[dwarf.TYPE])
        if element.tag == dwarf.BASE and element.values.get(dwarf.ENCODING) in dwarf.CHARACTERS:
            text, _, _ = self._bytes(address, min(count, MOST_TEXT)).partition(b"\0")
            return f'"{text.decode("utf-8", "backslashreplace")}"' + ("..." if len(text) == MOST_TEXT else "")
        if depth >= MOST_DEEP:
            return "{...}"
        size = self._size(element)
        shown = [self._shown(address + at * size, element, depth + 1) for at in range(min(count, MOST_ELEMENTS))]
        return f"{{{', '.join([*shown, *(['...'] if count > MOST_ELEMENTS else [])])}}}"

    def _structure(self, address: int, entry: Entry, depth: int) -> str:
        if entry.values.get(dwarf.DECLARATION):
            raise NoSuchPart(f"{self._name(entry)} is declared here alone, so that nothing is known of its members")
        if depth >= MOST_DEEP:
            return "{...}"
        shown: list[str] = []
        for child in self._dwarf.children(entry):
            if child.tag not in (dwarf.MEMBER, dwarf.INHERITANCE) or child.values.get(dwarf.DECLARATION):
                continue
            if len(shown) >= MOST_MEMBERS:
                shown.append("...")
                break
            shown.append(self._part(address, child, depth))
        return f"{{{', '.join(shown)}}}"

    def _part(self, address: int, child: Entry, depth: int) -> str:
        """A member, or what a class has from another one."""
        name, place = _word(child.values.get(dwarf.NAME)), child.values.get(dwarf.OFFSET, 0)
        kind = self._dwarf.entry(child.values[dwarf.TYPE]) if dwarf.TYPE in child.values else None
        if not name:
            name = self._name(kind) if kind is not None and child.tag == dwarf.INHERITANCE else "(without a name)"
        if kind is None or dwarf.BIT_SIZE in child.values or not isinstance(place, int):
            return f"{name} = (not shown)"
        try:
            return f"{name} = {self._shown(address + place, kind, depth + 1)}"
        except NoSuchPart:
            return f"{name} = (not shown)"

    def _bytes(self, address: int, size: int) -> bytes:
        """Raises NotResident and ElfError."""
        if not 0 < size <= 4096:
            raise ElfError("a type of no size that can be read")
        found = self._read(address, size) if 0 < address < 1 << 63 else b""
        if len(found) < size:
            raise NotResident
        return found

    def _name(self, entry: Entry) -> str:
        """`int`, `State`, `char *`, `double[10]`."""
        if entry.tag in dwarf.POINTERS or entry.tag == dwarf.ARRAY:
            inner = self._dwarf.entry(entry.values[dwarf.TYPE]) if dwarf.TYPE in entry.values else None
            is_simple = inner is not None and inner.tag not in dwarf.POINTERS and inner.tag != dwarf.ARRAY
            name = self._name(inner) if inner is not None and is_simple else ("void" if inner is None else "...")
            if entry.tag == dwarf.ARRAY:
                count = self._count(entry)
                return f"{name}[{'' if count is None else count}]"
            return f"{name} {'*' if entry.tag == dwarf.POINTER else '&'}"
        return _word(entry.values.get(dwarf.NAME)) or "(a type without a name)"


def number(data: bytes, encoding: int) -> str:
    """What these bytes are as a number of DWARF's `encoding`."""
    if encoding == dwarf.FLOATING and len(data) in (4, 8):
        return repr(struct.unpack("<f" if len(data) == 4 else "<d", data)[0])
    if encoding == dwarf.BOOLEAN:
        return "true" if any(data) else "false"
    if len(data) > 8 or encoding == dwarf.FLOATING:
        return f"0x{data[::-1].hex()}"
    return str(int.from_bytes(data, "little", signed=encoding in dwarf.SIGNED))


def _word(name: object) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else ""
