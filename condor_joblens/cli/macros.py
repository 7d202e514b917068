"""HTCondor's configuration with where each value comes from, as `condor_config_val` tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from condor_joblens.cli.commands import ask

OURS = "JOBLENS_.*"
"""Names of the macros that are, or should be, knobs of ours."""


@dataclass(frozen=True)
class Macro:
    """One macro, expanded."""

    value: str
    source: str  # `/etc/condor/config.d/x.conf, line 3`, `<Environment>`, `<Default>`


def arguments(pattern: str) -> list[str]:
    """What makes condor_config_val print the macros whose names match the regular expression, for `parse`."""
    return ["-dump", "-verbose", "-expanded", f"^({pattern})$"]


def read() -> dict[str, Macro]:
    """Our macros by their names in upper case. Raises JobLensError where HTCondor can't be asked."""
    return parse(ask("condor_config_val", *arguments(OURS)))


def parse(dump: str) -> dict[str, Macro]:
    """The macros in what `condor_config_val -dump -verbose -expanded` prints.

    A value of several lines keeps its first one only: none that we read has more.
    """
    macros: dict[str, Macro] = {}
    name = ""
    for line in dump.splitlines():
        key, equals, value = line.partition(" = ")
        if line.startswith(" # at: ") and name:
            macros[name] = Macro(macros[name].value, line[len(" # at: ") :])
        elif equals and not key.startswith((" ", "#")):
            name = key.strip().upper()
            macros[name] = Macro(value.strip(), "")
    return macros


def values(macros: Mapping[str, Macro]) -> dict[str, str]:
    """Names and values alone, for config.parse."""
    return {name: macro.value for name, macro in macros.items()}
