"""joblens restart: which joblensd it means, and which jobs, also of another version than its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_samples import bob, publish, row

from condor_joblens.cli import main, restart
from condor_joblens.cli.checks.checked_node import CheckedNode
from condor_joblens.common.errors import JobLensError
from condor_joblens.shm import writer
from condor_joblens.shm.reader import Reader


def test_the_joblensd_of_another_version_is_found_and_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckedNode, "is_module", lambda node, pid, module: pid == os.getpid())
    monkeypatch.setattr(writer, "SCHEMA_HASH", 7)
    publish(tmp_path, "rows", row(), bob(final=True))
    with pytest.raises(JobLensError, match="another version"):
        Reader(str(tmp_path / "rows"))
    assert restart._writer(CheckedNode(), str(tmp_path)) == os.getpid()
    assert restart._living_runs(str(tmp_path)) == {"ap.example#12.0#1799980000#1"}


def test_a_joblensd_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert restart._writer(CheckedNode(), str(tmp_path)) == 0 and restart._living_runs(str(tmp_path)) == set()
    publish(tmp_path, "rows", row())
    monkeypatch.setattr(CheckedNode, "is_module", lambda *_: False)
    assert restart._writer(CheckedNode(), str(tmp_path)) == 0


def test_where_none_runs_condor_master_is_first_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        asked.append(command)
        return ""

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(CheckedNode, "words", lambda node, name: ["MASTER", "JOBLENSD"])
    monkeypatch.setattr(restart, "ask", ask)
    monkeypatch.setattr(restart, "_writer", lambda *_: 0)
    monkeypatch.setattr(restart, "_publishing", lambda *_: 7)
    monkeypatch.setattr(restart, "_restart_publishers", lambda *_: False)
    assert main.main(["restart"]) == 0
    assert asked == [("condor_reconfig",)]


def test_what_does_not_come_true_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "_LOOK_EVERY", 0.0)
    with pytest.raises(JobLensError, match="for joblensd; see JobLensdLog"):
        restart._until(lambda: 0, "joblensd", 0.0)


def test_a_machine_without_joblensd_and_a_user_who_is_not_root_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for command in (["restart"], ["upgrade", "/tmp"]):
        assert main.main(command) == 1
        assert "only root" in capsys.readouterr().err
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(CheckedNode, "words", lambda node, name: ["MASTER", "SCHEDD"])
    assert main.main(["restart"]) == 1
    assert "condor_reconfig is enough" in capsys.readouterr().err
