"""JOBLENS_RUN_DIR: artifacts are on the disk, or in it if there is no folder on the disk for them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_commands_artifacts import about

from condor_joblens.agent import run_folder
from condor_joblens.agent.output import run_artifacts
from condor_joblens.common.config import Config
from condor_joblens.shm.artifacts import ArtifactReader, ArtifactWriter


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "run").mkdir()
    return Config(run_dir=str(tmp_path / "run"), artifact_dir=str(tmp_path / "disk" / "artifacts"))


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def no_group_writes() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def opened(config: Config, log: list[str]) -> ArtifactWriter:
    """As joblensd does it when it starts."""
    run_folder.make_artifact_folder(config)
    return run_folder._artifacts(config, log.append)


def test_they_are_on_the_disk_and_the_run_folder_leads_there(config: Config, log: list[str]) -> None:
    for times in range(2):
        writer = opened(config, log)
        assert writer.folder == config.artifact_dir and writer.limits.total_bytes == 1 << 30 and writer.count == times
        kept = writer.add(about(), [b"a report"])
        assert ArtifactReader(f"{config.run_dir}/artifacts").read(kept.name)[1] == b"a report"
    assert stat.S_IMODE(os.stat(config.artifact_dir).st_mode) == 0o700 and log == []


def test_without_a_folder_on_the_disk_they_are_few_and_in_memory(config: Config, log: list[str]) -> None:
    Path(config.artifact_dir).parent.write_text("no folder")
    writer = opened(config, log)
    assert writer.folder == f"{config.run_dir}/artifacts"
    assert writer.limits.total_bytes == run_artifacts.MOST_IN_MEMORY
    assert len(log) == 1 and "set JOBLENS_ARTIFACT_DIR" in log[0]


def test_a_folder_that_others_could_change_is_not_used(config: Config, log: list[str]) -> None:
    parent = Path(config.artifact_dir).parent
    parent.mkdir()
    parent.chmod(0o777)
    assert run_folder.make_artifact_folder(config) == ""
    assert opened(config, log).folder == f"{config.run_dir}/artifacts"
    assert "may be written by others" in log[0]


def test_the_way_there_and_back(config: Config, log: list[str]) -> None:
    """What was in memory goes when the disk takes over; the link goes when that is not used any more."""
    folder = Path(config.run_dir, "artifacts")
    ArtifactWriter(str(folder), run_artifacts.limits(config, str(folder))).add(about(), [b"old"])
    opened(config, log)
    assert folder.is_symlink()
    in_memory = Config(run_dir=config.run_dir, artifact_dir=config.run_dir)
    assert opened(in_memory, log).folder == str(folder) and not folder.is_symlink() and log == []


def test_a_link_in_a_folder_of_ours_may_be_on_the_way(config: Config, log: list[str], tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "disk").symlink_to(tmp_path / "big")
    assert opened(config, log).folder == str(tmp_path / "big" / "artifacts")
