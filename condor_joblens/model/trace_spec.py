"""What is to be traced, as a person writes it: `FILE:FUNCTION`, with the types of what is to be shown.

`myprog:fit`, `libXrdCl.so*:*Open*`, `myprog:fit(int, char*) -> double*`; or `throws`: all exceptions of C++; or
`bash`: the commands of bash scripts.
"""

from __future__ import annotations

import enum
import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass

MOST_TEXT = 1000
MOST_ARGUMENTS = 6
"""As many are in registers."""

MOST_TEXTS = 2

SHELL = "bash"
"""The commands that bash executes, instead of functions."""

_SHELL_FUNCTION = "execute_command_internal"

THROWS = "throws"
_THROWS = "libstdc++.so*:__cxa_throw"
"""The function that throws is in the C++ library. A program that has it in itself is `FILE:__cxa_throw`."""


class Kind(enum.Enum):
    """How a register is shown."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    BOOLEAN = "boolean"
    ADDRESS = "address"
    TEXT = "text"
    FLOATING = "floating"
    """In a register that nobody is given."""


@dataclass(frozen=True)
class Type:
    """A simple type of C."""

    name: str
    kind: Kind
    bits: int = 64


_NUMBERS = {
    "char": (Kind.SIGNED, 8), "signed char": (Kind.SIGNED, 8), "unsigned char": (Kind.UNSIGNED, 8),
    "short": (Kind.SIGNED, 16), "unsigned short": (Kind.UNSIGNED, 16),
    "int": (Kind.SIGNED, 32), "unsigned": (Kind.UNSIGNED, 32), "unsigned int": (Kind.UNSIGNED, 32),
    "long": (Kind.SIGNED, 64), "unsigned long": (Kind.UNSIGNED, 64), "long long": (Kind.SIGNED, 64),
    "unsigned long long": (Kind.UNSIGNED, 64), "size_t": (Kind.UNSIGNED, 64), "ssize_t": (Kind.SIGNED, 64),
    "off_t": (Kind.SIGNED, 64), "bool": (Kind.BOOLEAN, 8), "float": (Kind.FLOATING, 32),
    "double": (Kind.FLOATING, 64), "int8_t": (Kind.SIGNED, 8), "int16_t": (Kind.SIGNED, 16),
    "int32_t": (Kind.SIGNED, 32), "int64_t": (Kind.SIGNED, 64), "uint8_t": (Kind.UNSIGNED, 8),
    "uint16_t": (Kind.UNSIGNED, 16), "uint32_t": (Kind.UNSIGNED, 32), "uint64_t": (Kind.UNSIGNED, 64),
}  # fmt: skip

_TEXT = re.compile(r"(?:const )?char(?: const)? ?\*")
_ADDRESS = re.compile(r"[A-Za-z_][A-Za-z0-9_:<>, ]* ?[*&]+")


class SpecError(ValueError):
    """Why this can't be traced, in words for whoever wrote it."""


@dataclass(frozen=True)
class Spec:
    """Functions of files, and what is shown of their calls."""

    file: str  # a pattern, of a path if there is a slash in it, else of the last part of a path
    function: str  # a pattern of a name without its parameters
    arguments: tuple[Type, ...] | None = None
    result: Type | None = None

    def is_file(self, path: str) -> bool:
        """Whether it means the file with this path."""
        return fnmatch.fnmatchcase(path if "/" in self.file else path.rpartition("/")[2], self.file)

    def is_function(self, name: str) -> bool:
        """Whether it means the function with this name, as C++ writes it."""
        return fnmatch.fnmatchcase(without_parameters(name), self.function)

    @property
    def is_of_throws(self) -> bool:
        """Whether what is thrown is shown, and not calls."""
        return self.function == "__cxa_throw"

    @property
    def is_of_shell(self) -> bool:
        """Whether the commands of a shell are shown, and not calls."""
        return self.function == _SHELL_FUNCTION

    @property
    def registers(self) -> tuple[Type, ...]:
        """The types of the arguments that are in registers for integers, in order."""
        return tuple(each for each in self.arguments or () if each.kind is not Kind.FLOATING)[:MOST_ARGUMENTS]

    @property
    def texts(self) -> int:
        """A bit for each of these registers that is the address of a text."""
        return sum(1 << at for at, each in enumerate(self.registers) if each.kind is Kind.TEXT)


