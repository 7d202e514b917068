"""Types of C++ exceptions as their authors wrote them, and which of them have a text at a known place."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from condor_joblens.profiling.demangle import demangled

MOST_NAME = 300
"""Characters of a type that are told."""

_WITH_TEXT = frozenset({"St13runtime_error", "St11logic_error"})
"""Mangled names of the types that have a text at a known place, and so have all that are made of them alone."""

_TOLD = struct.Struct("<5Q128s32s32s32s32s256sI4x")
"""struct cxx_exception of joblens_exceptions.h."""


@dataclass(frozen=True)
class CxxException:
    """What was read of an exception: of anything that was not in memory it has nothing."""

    names: tuple[str, ...]  # mangled: its type, and those that it is made of
    text: str | None  # what() says, if it is known

    @classmethod
    def unpacked(cls, told: bytes) -> CxxException | None:
        """As the kernel has told it; None if its type is not known."""
        if len(told) < _TOLD.size:
            return None
        fields = _TOLD.unpack_from(told)
        texts = [each.partition(b"\0")[0].decode("utf-8", "replace") for each in fields[5:11]]
        names, is_text = tuple(name for name in texts[:5] if name), fields[11] and has_text(texts[:5])
        return cls(names, texts[5] if is_text else None) if texts[0] else None


def has_text(names: Iterable[str]) -> bool:
    """Whether a type has a text at a known place; `names` are its mangled name and those that it is made of."""
    return not _WITH_TEXT.isdisjoint(names)


def type_name(mangled: str, demangle: Callable[[str], str] = demangled) -> str:
    """`std::runtime_error` of `St13runtime_error`; what can't be read stays as it is."""
    mangled = mangled.removeprefix("*")  # of a type that other files of the program do not know
    written = demangle(f"_ZTI{mangled}").removeprefix("typeinfo for ")
    return mangled[:MOST_NAME] if written == f"_ZTI{mangled}" else written[:MOST_NAME]
