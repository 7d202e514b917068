"""The lock files in this folder: what `make install` brings, one file a Python, with versions and hashes.

An entry is a comment that names who needs the package, then the package and the hashes of its wheels for Linux on
x86_64 and aarch64. pip takes such a file as it is. This module needs a bare Python 3.9.
"""

from __future__ import annotations

import configparser
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
CHECKOUT = FOLDER.parent
BASE = "joblens"
"""Who needs what every node needs; all others are extras."""

HTCONDOR = "htcondor"
"""The extra of machines whose distribution has no Python module htcondor2."""

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBC_MINOR = 28
"""Wheels may need glibc 2.28: Enterprise Linux 8 has it, and what is newer."""

_NOT_INSTALLED = {"test", "hub", "oidc", "postgresql"}  # of developers, and of a server that is no node


class LockError(Exception):
    """What is wrong, with its remedy."""


@dataclass(frozen=True)
class Entry:
    """One pinned package."""

    name: str
    version: str
    needed_by: frozenset[str]  # BASE, and extras
    hashes: frozenset[str]  # of its wheels: SHA-256 in hexadecimal digits

    def lines(self) -> str:
        """As pip takes it."""
        hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(self.hashes))
        return f"# for: {' '.join(sorted(self.needed_by))}\n{self.name}=={self.version}{hashes}\n"


def tag(python: str) -> str:
    """cp311 for 3.11."""
    return "cp" + python.replace(".", "")


def own_tag() -> str:
    """Of the Python that runs this."""
    return f"cp{sys.version_info[0]}{sys.version_info[1]}"


def own_version() -> str:
    """The same as `make bundle PYTHONS=` takes it."""
    return "{}.{}".format(*sys.version_info[:2])


def path(python_tag: str) -> Path:
    """The lock file for a Python."""
    return FOLDER / f"{python_tag}.txt"


def required() -> dict[str, list[str]]:
    """What setup.cfg asks for, by who needs it; and PyPI's htcondor."""
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    found = {BASE: _lines(setup["options"]["install_requires"])}
    for extra, text in setup["options.extras_require"].items():
        if extra not in _NOT_INSTALLED:
            found[extra] = _lines(text)
    return {**found, HTCONDOR: ["htcondor>=24"]}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def read(python_tag: str) -> list[Entry]:
    """All entries for a Python. Raises LockError if there is no lock for it."""
    try:
        text = path(python_tag).read_text(encoding="ascii")
    except FileNotFoundError:
        known = ", ".join(PYTHONS)
        raise LockError(
            f"nothing is locked for this Python ({python_tag}): set PYTHON to one of {known}, or make lock"
        ) from None
    found = []
    for block in re.split(r"^# for: ", text, flags=re.MULTILINE)[1:]:
        needed_by, _, rest = block.partition("\n")
        name, _, version = rest.split()[0].partition("==")
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)
        found.append(Entry(name, version, frozenset(needed_by.split()), frozenset(hashes)))
    return found


def select(python_tag: str, extras: Iterable[str]) -> list[Entry]:
    """The entries for a Python that these extras and every node need. Raises LockError."""
    wanted = {BASE, *extras}
    unknown = wanted - set(required())
    if unknown:
        known = ", ".join(sorted(set(required()) - {BASE}))
        raise LockError(f"there is no extra {', '.join(sorted(unknown))}: there are {known}")
    return [entry for entry in read(python_tag) if entry.needed_by & wanted]


def platforms(machine: str) -> list[str]:
    """The platform tags of wheels that run on such a machine."""
    old = [f"manylinux{name}_{machine}" for name in ("2014", "2010", "1")]
    return [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, 4, -1)] + old + [f"linux_{machine}"]


def bundle_name(version: str, python_tag: str, machine: str) -> str:
    """What a bundle is called."""
    return f"condor_joblens-{version}-{python_tag}-{machine}.bundle.tar"
