"""Names of Rust's newer mangling, `_R...`: https://doc.rust-lang.org/rustc/symbol-mangling/v0.html.

Paths and their generic types are read; of what stands for a constant or a function's type only `_` is shown.
"""

from __future__ import annotations

from collections.abc import Callable

_MOST_STEPS, _MOST_CHARACTERS = 150, 2000
"""Of one name: what refers back to itself has no end."""

_BASIC = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8", "i": "isize", "j": "usize",
    "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_", "s": "i16", "t": "u16", "u": "()", "v": "...",
    "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class _NotRead(Exception):
    """It is no such name, or has what is not read here."""


def rust_name(mangled: str) -> str:
    """`mycrate::foo` of `_RNvCs1234_7mycrate3foo`; any other name as it is."""
    if not mangled.startswith("_R") or not mangled.isascii():
        return mangled
    try:
        return _Reader(mangled[2:].partition(".")[0]).path()
    except (_NotRead, IndexError, ValueError):
        return mangled


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._steps = text, 0, 0

    def path(self) -> str:
        """A crate, what is nested in a path, an implementation, or a path with generic arguments."""
        tag = self._next()
        if tag == "C":
            return self._identifier()
        if tag == "N":
            space, outer = self._next(), self.path()
            inner = self._identifier()
            if space.isupper():
                kind = {"C": "closure", "S": "shim"}.get(space, space)
                inner = f"{{{kind}{':' if inner else ''}{inner}}}"
            return self._bounded(f"{outer}::{inner}" if inner else outer)
        if tag in "MX":
            self._disambiguator()
            self.path()
            return self._implementation(tag)
        if tag == "Y":
            return self._implementation("X")
        if tag == "I":
            return self._bounded(f"{self.path()}<{self._list(self._argument)}>")
        if tag == "B":
            return self._back(self.path)
        raise _NotRead

    def _implementation(self, tag: str) -> str:
        self_type = self._type()
        return self._bounded(f"<{self_type}>" if tag == "M" else f"<{self_type} as {self.path()}>")

    def _argument(self) -> str:
        if self._takes("L"):
            self._number()
            return "'_"
        return self._constant() if self._takes("K") else self._type()

    def _constant(self) -> str:
        if self._takes("B"):
            return self._back(self._constant)
        if self._next() != "p":
            self._at = self._text.index("_", self._at) + 1
        return "_"

    def _type(self) -> str:
        tag = self._next()
        if tag in _BASIC:
            return _BASIC[tag]
        if tag in "RQ":
            if self._takes("L"):
                self._number()
            return f"&{'mut ' if tag == 'Q' else ''}{self._type()}"
        if tag in "PO":
            return f"*{'const' if tag == 'P' else 'mut'} {self._type()}"
        if tag == "S":
            return f"[{self._type()}]"
        if tag == "A":
            return f"[{self._type()}; {self._constant()}]"
        if tag == "T":
            return f"({self._list(self._type)})"
        if tag == "B":
            return self._back(self._type)
        self._at -= 1
        return self.path()

    def _list(self, read: Callable[[], str]) -> str:
        found = []
        while not self._takes("E"):
            found.append(read())
        return self._bounded(", ".join(found))

    def _back(self, read: Callable[[], str]) -> str:
        start = self._at - 1
        place = self._number()
        if place >= start:
            raise _NotRead
        here, self._at = self._at, place
        found = read()
        self._at = here
        return found

    def _identifier(self) -> str:
        self._disambiguator()
        if self._takes("u"):
            raise _NotRead  # letters beyond ASCII
        start = self._at
        while self._text[self._at].isdigit() and not (self._at > start and self._text[start] == "0"):
            self._at += 1
        length = int(self._text[start : self._at])
        self._takes("_")
        found = self._text[self._at : self._at + length]
        if len(found) != length:
            raise _NotRead
        self._at += length
        return found

    def _disambiguator(self) -> None:
        if self._takes("s"):
            self._number()

    def _number(self) -> int:
        """In base 62, one more than what is written, and 0 for nothing."""
        end = self._text.index("_", self._at)
        digits, self._at = self._text[self._at : end], end + 1
        if len(digits) > 10:
            return 1 << 62
        value = 0
        for digit in digits:
            value = value * 62 + _DIGITS.index(digit)
        return value + 1 if digits else 0

    def _takes(self, letter: str) -> bool:
        if self._text[self._at : self._at + 1] != letter:
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _NotRead
        self._at += 1
        return self._text[self._at - 1]

    def _bounded(self, text: str) -> str:
        if len(text) > _MOST_CHARACTERS:
            raise _NotRead
        return text