def parse(text: str) -> Spec:
    """The SPEC that a person writes. Raises SpecError."""
    if text.strip() == THROWS:
        text = _THROWS
    if text.strip() == SHELL:
        text = f"{SHELL}:{_SHELL_FUNCTION}"
    if len(text) > MOST_TEXT or not text.isprintable():
        raise SpecError(f"write FILE:FUNCTION in at most {MOST_TEXT} characters that can be printed")
    file, colon, rest = text.strip().partition(":")
    if not colon or not file or not rest or rest.startswith(":"):
        raise SpecError("write FILE:FUNCTION, for example myprog:fit or 'libm.so*:pow'")
    head, arrow, result = rest.rpartition("->")
    signature = (head if arrow else rest).strip()
    name, parenthesis, parameters = signature.partition("(")
    if not name.strip() or (parenthesis and not parameters.rstrip().endswith(")")):
        raise SpecError("write the types of arguments in parentheses after the function, for example fit(int, char*)")
    arguments = _types(parameters.rstrip()[:-1]) if parenthesis else None
    if name.strip() == "__cxa_throw" and (parenthesis or arrow):
        raise SpecError("what is thrown has no arguments to show: write throws, or FILE:__cxa_throw")
    if name.strip() == _SHELL_FUNCTION and (parenthesis or arrow):
        raise SpecError(f"a shell's commands have no types: write bash, or FILE:{_SHELL_FUNCTION}")
    spec = Spec(file, name.strip(), arguments, parse_type(result) if arrow else None)
    if spec.result is not None and spec.result.kind in (Kind.FLOATING, Kind.TEXT):
        raise SpecError(f"a result of the type {spec.result.name} can't be shown: leave out what follows ->")
    if bin(spec.texts).count("1") > MOST_TEXTS:
        raise SpecError(f"at most {MOST_TEXTS} arguments are shown as text: write void* for the others")
    return spec


def parse_type(text: str) -> Type:
    """A simple type. Raises SpecError."""
    name = " ".join(text.split())
    if _TEXT.fullmatch(name):
        return Type(name, Kind.TEXT)
    if _ADDRESS.fullmatch(name):
        return Type(name, Kind.ADDRESS)
    if name in _NUMBERS:
        kind, bits = _NUMBERS[name]
        return Type(name, kind, bits)
    raise SpecError(f"{name[:60] or 'nothing'} is no type that can be shown: write int, long, bool, char*, void* ...")


def _types(text: str) -> tuple[Type, ...]:
    if text.strip() in ("", "void"):
        return ()
    found = tuple(parse_type(part) for part in text.split(","))
    integers = [each for each in found if each.kind is not Kind.FLOATING]
    if len(integers) > MOST_ARGUMENTS:
        raise SpecError(f"at most {MOST_ARGUMENTS} arguments are in registers: leave out those that follow")
    return found


def without_parameters(name: str) -> str:
    """`Tree::Fill` of `Tree::Fill(int) const`; `(anonymous namespace)::f` and `operator()` keep their parentheses."""
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        if name[at] == ")":
            depth += 1
        elif name[at] == "(":
            depth -= 1
            if depth == 0:
                rest = name[name.rindex(")") + 1 :].strip()
                is_parameters = rest in ("", "const", "volatile", "&", "&&", "const &", "const &&")
                return name[:at] if is_parameters and at > 0 and not name[:at].endswith("operator") else name
    return name


def shown(kind: Type, value: int, texts: Mapping[int, str], at: int) -> str:
    """What a register holds, for people; `texts` are those that were read, by the number of the register."""
    if kind.kind is Kind.TEXT:
        if value == 0:
            return "NULL"
        return texts.get(at, f"{value:#x} (not resident)")
    if kind.kind is Kind.ADDRESS:
        return "NULL" if value == 0 else f"{value:#x}"
    value &= (1 << kind.bits) - 1
    if kind.kind is Kind.BOOLEAN:
        return "true" if value else "false"
    if kind.kind is Kind.SIGNED and value >> (kind.bits - 1):
        value -= 1 << kind.bits
    return str(value)
