"""What our messages and pages tell people to do is what our own installer does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PLACES = ("condor_joblens", "docs", "hooks", "condor_config.d", "README.md", "SECURITY.md")
SAID = [
    path
    for place in PLACES
    for path in ([REPOSITORY / place] if (REPOSITORY / place).is_file() else sorted((REPOSITORY / place).rglob("*")))
    if path.suffix in (".py", ".md", ".conf", "") and path.is_file()
]


@pytest.mark.parametrize("path", SAID, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_package_of_our_name_is_fetched_from_an_index(path: Path) -> None:
    # whoever registers that name there would get root on the nodes
    found = re.findall(r"pip3? install[^\n]*condor_joblens[^\n]*", path.read_text(encoding="utf-8", errors="replace"))
    assert found == []


def test_extras_that_are_named_exist() -> None:
    declared = re.findall(
        r"(?m)^(\w+) =", (REPOSITORY / "setup.cfg").read_text().partition("[options.extras_require]")[2]
    )
    named = {
        extra
        for path in SAID
        for words in re.findall(r"EXTRAS=([\w,]+)", path.read_text(encoding="utf-8", errors="replace"))
        for extra in words.split(",")
        if extra  # `EXTRAS={name},`: the name is known when it is said
    }
    assert {"kafka", "plots"} <= named <= set(declared)
