"""What the kernel has read of an exception of C++, and its name."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condor_joblens.profiling.exception_types import CxxException, has_text, type_name

TOLD = struct.Struct("<5Q128s128s256sII")


def told(name: bytes, bases: tuple[bytes, ...] = (), text: bytes | None = None) -> bytes:
    packed = b"".join(base.ljust(32, b"\0") for base in bases).ljust(128, b"\0")
    return TOLD.pack(1, 2, 0, 0, 0, name, packed, text or b"", text is not None, 0)


def test_an_exception_of_the_library_has_its_text() -> None:
    assert CxxException.unpacked(told(b"St13runtime_error", text=b"so it is\0rest")) == CxxException(
        ("St13runtime_error",), "so it is"
    )


def test_a_type_that_is_made_of_one_with_a_text_has_it() -> None:
    found = CxxException.unpacked(told(b"4Mine", (b"St12out_of_range", b"St11logic_error", b"St9exception"), b"7"))
    assert found == CxxException(("4Mine", "St12out_of_range", "St11logic_error", "St9exception"), "7")


def test_what_lies_in_any_other_type_is_no_text() -> None:
    found = CxxException.unpacked(told(b"4Mine", (b"St9exception",), b"of no use"))
    assert found is not None and found.text is None
    found = CxxException.unpacked(told(b"St13runtime_error"))
    assert found is not None and found.text is None, "it was not in memory"


def test_without_its_name_nothing_is_said() -> None:
    assert CxxException.unpacked(told(b"", (b"St13runtime_error",), b"text")) is None
    assert CxxException.unpacked(b"") is None


@given(st.binary(max_size=700))
def test_anything_else_does_no_harm(data: bytes) -> None:
    found = CxxException.unpacked(data)
    assert found is None or found.names


@pytest.mark.parametrize(
    ("mangled", "name"),
    [("i", "int"), ("St13runtime_error", "std::runtime_error"), ("*N4work7FailureE", "work::Failure"), ("?", "?")],
)
def test_types_as_their_author_wrote_them(mangled: str, name: str) -> None:
    assert type_name(mangled) == name


def test_which_types_have_a_text() -> None:
    assert has_text(["4Mine", "St11logic_error"]) and not has_text(["St9exception"]) and not has_text([])
