"""What macros of HTCondor's configuration mean: the values of all knobs, and a line for each that is wrong.

A wrong value costs one line in the log and in `joblens doctor`, and its default stands.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from condor_joblens.common.config import KNOBS, PREFIX, Config
from condor_joblens.common.errors import printable

_DAEMONS = "D|_EXPORT|_DOOR|_RELAY|_EVENTLOG"
OTHERS_NAMES = re.compile(rf"JOBLENS({_DAEMONS})?(_(LOG|ARGS|ENVIRONMENT|DEBUG|CONTROLLER))?$|JOBLENS_(SLOT|JOB)_.*")
"""Macros with our prefix that HTCondor itself reads: daemons, their arguments and logs."""


def parse(macros: Mapping[str, str]) -> tuple[Config, list[str]]:
    """The configuration that `macros` (name -> value) mean, and a line for each that is wrong.

    A wrong value leaves the default in force, a wrong entry of a table the others. Names are compared without regard
    to case, as HTCondor does.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    known = {knob.name: knob for knob in KNOBS}
    for name, value in sorted(macros.items()):
        upper = name.upper()
        knob = known.get(upper)
        if knob is None:
            # the exporter checks what a sink is told: sinks/registry.py
            if upper.startswith(PREFIX) and not OTHERS_NAMES.match(upper) and not upper.startswith(PREFIX + "SINK_"):
                problems.append(_unknown(upper, list(known)))
            continue
        if not value.strip():
            continue  # an empty macro is an unset one
        try:
            values[knob.attribute] = parsed = knob.parse(value.strip())
            # a table says itself which of its entries are wrong: the others are used
            problems += [
                f"{knob.name}: {line}; correct it and run condor_reconfig" for line in getattr(parsed, "problems", ())
            ]
        except ValueError as error:
            problems.append(
                f"{knob.name} = {printable(value)} is not {error}: the default {knob.default} is used; "
                "correct it and run condor_reconfig"
            )
    return Config(**values), problems


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    remedy = f"did you mean {near[0]}?" if near else "see `joblens config` for those there are"
    return f"{printable(name)} is no knob of JobLens and has no effect: {remedy}"
