"""What tells of exceptions in Pythons of other versions, each with its own C library, as in a container."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.append(str(CHECKOUT / "tests" / "unit"))  # its scripts

from hooked_python import SCRIPTS, VARIABLES, Hearer, are_right, build, run  # noqa: E402
from python_roots import root_of  # noqa: E402

NAMES = (
    *("shows", "own sitecustomize", "divides", "does not parse", "recurses", "misses a key", "decodes"),
    *("an exception that talks", "a class that talks", "causes", "own excepthook", "no excepthook", "unraisable"),
    *("threads", "forks", "executes", "asyncio", "a tracer at the end", "an audit hook", "interactive"),
)
CHOSEN = [script for script in SCRIPTS if script.name in NAMES]
"""Of those that tests/unit has for this machine's own Python: what another version could do otherwise."""

VERSIONS = ("3.9", "3.11", "3.13", "3.14")


@dataclass
class Inside:
    """A folder in the root of a Python, with the hook in it."""

    version: str
    root: str
    folder: Path

    def path(self, name: str) -> str:
        return "/" + os.path.relpath(self.folder / name, self.root)

    def enter(self) -> None:
        os.chroot(self.root)


@contextmanager
def inside_of(version: str, *, calls: bool = False) -> Iterator[Inside]:
    """The root of a Debian with this Python, and a folder in it with the hook."""
    with root_of(version) as root, tempfile.TemporaryDirectory(dir=root / "tmp") as folder:
        found = Inside(version, str(root), Path(folder))
        build(found.folder / "hook", found.path("s"), calls=calls, pause_ms=2)
        yield found


@pytest.fixture(params=VERSIONS)
def inside(request: pytest.FixtureRequest) -> Iterator[Inside]:
    with inside_of(request.param) as found:
        yield found


@pytest.mark.sampled(2)
def test_scripts_do_the_same_and_their_ends_are_told(inside: Inside) -> None:
    python, told = [f"/usr/bin/python{inside.version}"], []
    with Hearer(inside.folder) as hearer:
        for script in CHOSEN:
            where = inside.folder / "job", inside.path("job"), inside.enter
            bare = run(python, script, where[0], "", *where[1:])
            assert hearer.told == [], script.name
            assert run(python, script, where[0], inside.path("hook"), *where[1:]) == bare, script.name
            lines, hearer.told[:] = [each["line"] for each in hearer.told], []
            assert len(lines) == len(script.tells), (script.name, lines)
            assert all(line.startswith(begin) for line, begin in zip(lines, script.tells)), lines
            told += lines
    assert len(CHOSEN) == len(NAMES) and len(told) > 10


def test_local_variables_follow_without_running_code_of_the_jobs(inside: Inside) -> None:
    where = inside.folder / "job", inside.path("job"), inside.enter
    python = [f"/usr/bin/python{inside.version}"]
    bare = run(python, VARIABLES, where[0], "", *where[1:])
    with Hearer(inside.folder) as hearer:
        assert run(python, VARIABLES, where[0], inside.path("hook"), *where[1:]) == bare
        are_right(hearer.variables)
