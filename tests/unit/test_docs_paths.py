"""Every file, folder and module of the repository that a page names exists."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGES = [
    path
    for path in [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), TOP / "benchmarks" / "README.md"]
    if path.name != "CHANGELOG.md"
]
FILES = [
    str(path.relative_to(TOP))
    for top in sorted(TOP.iterdir())
    if top.name not in (".git", "build", "dist")
    for path in ([top] if top.is_file() else top.rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts
]
FOLDERS = {str(parent) for name in FILES for parent in Path(name).parents} - {"."}
ENDINGS = (".py", ".c", ".h", ".lua", ".cases", ".md")
BASES = ("", "condor_joblens/", "bpf_programs/", "docs/", "lua_policies/")
"""From where a page names a file: the pages call the rooms by their names alone."""

STRANGERS = {
    # an example's, a user's or HTCondor's own
    *("NAME.py", "condor_joblens/sample/NAME.py", "condor_joblens/tracer/sensors/NAME.py", "bpf_programs/NAME/"),
    *("condor_joblens/commands/NAME.py", "tracer/sensors/NAME.py", "NAME.lua", "NAME.cases", "FILE.c", "payload.py"),
    "fit.py",
}


def named(page: str) -> set[str]:
    """What stands in backticks and looks like a file or folder of a repository."""
    found = set()
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", page):
        for word in code.split():
            if re.fullmatch(r"[A-Za-z_.][\w.*-]*(/[\w.*-]+)*/?", word) and not word.startswith(".."):
                first = word.split("/")[0]
                is_room = any(f"{base}{first}" in FOLDERS for base in BASES)
                if ("/" in word and is_room) or word.endswith(ENDINGS):
                    found.add(word)
    return found


def exists(name: str, page: Path) -> bool:
    """Whether it is a file or a folder, seen from the top, from a room, or from the page's folder."""
    wanted = name.rstrip("/")
    beside = str(page.parent.relative_to(TOP))
    for base in (*BASES, "" if beside == "." else f"{beside}/"):
        if fnmatch.filter([*FILES, *FOLDERS], base + wanted):
            return True
    return "/" not in wanted and any(file.endswith(f"/{wanted}") for file in FILES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = [name for name in sorted(named(page.read_text()) - STRANGERS) if not exists(name, page)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    for name in set(re.findall(r"\bcondor_joblens(?:\.[a-z_]\w*)+", page.read_text())):
        parts = name.split(".")
        # a file's own name, or that of something in it
        found = [
            f"{'/'.join(parts[:count])}{ending}" in FILES
            for count in range(len(parts) - 1, len(parts) + 1)
            for ending in (".py", "/__init__.py")
        ]
        assert any(found), name


@pytest.mark.parametrize("room", sorted(path.name for path in (TOP / "condor_joblens").iterdir() if path.is_dir()))
def test_every_file_that_a_docstring_or_comment_names_exists(room: str) -> None:
    for source in (TOP / "condor_joblens" / room).rglob("*.py"):
        for name in set(re.findall(r"(?<![\w/.*-])(?:\w+/)*\w+\.py\b", source.read_text())):
            assert exists(name, source) or name in STRANGERS, f"{source.relative_to(TOP)}: {name}"


def test_a_path_that_is_gone_is_found() -> None:
    page = TOP / "docs" / "architecture.md"
    assert named("`agent/gone.py`, `gone.py` and `--flag`, `/etc/x`, `text/plain`") == {"agent/gone.py", "gone.py"}
    assert not exists("agent/gone.py", page) and not exists("gone.py", page)
    assert exists("agent/measure.py", page) and exists("measure.py", page) and exists("io/switch.bpf.c", page)
