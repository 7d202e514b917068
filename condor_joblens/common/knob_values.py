"""How the value of one knob is read. Each raises ValueError that says what would be right."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from condor_joblens.model.levels import CHOICES, Level, parse_level


def number(low: float, high: float) -> Callable[[str], float]:
    """Reads a number within these bounds."""

    def parse(value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return number

    return parse


def integer(low: int, high: int) -> Callable[[str], int]:
    """Reads a whole number within these bounds."""

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return number

    return parse


def boolean(value: str) -> bool:
    """Reads true or false, as HTCondor writes it."""
    word = value.strip('"').lower()
    if word in ("true", "t", "yes", "1"):
        return True
    if word in ("false", "f", "no", "0"):
        return False
    raise ValueError("true or false")


def one_of(*words: str) -> Callable[[str], str]:
    """Reads one of these words, which are in lower case; the value may be quoted."""

    def parse(value: str) -> str:
        word = value.strip('"').lower()
        if word not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return word

    return parse


def level(value: str) -> Level:
    """A level by its name or number; it may be quoted."""
    try:
        return parse_level(value.strip('"'))
    except ValueError:
        raise ValueError(f"one of {CHOICES}") from None


def path(value: str) -> str:
    """An absolute path, normalised."""
    if not os.path.isabs(value) or "\0" in value:
        raise ValueError("an absolute path")
    return os.path.normpath(value)


def path_or_none(value: str) -> str:
    """The same, or nothing."""
    return path(value) if value else ""


def paths(value: str) -> tuple[str, ...]:
    """Absolute paths, separated by space or comma."""
    return tuple(path(part) for part in value.replace(",", " ").split())


def names(value: str) -> tuple[str, ...]:
    """Names of letters and digits in lower case, separated by space or comma."""
    found = tuple(part.lower() for part in value.replace(",", " ").split())
    if not all(part.isalnum() for part in found):
        raise ValueError("a list of names")
    return found


def page(value: str) -> str:
    """The address of a web site, without a / at its end; or nothing. Raises ValueError."""
    if value and not re.fullmatch(r"https?://[\w.\-\[\]:]{1,255}(/[\w.~/\-]{0,255})?", value, re.ASCII):
        raise ValueError("an address that begins with https://")
    return value.rstrip("/")


def address(value: str) -> str:
    """HOST:PORT. Raises ValueError that says what would be right."""
    host, colon, port = value.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
        raise ValueError("HOST:PORT, e.g. 127.0.0.1:9753")
    return value
