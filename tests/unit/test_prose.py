"""The checker of the prose: what is a sentence, what is code, and what is too long."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "prose"
LONG = " ".join(["word"] * 26)


@pytest.fixture(scope="module")
def prose() -> Any:
    """The script as a module; it leaves no compiled file beside it."""
    loader = SourceFileLoader("prose", str(SCRIPT))
    spec = spec_from_loader("prose", loader)
    assert spec is not None
    module = module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def found(prose: Any, name: str, text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """What is found in a file of this name and text."""
    monkeypatch.setattr(prose, "TOP", folder)
    (folder / name).write_text(text)
    return list(prose.check(folder / name))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"{LONG}.\n", 1),
        (f"{LONG[5:]}. And {LONG[10:]}.\n", 0),
        (f"- {LONG}\n- short\n", 1),
        (f"| cell | {LONG} |\n", 1),
        (f"```\n{LONG}\n```\n", 0),
        (f"    {LONG}\n", 0),
        (f"{'x ' * 10}`{LONG}` ends.\n", 0),
    ],
)
def test_a_page(prose: Any, text: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    findings = found(prose, "page.md", text, monkeypatch, tmp_path)
    assert len([line for line in findings if " words: " in line]) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [("word " * 21, 1), ("word " * 19, 0), ("```\n" + "word " * 21 + "\n```", 0), ("|" + "x" * 120 + " | y |", 0)],
)
def test_the_width_of_a_page(
    prose: Any, text: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert [line.endswith(" columns") for line in found(prose, "page.md", text, monkeypatch, tmp_path)] == [
        True
    ] * count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f'"""{LONG}."""\n', 1),
        (f'NAME = 1\n"""{LONG}."""\n', 1),
        (f'def run():\n    """Short.\n\n    {LONG}.\n    """\n', 1),
        (f'"""Short.\n\n    name          {LONG}\n"""\n', 0),  # a table
        (f"# {LONG}\n", 0),
        (f'text = "{LONG}"\n', 0),
    ],
)
def test_docstrings(prose: Any, text: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert len(found(prose, "module.py", text, monkeypatch, tmp_path)) == count


def test_exceptions_stand(prose: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prose, "TOP", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"Known {LONG}.\n")
    assert [line for line in prose.check(page) if "words" in line] != []
    assert [line for line in prose.check(page, ("Known word",)) if "words" in line] == []
