"""Once a minute the table of runs is compared with the cgroups that exist: only a run whose cgroup is gone ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_node import Made, make

from condor_joblens.agent.lifecycle import recovery, run_end, run_start
from condor_joblens.owner_files.operations import Operations
from condor_joblens.tracer import map_layout

BASE, JOBS = "htcondor", 4


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A node whose runs' cgroups are folders, and whose runs end without anything else."""
    made = make(tmp_path, monkeypatch)
    node, tree, tracer = made.node, made.node.tree, made.node.tracer
    tree.path.side_effect = lambda cgroup: str(tmp_path / cgroup)  # type: ignore[attr-defined]
    node.bases, node.executes = [BASE], []
    tracer.events.return_value = np.zeros(0, map_layout.EVENT)  # type: ignore[attr-defined]
    tracer.counted_id.side_effect = lambda inode: inode  # type: ignore[attr-defined]
    monkeypatch.setattr(run_end, "cgroup_gone", lambda agent, run: made.node.runs.remove(run))
    for _ in range(JOBS):
        _begin(made, tmp_path)
    return made


def _begin(made: Made, tmp_path: Path) -> None:
    runs = made.node.runs
    run = made.begin()
    folder = tmp_path / BASE / f"condor_execute_slot1_{run}@node"
    folder.mkdir(parents=True)
    del runs.by_cgroup[int(runs.state["cgroup_id"][run])]
    runs.state["cgroup_id"][run] = folder.stat().st_ino
    runs.by_cgroup[folder.stat().st_ino] = run
    made.node.handles[run].path = str(folder)


def _after_listing(monkeypatch: pytest.MonkeyPatch, then: Callable[[list[os.DirEntry[str]]], None]) -> None:
    """What happens between the listing of a folder and the first look at what is in it."""
    scandir = os.scandir

    @contextmanager
    def listed(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(path) as entries:
            found = list(entries)
        then(found)
        yield iter(found)

    monkeypatch.setattr(os, "scandir", listed)


def test_a_cgroup_that_goes_while_they_are_listed_ends_its_own_run_alone(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = made.node.runs
    gone: list[int] = []

    def first_goes(found: list[os.DirEntry[str]]) -> None:
        gone.append(runs.by_cgroup[found[0].inode()])
        os.rmdir(found[0].path)

    _after_listing(monkeypatch, first_goes)
    before = set(runs.living().tolist())
    recovery.reconcile(made.agent)
    assert set(runs.living().tolist()) == before - set(gone)


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_cgroups_that_can_not_be_listed_end_no_run(
    made: Made, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def refuse(found: Any) -> None:
        raise error

    _after_listing(monkeypatch, refuse)
    recovery.reconcile(made.agent)
    assert len(made.node.runs.living()) == JOBS


def test_without_their_base_all_runs_end(made: Made, tmp_path: Path) -> None:
    for folder in (tmp_path / BASE).iterdir():
        folder.rmdir()
    (tmp_path / BASE).rmdir()
    recovery.reconcile(made.agent)
    assert len(made.node.runs.living()) == 0


def test_whose_the_jobs_folder_was_is_known_after_a_restart(made: Made, tmp_path: Path) -> None:
    """Root has given the folder away meanwhile: nothing is done in it, as whoever has it now."""
    node = made.node
    node.files = Operations()
    for folder in ("htcondor", "scratch"):
        (tmp_path / "dir_7" / folder).mkdir(parents=True)
    run = node.runs.living().tolist()[0]
    node.runs.rows["execute"][run], node.runs.state["starter"][run] = str(tmp_path).encode(), 7
    first = recovery._sandbox_again(node, run, 7)
    assert first is not None and first.is_of_its_user()
    run_start.open_sandbox(made.agent, run, first)
    again = recovery._sandbox_again(node, run, 7)
    assert again is not None and again.is_of_its_user()
    node.runs.state["scratch_uid"][run] += 1  # as if it had been another one's
    other = recovery._sandbox_again(node, run, 7)
    assert other is not None and not other.is_of_its_user()
    assert other.scratch_uid == first.scratch_uid + 1
    for sandbox in (first, again, other):
        sandbox.close()
