"""Scripts run the same with and without what tells of exceptions that end them, and what it tells is right."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hooked_python import IN_A_SYSTEM, SCRIPTS, Hearer, Script, build, run


@pytest.fixture(scope="module")
def short() -> Iterator[Path]:
    """Short, unlike pytest's own: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="joblens-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def hook(short: Path) -> str:
    return str(build(short / "hook", f"{short}/s"))


@pytest.fixture
def hearer(short: Path) -> Iterator[Hearer]:
    (short / "s").unlink(missing_ok=True)
    with Hearer(short) as hearer:
        yield hearer


@pytest.mark.parametrize("script", [*SCRIPTS, *IN_A_SYSTEM], ids=lambda script: script.name)
def test_a_script_does_the_same_and_its_end_is_told(script: Script, short: Path, hook: str, hearer: Hearer) -> None:
    bare = run([sys.executable], script, short / "job", "")
    assert hearer.told == []
    hooked = run([sys.executable], script, short / "job", hook)
    assert hooked == bare
    lines = [told["line"] for told in hearer.told]
    assert len(lines) == len(script.tells), lines
    for line, begin in zip(lines, script.tells):
        assert line.startswith(begin)
