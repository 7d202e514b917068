"""The file in which joblensd tells what it has in the kernel."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from condor_joblens.agent.output.program_stats import NAME, ProgramStats
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactRefused, ArtifactWriter


class Tracer:
    source, note = b"bpf", ""

    def __init__(self) -> None:
        self.names = ["jl_exit"]
        self.missing: dict[str, str] = {}
        self.costs: dict[str, tuple[float, int]] = {}

    def attached(self) -> list[str]:
        return self.names

    def levels_of_programs(self) -> dict[str, str]:
        return {"jl_exit": "basic", "jl_sys_exit": "io"}

    def programs_cost(self) -> dict[str, tuple[float, int]]:
        return self.costs


@pytest.fixture
def node(tmp_path: Path) -> Any:
    config = SimpleNamespace(run_dir=str(tmp_path))
    store = ArtifactWriter(str(tmp_path / "artifacts"), ArtifactLimits(10_000, 1 << 20, 60))
    return SimpleNamespace(tracer=Tracer(), config=config, artifacts=store, knobs={})


@pytest.fixture
def stats(node: Any) -> ProgramStats:
    return ProgramStats(node, node.artifacts)


def told(node: Any) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((Path(node.config.run_dir) / NAME).read_text())
    return facts


def test_programs_are_told_by_level_as_soon_as_they_are_attached(node: Any, stats: ProgramStats) -> None:
    stats.publish()
    assert told(node)["Source"] == "bpf"
    assert told(node)["Programs"] == [{"Name": "jl_exit", "Level": "basic", "Seconds": 0.0, "Runs": 0}]
    node.tracer.names = ["jl_sys_exit", "jl_exit"]
    stats.publish()
    assert [(program["Name"], program["Level"]) for program in told(node)["Programs"]] == [
        ("jl_sys_exit", "io"), ("jl_exit", "basic"),
    ]  # fmt: skip
    node.tracer.missing = {"io_uring": "refused"}
    stats.publish()
    assert told(node)["Missing"] == {"io_uring": "refused"}


def test_a_program_that_joblensd_does_not_know_costs_no_other_its_line(node: Any, stats: ProgramStats) -> None:
    node.tracer.names = ["jl_exit", "jl_of_tomorrow"]
    stats.publish()
    assert [program["Level"] for program in told(node)["Programs"]] == ["basic", "unknown"]


def test_what_has_not_changed_is_not_written_again_before_its_time(node: Any, stats: ProgramStats) -> None:
    stats.publish()
    node.tracer.costs = {"jl_exit": (0.5, 10)}
    stats.publish()
    assert told(node)["Programs"][0]["Seconds"] == 0.0
    stats.next_costs = 0.0
    stats.publish()
    assert told(node)["Programs"][0]["Seconds"] == 0.5
    assert sorted(os.listdir(node.config.run_dir)) == ["artifacts", NAME], "nothing is left behind"


def test_a_full_disk_costs_only_the_file(node: Any, stats: ProgramStats) -> None:
    node.config.run_dir = "/proc/self/nowhere"
    stats.publish()


def test_what_became_of_artifacts_is_told_once_there_was_one(node: Any, stats: ProgramStats) -> None:
    stats.publish()
    assert "Artifacts" not in told(node)
    about = Artifact("trace", "text/plain", 1, 0.0, 0.0)
    node.artifacts.add(about, [b"x"])
    with pytest.raises(ArtifactRefused):
        node.artifacts.add(about, [bytes(10_000)])
    stats.next_costs = 0.0
    stats.publish()
    assert told(node)["Artifacts"] == {
        "Kept": 1, "Bytes": 4096, "Written": 1, "Refused": {"too_large": 1}, "Deleted": {},
    }  # fmt: skip
