"""SECURITY.md: each line of the threat model names its tests, they exist, and no process of ours is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
MODEL = TEXT[TEXT.index("## The threat model") : TEXT.index("## What a job's user can write")]
ROWS = [row for row in re.findall(r"^\| (.+) \|$", MODEL, re.M) if not row.startswith(("who |", "which |", "---"))]
NAMES = sorted(set(re.findall(r"`(test_\w+)`", TEXT)))


def known() -> set[str]:
    sources = [path for path in ROOT.glob("tests/*/test_*.py") if path != Path(__file__)]
    return {name for path in sources for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(" |")[0])
def test_each_line_has_a_test(row: str) -> None:
    *_, named = row.split(" | ")
    assert row.count(" | ") == 3 and re.fullmatch(r"`test_\w+`(, `test_\w+`)*", named)


def test_the_named_tests_are_there() -> None:
    there = known()
    assert len(ROWS) > 15 and [name for name in NAMES if name not in there] == []


def test_no_process_that_has_a_program_is_left_out() -> None:
    """Whatever joblensd or condor_master starts is run as a module, or is a shell's script."""
    named = {
        "agent/__main__.py": "joblensd",
        "export/__main__.py": "the exporter",
        "export/supervisor.py": "supervisor",
        "owner_files/helper.py": "owner_files/",
        "policy/child.py": "policy child",
        "policy/print_policies.py": "what prints the policies",
        "publish/slotads.py": "joblens_publish",
        "sinks/kafka_child.py": "Kafka's client",
    }
    for path in sorted((ROOT / "condor_joblens").rglob("*.py")):
        place = str(path.relative_to(ROOT / "condor_joblens"))
        if place.startswith("cli/") or '__name__ == "__main__"' not in path.read_text():
            continue
        is_built = place.endswith("_build.py")  # runs when the package is made
        if not is_built and place != "common/without_privilege.py":  # which becomes another program: the two shells
            assert f"`{place}`" in MODEL or named[place] in MODEL, place
    assert "container-universe" in MODEL and "docker-universe" in MODEL
