"""JOBLENS_FILESYSTEM_CLASSES: what a site says of file systems whose types JobLens does not know."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from condor_joblens.common.errors import printable
from condor_joblens.model import classes

CLASSES = tuple(classes.FILESYSTEMS)
"""A class's place here is its number in the kernel."""

LONGEST_TYPE = 39


@dataclass(frozen=True)
class Types:
    """Type of a file system -> number of its class. `problems` has a line for each entry that is not in it."""

    numbers: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def parse(text: str) -> Types:
    """What `TYPE=class, ...` means. Never fails: what is wrong in it is in `problems`, and the rest is used."""
    by_name = {name.lower(): number for number, name in enumerate(CLASSES)}
    found: dict[str, int] = {}
    problems = []
    for part in re.split(r"[,\s]+", text.strip()):
        name, equals, word = part.partition("=")
        number = by_name.get(word.strip('"').lower())
        if not part:
            continue
        if not equals or not re.fullmatch(rf"[!-~]{{1,{LONGEST_TYPE}}}", name) or number is None:
            problems.append(
                f"{printable(part, 60)} is not TYPE=CLASS, a type of /proc/self/mountinfo and one of "
                f"{', '.join(by_name)}: it is left out"
            )
            continue
        found[name] = number
    return Types(found, tuple(problems))
