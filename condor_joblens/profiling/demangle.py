"""Names of C++ and Rust as their authors wrote them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache

from condor_joblens.profiling.rust_names import rust_name

LONGEST = 4096
"""Longer names stay as they are: the library that reads them is not made for an enemy's."""

_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_RUST_SIGNS = {
    "$SP$": "@", "$BP$": "*", "$RF$": "&", "$LT$": "<", "$GT$": ">", "$LP$": "(", "$RP$": ")", "$C$": ",",
    "..": "::",
}  # fmt: skip
_RUST_SIGN = re.compile(r"\$(?:SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$|\.\.")


def demangled(name: str) -> str:
    """`Tree::Fill(int)` of `_ZN4Tree4FillEi`; any other name as it is. Rust has two manglings; one looks like C++'s."""
    if name.startswith("_R") and len(name) <= LONGEST:
        return rust_name(name)
    if not name.startswith("_Z") or len(name) > LONGEST:
        return name
    found = _demangler()(name.encode("utf-8", "replace"))
    if found is None:
        return name
    text = found.decode("utf-8", "replace")
    return _rust(text) if _RUST_HASH.search(text) else text


def warm_up() -> None:
    """Loads what is needed of libraries."""
    demangled("_ZN4Tree4FillEi")


def _rust(text: str) -> str:
    """`<alloc::vec::Vec<T> as core::fmt::Debug>::fmt`, without the hash at the end."""
    parts = [part.removeprefix("_") if part.startswith("_$") else part for part in _RUST_HASH.sub("", text).split("::")]
    return "::".join(_RUST_SIGN.sub(_sign, part) for part in parts)


def _sign(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in _RUST_SIGNS:
        return _RUST_SIGNS[sign]
    number = int(sign[2:-1], 16)
    return chr(number) if number < 0x110000 and chr(number).isprintable() else sign


@cache
def _demangler() -> Callable[[bytes], bytes | None]:
    """The C++ library's own; HTCondor needs that library, so it is on every node. Without it names stay as they are."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        libc = ctypes.CDLL(None)
    except OSError:
        return lambda name: None
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    libc.free.argtypes = [ctypes.c_void_p]

    def demangle(name: bytes) -> bytes | None:
        found = library.__cxa_demangle(name, None, None, None)
        if not found:
            return None
        text = ctypes.string_at(found)
        libc.free(found)
        return text

    return demangle
