"""joblens restart: which joblensd it means, and which jobs, also of another version than its own."""

from __future__ import annotations

import json
import os
import signal
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


def test_where_none_runs_condor_master_is_first_told_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert main.main(["restart", "--run-dir", str(tmp_path)]) == 0
    assert asked == [("condor_reconfig",)]
    told = capsys.readouterr().out
    assert "0 jobs" not in told and told.endswith("; joblens status lists those that run\n")
    assert main.main(["restart", "--json", "--run-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["Jobs"] is None


def test_on_an_access_point_the_door_the_relay_and_the_reader_of_the_queue_begin_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = ("condor_joblens.accesspoint.door", "condor_joblens.relay", "condor_joblens.eventlog")
    processes = dict(zip(modules, (7, 8, 9)))
    did: list[tuple[object, ...]] = []

    def kill(pid: int, number: int) -> None:
        did.append((pid, number))
        for module in [module for module, its in processes.items() if its == pid]:
            del processes[module]

    def ask(*command: str) -> str:
        did.append(command)
        processes.update(zip(modules, (17, 18, 19)))
        return ""

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(restart, "ask", ask)
    wanted = ["MASTER", "SCHEDD", "JOBLENS_DOOR", "JOBLENS_RELAY", "JOBLENS_EVENTLOG"]
    monkeypatch.setattr(CheckedNode, "words", lambda node, name: wanted)
    monkeypatch.setattr(CheckedNode, "runs", lambda node, module: processes.get(module))
    monkeypatch.setattr(CheckedNode, "is_module", lambda node, pid, module: processes.get(module) == pid)
    assert main.main(["restart"]) == 0
    assert capsys.readouterr().out.startswith("joblens-relay, joblens-door, joblens-eventlog: restarted, ")
    on = [("condor_on", "-subsystem", name) for name in ("joblens_relay", "joblens_door", "joblens_eventlog")]
    assert did == [*((pid, signal.SIGTERM) for pid in (8, 7, 9)), *on]
    assert main.main(["restart", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Restarted"] == ["joblens-relay", "joblens-door", "joblens-eventlog"]


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
