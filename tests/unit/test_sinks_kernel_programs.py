"""What is in the kernel, on the Prometheus page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from condor_joblens.sinks import kernel_programs

FACTS: dict[str, Any] = {
    "Source": "bpf", "Note": "", "Missing": {"io_uring": "refused"},
    "Programs": [
        {"Name": "jl_exit", "Level": "basic", "Seconds": 0.5, "Runs": 1000},
        {"Name": "jl_switch", "Level": "io", "Seconds": 0.0, "Runs": 0},
    ],
}  # fmt: skip


def samples(facts: dict[str, Any]) -> dict[tuple[str, ...], float]:
    found = [sample for family in kernel_programs.families(facts) for sample in family.samples]
    return {(sample.name, *sample.labels.values()): sample.value for sample in found}


def test_programs_are_told_with_level_and_cost() -> None:
    told = samples(FACTS)
    assert told["joblens_counts_in_kernel",] == 1
    assert (
        told["joblens_program_attached", "jl_exit", "basic"] == told["joblens_program_attached", "jl_switch", "io"] == 1
    )
    assert told["joblens_program_run_seconds_total", "jl_exit", "basic"] == 0.5
    assert told["joblens_program_runs_total", "jl_exit", "basic"] == 1000
    assert told["joblens_part_missing", "io_uring"] == 1


def test_without_programs_the_page_says_so() -> None:
    assert samples({**FACTS, "Source": "procfs", "Programs": [], "Missing": {}}) == {("joblens_counts_in_kernel",): 0}


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3"])
def test_without_joblensd_nothing_is_said(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "attached").write_text(text)
    assert samples(kernel_programs.read(str(tmp_path / "attached"))) == {}


def test_what_joblensd_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "attached").write_text(json.dumps(FACTS))
    assert kernel_programs.read(str(tmp_path / "attached")) == FACTS
