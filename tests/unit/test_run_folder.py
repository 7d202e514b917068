"""JOBLENS_RUN_DIR: artifacts are on the disk, or in it if there is no folder on the disk for them."""

from __future__ import annotations

import os
import stat
import subprocess
import time
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
    folder = run_folder.ArtifactFolder()
    folder.take(config)
    try:
        return run_folder._artifacts(config, folder, log.append)
    finally:
        folder.let_go()


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
    folder = run_folder.ArtifactFolder()
    folder.take(config)
    assert folder.path == "" and not folder.has_another
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


def test_a_second_joblensd_leaves_the_folder_to_the_first_and_says_so(config: Config, log: list[str]) -> None:
    first, second = run_folder.ArtifactFolder(), run_folder.ArtifactFolder()
    first.take(config)
    first.take(config)  # as when its start is tried again
    assert first.path == config.artifact_dir
    kept = run_folder._artifacts(config, first, log.append).add(about(), [b"a report"])
    Path(config.run_dir, "second").mkdir()
    others = Config(run_dir=f"{config.run_dir}/second", artifact_dir=config.artifact_dir)
    second.take(others)
    assert second.path == "", "it changes nobody's rights there either"
    assert run_folder._artifacts(others, second, log.append).folder == f"{others.run_dir}/artifacts"
    assert log == [
        f"another joblensd keeps its profiles in {config.artifact_dir}: profiles are kept in {others.run_dir}, 64 MiB "
        "at most; set JOBLENS_ARTIFACT_DIR"
    ]
    assert ArtifactReader(config.artifact_dir).read(kept.name)[1] == b"a report"
    first.let_go()
    second.take(others)
    assert second.path == config.artifact_dir and not second.has_another
    second.let_go()


def test_what_joblensd_has_started_holds_the_folder_no_longer_than_joblensd(config: Config) -> None:
    first, second = run_folder.ArtifactFolder(), run_folder.ArtifactFolder()
    first.take(config)
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        first.let_go()
        until = time.monotonic() + 20
        while not second.path and time.monotonic() < until:  # it closes what it inherits a moment after it has begun
            second.take(config)
        assert second.path == config.artifact_dir
        assert child.poll() is None
        child.communicate()
    second.let_go()
    assert stat.S_IMODE(os.stat(f"{config.artifact_dir}/{run_folder.ARTIFACTS_LOCK}").st_mode) == 0o600


def test_a_lock_that_leads_elsewhere_is_not_followed(config: Config, tmp_path: Path) -> None:
    os.makedirs(config.artifact_dir)
    (tmp_path / "roots").write_text("root's")
    os.symlink(tmp_path / "roots", f"{config.artifact_dir}/{run_folder.ARTIFACTS_LOCK}")
    folder = run_folder.ArtifactFolder()
    folder.take(config)
    assert folder.path == "" and (tmp_path / "roots").read_text() == "root's"
