"""Parsers of what sinks' knobs have in common. Each raises ValueError that says what would be right."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from condor_joblens.common.errors import JobLensError
from condor_joblens.sinks import server_diagnosis


def text(value: str) -> str:
    """Anything, as it stands."""
    return value


def integer(low: int, high: int) -> Callable[[str], int]:
    """A whole number within bounds."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", value) or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def choice(*words: str) -> Callable[[str], str]:
    """One of some words, in any case; returned as it is written here."""

    def parse(value: str) -> str:
        for word in words:
            if value.lower() == word.lower():
                return word
        raise ValueError(f"one of {', '.join(words)}")

    return parse


def some_of(*words: str) -> Callable[[str], tuple[str, ...]]:
    """Some of these words, in any case; nothing: none. In the order in which they are written here."""

    def parse(value: str) -> tuple[str, ...]:
        given = set(value.replace(",", " ").lower().split())
        if given - set(words):
            raise ValueError(f"some of {', '.join(words)}")
        return tuple(word for word in words if word in given)

    return parse


def file(value: str) -> str:
    """The absolute path of a file, or nothing."""
    if value and (not os.path.isabs(value) or "\0" in value):
        raise ValueError("the absolute path of a file")
    return value


def servers(port: int) -> Callable[[str], tuple[str, ...]]:
    """Some HOST:PORT, or HOST where the port is the usual one."""

    def parse(value: str) -> tuple[str, ...]:
        found = tuple(value.replace(",", " ").split())
        try:
            pairs = [server_diagnosis.split(address, port) for address in found]
        except JobLensError as error:
            raise ValueError(f"HOST:PORT, or several of them with commas between: {error}") from None
        if not pairs:
            raise ValueError("HOST:PORT, or several of them with commas between")
        return tuple(f"[{host}]:{number}" if ":" in host else f"{host}:{number}" for host, number in pairs)

    return parse


def urls(value: str) -> tuple[str, ...]:
    """Some http:// or https:// addresses, without a user or password in them (those would stand in every log)."""
    found = tuple(address.rstrip("/") for address in value.replace(",", " ").split())
    for address in found:
        if not re.fullmatch(r"https?://(\[[0-9a-fA-F:.]+\]|[^\s/@:?#\[\]]+)(:\d{1,5})?(/[^\s@?#]*)?", address):
            raise ValueError("http://HOST:PORT or https://HOST:PORT, without a user in it")
    if not found:
        raise ValueError("http://HOST:PORT or https://HOST:PORT")
    return found


def index(value: str) -> str:
    """What an index of OpenSearch may be called."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,100}", value):
        raise ValueError("a name: small letters, digits, . _ and -, a letter or digit first")
    return value
