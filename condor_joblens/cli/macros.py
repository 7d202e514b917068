"""HTCondor's configuration with where each value comes from, as `condor_config_val` tells it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from condor_joblens.errors import JobLensError, printable

TIMEOUT = 20
"""Seconds for condor_config_val: it may run a site's configuration scripts."""

OURS = "JOBLENS_.*"
"""Names of the macros that are, or should be, knobs of ours."""


@dataclass(frozen=True)
class Macro:
    """One macro, expanded."""

    value: str
    source: str  # `/etc/condor/config.d/x.conf, line 3`, `<Environment>`, `<Default>`


def command(pattern: str) -> list[str]:
    """The command that prints the macros whose names match the regular expression, for `parse`."""
    path = os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin"
    program = shutil.which("condor_config_val", path=path)
    if program is None:
        raise JobLensError("condor_config_val is not in the PATH: is HTCondor installed on this machine?")
    return [program, "-dump", "-verbose", "-expanded", f"^({pattern})$"]


def read(pattern: str) -> dict[str, Macro]:
    """The macros whose names match the regular expression, by their names in upper case.

    Raises JobLensError where HTCondor's configuration can't be read.
    """
    arguments = command(pattern)
    try:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobLensError(f"{arguments[0]} does not answer: {printable(str(error), 200)}") from None
    if done.returncode != 0:
        raise JobLensError(f"{arguments[0]} fails: {printable(done.stderr.strip(), 200)}")
    return parse(done.stdout)


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
