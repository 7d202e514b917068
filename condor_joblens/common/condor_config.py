"""HTCondor's configuration, as `condor_config_val` prints it.

One process of condor_config_val costs 20 ms and nothing afterwards; importing htcondor2 would cost 10 MB for a daemon's
whole life.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from condor_joblens.common.condor_commands import ask

COMMAND = "condor_config_val"

OURS = "JOBLENS_.*"
"""A regular expression of the macros that are, or should be, knobs of ours."""


@dataclass(frozen=True)
class Macro:
    """One macro, expanded."""

    value: str
    source: str  # `/etc/condor/config.d/x.conf, line 3`, `<Environment>`, `<Default>`; empty if it was not asked for


def read_macros(pattern: str) -> dict[str, str]:
    """The macros whose whole names match the regular expression: value by name in upper case.

    Raises JobLensError if HTCondor can't be asked.
    """
    return values(parse_dump(ask(COMMAND, *arguments(pattern))))


def read_with_sources(pattern: str = OURS) -> dict[str, Macro]:
    """The same with where each value comes from."""
    return parse_dump(ask(COMMAND, *arguments(pattern, "-verbose")))


def arguments(pattern: str, *options: str) -> list[str]:
    """What makes condor_config_val print what `parse_dump` reads; with the option -verbose also the sources."""
    return ["-dump", *options, "-expanded", f"^({pattern})$"]


def parse_dump(dump: str) -> dict[str, Macro]:
    """The macros, by their names in upper case, in what `condor_config_val -dump` prints.

    A value of several lines keeps its first one only: none that we read has more.
    """
    macros: dict[str, Macro] = {}
    name = ""
    for line in dump.split("\n"):  # a value may have any other end of a line in it
        key, equals, value = line.partition(" = ")
        if line.startswith(" # at: ") and name:
            macros[name] = Macro(macros[name].value, line[len(" # at: ") :])
        elif equals and not key.startswith((" ", "#")):
            name = key.strip().upper()
            macros[name] = Macro(value.strip(), "")
    return macros


def values(macros: Mapping[str, Macro]) -> dict[str, str]:
    """Names and values alone."""
    return {name: macro.value for name, macro in macros.items()}
