"""joblensd keeps the parts of a run's profile, of each run so much, and also the last one when the run is over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from agent_node import OWNER, Made, make
from test_run_artifacts import told

from condor_joblens.agent.output import run_artifacts, run_profiles
from condor_joblens.agent.output.run_profiles import RunProfiles
from condor_joblens.model.events import EventKind
from condor_joblens.profiles import pprof, segment
from condor_joblens.profiles.profile import Profile
from condor_joblens.shm.artifacts import ArtifactReader, ArtifactWriter
from condor_joblens.shm.ring import EventWriter


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = make(tmp_path, monkeypatch)
    output = made.agent.output
    output.artifacts.store = ArtifactWriter(str(tmp_path / "artifacts"), run_artifacts.limits(made.node.config))
    output.events.ring = EventWriter(str(tmp_path / "events"), 0, os.getgid())
    return made


def made_of(content: bytes) -> bytes:
    """A part as large as that, as far as joblensd looks at it."""
    return segment.joined("", b"\x1f\x8b\x08\0" + bytes(6) + content)


@pytest.fixture
def profiles(made: Made) -> RunProfiles:
    return RunProfiles(made.agent.output.artifacts)


def number_of(made: Made, run: int) -> int:
    return int(made.node.runs.rows["run_number"][run])


def test_a_part_is_kept_as_pprof_reads_it(made: Made, profiles: RunProfiles) -> None:
    run = made.begin("12.0")
    number = number_of(made, run)
    profiles.begin(run)
    profiles.keep(number, 1.0, 61.0, segment.joined("62% f", pprof.encode(Profile(1.0, 61.0))))
    ((kind, whose, _, name),) = told(made)
    header, content = ArtifactReader(made.agent.output.artifacts.store.folder).read(name)
    assert (kind, whose, header.kind) == (EventKind.ARTIFACT, number, "profile")
    assert (header.run, header.owner, header.uid, header.begun, header.ended) == (
        "ap#12.0#1#1",
        "alice",
        OWNER,
        1.0,
        61.0,
    )
    assert header.content_type == pprof.CONTENT_TYPE and pprof.decode(content) == Profile(1.0, 61.0)


def test_the_last_part_comes_when_the_run_is_over(made: Made, profiles: RunProfiles) -> None:
    run = made.begin("12.0")
    number = number_of(made, run)
    profiles.begin(run)
    made.node.runs.rows["run_number"][run] = 99  # its place in the table is another run's
    made.node.runs.rows["owner"][run] = b"bob"
    profiles.keep(number, 1.0, 2.0, made_of(b"packed"))
    ((kind, whose, _, name),) = told(made)
    header = ArtifactReader(made.agent.output.artifacts.store.folder).describe(name)
    assert (kind, whose, header.run_number, header.owner) == (EventKind.ARTIFACT, number, number, "alice")


def test_the_runs_row_says_what_is_hottest_until_it_is_over(made: Made, profiles: RunProfiles) -> None:
    run, other = made.begin("12.0"), made.begin("12.1")
    number = number_of(made, run)
    profiles.begin(run)
    profiles.keep(number, 1.0, 6.0, segment.joined('62% f<"x"> (a.so), 10% ' + "g" * 500, pprof.encode(Profile(1, 6))))
    said = bytes(made.node.runs.rows["profile_hottest"][run])
    assert said.startswith(b'62% f<"x"> (a.so), 10% ggg') and len(said) <= 320
    made.node.runs.rows["run_number"][run] = 99  # its place in the table is another run's
    profiles.keep(number, 6.0, 9.0, segment.joined("99% h", pprof.encode(Profile(6, 9))))
    assert made.node.runs.rows["profile_hottest"][run] == said
    assert made.node.runs.rows["profile_hottest"][other] == b""


def test_of_a_run_the_oldest_go(made: Made, profiles: RunProfiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_profiles, "MOST_BYTES", 40_000)
    store = made.agent.output.artifacts.store
    run, other = made.begin("12.0"), made.begin("12.1")
    for each in (run, other):
        profiles.begin(each)
    made.agent.output.artifacts.keep(run, "hang", [b"x"], content_type="text/plain", begun=0.0, ended=0.0)
    profiles.keep(number_of(made, other), 0.0, 1.0, made_of(bytes(30_000)))
    for minute in range(8):
        profiles.keep(number_of(made, run), minute, minute + 1.0, made_of(bytes(7000)))
    kept = [ArtifactReader(store.folder).describe(each.name) for each in store.stored(number_of(made, run))]
    assert [(each.kind, each.begun) for each in kept] == [("hang", 0), *(("profile", minute) for minute in range(4, 8))]
    assert len(store.stored(number_of(made, other))) == 1, "another run has room of its own"


def test_what_is_no_part_is_refused(made: Made, profiles: RunProfiles) -> None:
    run = made.begin("12.0")
    profiles.begin(run)
    with pytest.raises(ValueError, match="no profile"):
        profiles.keep(number_of(made, run), 0.0, 1.0, b"something else")
    profiles.keep(4711, 0.0, 1.0, made_of(b"of a run that nobody knows"))
    assert told(made) == []


def test_what_is_remembered_is_bounded(made: Made, profiles: RunProfiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_profiles, "_REMEMBERED", 2)
    for _ in range(5):
        profiles.begin(made.begin())
    assert len(profiles._about) == 2
