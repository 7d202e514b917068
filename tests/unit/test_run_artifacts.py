"""joblensd keeps an artifact of a run: it is announced by an event, and what is not kept is declared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_node import OWNER, Made, make

from condor_joblens.agent.output import run_artifacts
from condor_joblens.common.user_names import NOBODY
from condor_joblens.model.events import EventKind
from condor_joblens.shm.artifacts import ArtifactReader, ArtifactWriter
from condor_joblens.shm.ring import EventReader, EventWriter


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = make(tmp_path, monkeypatch, artifact_bytes=80_000)
    output = made.agent.output
    output.artifacts.store = ArtifactWriter(
        str(tmp_path / "artifacts"), run_artifacts.limits(made.node.config, str(tmp_path / "artifacts"))
    )
    output.events.ring = EventWriter(str(tmp_path / "events"), 0, os.getgid())
    return made


def told(made: Made) -> list[tuple[EventKind, int, int, str]]:
    found = EventReader(f"{made.node.config.run_dir}/events").read()
    return [(EventKind(e["kind"]), int(e["run_number"]), int(e["value"]), e["text"].decode()) for e in found]


def test_an_artifact_is_announced_and_says_whose_it_is(made: Made) -> None:
    run = made.begin("12.0")
    made.node.runs.rows["sinks"][run] = b"kafka"
    stored = made.agent.output.artifacts.keep(
        run, "hang", [b"it ", b"waits"], content_type="text/plain", begun=1.0, ended=2.0
    )
    assert stored is not None
    number = int(made.node.runs.rows["run_number"][run])
    assert told(made) == [(EventKind.ARTIFACT, number, 8, stored.name)]
    found, content = ArtifactReader(made.agent.output.artifacts.store.folder).read(stored.name)
    assert (found, content) == (stored, b"it waits")
    assert (found.run, found.owner, found.sinks, found.uid) == ("ap#12.0#1#1", "alice", "kafka", OWNER)
    assert (found.run_number, found.begun, found.ended, found.kind) == (number, 1.0, 2.0, "hang")


@pytest.mark.parametrize("uid", [0, NOBODY])
def test_what_is_roots_or_nobodys_has_no_owner(made: Made, uid: int) -> None:
    run = made.begin()
    made.node.handles[run].sandbox.scratch_uid = uid  # type: ignore[union-attr]
    stored = made.agent.output.artifacts.keep(run, "hang", [b"x"], content_type="text/plain", begun=0.0, ended=0.0)
    assert stored is not None and stored.uid is None


def broken() -> Iterator[bytes]:
    yield b"x"
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("pieces, reason", [([bytes(30_000)], "it is larger than"), (broken(), "Input/output error")])
def test_what_is_not_kept_is_declared_as_lost(made: Made, pieces: Iterator[bytes], reason: str) -> None:
    run = made.begin()
    number = int(made.node.runs.rows["run_number"][run])
    stored = made.agent.output.artifacts.keep(run, "trace", pieces, content_type="text/plain", begun=0.0, ended=0.0)
    [(kind, whose, count, words)] = told(made)
    assert stored is None and (kind, whose, count) == (EventKind.LOSS, number, 1)
    assert words.startswith("artifact trace: ") and reason in words and reason in made.log[0]
    assert os.listdir(made.agent.output.artifacts.store.folder) == []
