"""joblensd keeps the parts of a run's profile, of each run so much, and also the last one when the run is over."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_node import OWNER, Made, make
from test_run_artifacts import told

from condor_joblens.agent.levels import profile_level
from condor_joblens.agent.output import run_artifacts, run_profiles
from condor_joblens.agent.output.run_profiles import RunProfiles
from condor_joblens.cli.flame import rendered
from condor_joblens.export import profile_records
from condor_joblens.model.events import EventKind
from condor_joblens.model.levels import Level
from condor_joblens.profiles import flame_graph, pprof, segment, unseen
from condor_joblens.profiles.profile import Profile, View, merged
from condor_joblens.shm.artifacts import ArtifactReader, ArtifactWriter
from condor_joblens.shm.ring import EventWriter

BEGIN = 1_700_000_000.0


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    made = make(tmp_path, monkeypatch)
    output = made.agent.output
    output.artifacts.store = ArtifactWriter(
        str(tmp_path / "artifacts"), run_artifacts.limits(made.node.config, str(tmp_path / "artifacts"))
    )
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


def test_what_has_waited_is_kept_beside_and_is_not_hot(made: Made, profiles: RunProfiles) -> None:
    run = made.begin("12.0")
    profiles.begin(run)
    packed = pprof.encode(Profile(1.0, 61.0, view=View.OFF_CPU, waits=3))
    profiles.keep(number_of(made, run), 1.0, 61.0, segment.joined("", packed), True)
    ((_, _, _, name),) = told(made)
    header, content = ArtifactReader(made.agent.output.artifacts.store.folder).read(name)
    assert header.kind == "off_cpu" and pprof.decode(content).waits == 3
    assert made.node.runs.rows["profile_hottest"][run] == b""


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


class Merger:
    """Makes one of two files, as the reader of samples does; a test says when."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[bytes], Callable[[bytes], object]]] = []

    def __call__(self, run: int, files: list[int], content_at: int, done: Callable[[bytes], object]) -> None:
        self.asked.append((run, [os.pread(each, 1 << 20, content_at) for each in files], done))

    def answer(self) -> None:
        _, (first, second), done = self.asked.pop(0)
        done(made_of(first[-1:] + second[-1:]) if first else b"")


def kept_times(made: Made, profiles: RunProfiles, run: int) -> list[tuple[float, float]]:
    parts = profiles.parts(made.agent.output.artifacts.about(run))
    return [(each.begun, each.ended) for each in parts]


def test_older_parts_become_one_and_the_whole_time_stays(
    made: Made, profiles: RunProfiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_profiles, "PLENTY_PARTS", 8)
    profiles.merge = merger = Merger()
    run = made.begin("12.0")
    profiles.begin(run)
    for minute in range(100):
        profiles.keep(number_of(made, run), minute, minute + 1.0, made_of(b"x"))
        while merger.asked:
            assert len(merger.asked) == 1, "one question of a run at a time"
            merger.answer()
    times = kept_times(made, profiles, run)
    assert len(times) == 8 and times[0][0] == 0.0 and times[-1] == (99.0, 100.0)
    assert [end for _, end in times[:-1]] == [begin for begin, _ in times[1:]], "without a hole"
    assert len(told(made)) == 100, "what is made of two is nothing new"


def test_bytes_count_too_and_what_can_not_be_merged_stays(
    made: Made, profiles: RunProfiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_profiles, "PLENTY_BYTES", 20_000)
    merger = Merger()
    profiles.merge = merger
    run = made.begin("12.0")
    profiles.begin(run)
    for minute in range(3):
        profiles.keep(number_of(made, run), minute, minute + 1.0, made_of(bytes(7000)))
    (_, _, done) = merger.asked.pop()
    done(b"")
    assert kept_times(made, profiles, run) == [(0, 1), (1, 2), (2, 3)]
    profiles.keep(number_of(made, run), 3.0, 4.0, made_of(b"x"))
    (_, _, done) = merger.asked.pop()
    with pytest.raises(ValueError, match="no profile"):
        done(b"something else")
    profiles.keep(number_of(made, run), 4.0, 5.0, made_of(b"x"))
    merger.answer()
    assert kept_times(made, profiles, run) == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_parts_that_were_deleted_meanwhile_do_not_come_back(
    made: Made, profiles: RunProfiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_profiles, "PLENTY_PARTS", 1)
    profiles.merge = merger = Merger()
    run = made.begin("12.0")
    profiles.begin(run)
    for minute in range(2):
        profiles.keep(number_of(made, run), minute, minute + 1.0, made_of(b"x"))
    store = made.agent.output.artifacts.store
    store.delete(store.stored(number_of(made, run))[0].name)
    merger.answer()
    assert kept_times(made, profiles, run) == [(1.0, 2.0)]


def test_a_run_of_before_the_boot_is_another_one(
    made: Made, profiles: RunProfiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_profiles, "MOST_BYTES", 12_000)
    run, other = made.begin("12.0"), made.begin("13.0")
    for each in (run, other):
        profiles.begin(each)
    made.node.runs.rows["run_number"][other] = number_of(made, run)
    profiles.begin(other)
    profiles.keep(number_of(made, run), 0.0, 1.0, made_of(bytes(7000)))
    assert kept_times(made, profiles, other) == [(0.0, 1.0)] and kept_times(made, profiles, run) == []


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


def test_a_full_disk_costs_a_part_alone_and_it_is_said(made: Made, disk: Callable[[str], Path]) -> None:
    """The reader of samples is told of it, and so are sinks. The run's row and what was kept before stay."""
    place = disk("256k")
    output = made.agent.output
    output.artifacts.store = ArtifactWriter(
        str(place / "artifacts"), run_artifacts.limits(made.node.config, str(place / "artifacts"))
    )
    profiles = RunProfiles(output.artifacts)
    run = made.begin("12.0")
    profiles.begin(run)
    assert profiles.keep(number_of(made, run), 0.0, 1.0, made_of(bytes(5000)))
    (place / "other").write_bytes(bytes(os.statvfs(place).f_bavail * 4096))
    large = segment.joined("99% f", b"\x1f\x8b\x08\0" + os.urandom(100_000))
    assert not profiles.keep(number_of(made, run), 1.0, 2.0, large)
    assert (told(made)[-1][0], made.node.runs.rows["profile_hottest"][run]) == (EventKind.LOSS, b"99% f")
    (place / "other").unlink()
    assert profiles.keep(number_of(made, run), 2.0, 3.0, large)
    assert kept_times(made, profiles, run)[-1] == (2.0, 3.0)


@pytest.mark.parametrize("is_starting", [False, True], ids=["it was back by then", "it was not"])
def test_what_only_a_killed_joblensd_has_sampled_of_a_run_that_is_over_is_declared(
    made: Made, profiles: RunProfiles, is_starting: bool
) -> None:
    """From its last part to the next joblensd, once: in pictures, JSON and records. It is the owner's as all others."""
    run = made.begin("12.0")
    number, node, levels = number_of(made, run), made.node, made.agent.levels
    profiles.begin(run)
    profiles.keep(number, BEGIN, BEGIN + 60.0, segment.joined("62% f", pprof.encode(Profile(BEGIN, BEGIN + 60.0))))
    node.runs.state["profile_seen"][run] = BEGIN + 60.0
    node.runs.rows["level_number"][run] = int(Level.PROFILE)
    node.runs.rows["profile_hottest"][run] = b"62% f"
    profile_level.take_over(levels, run)
    if is_starting:
        node.handles[run].sandbox = None  # its folder is gone
    else:
        can_sample(made, profiles, run)
    for _ in range(2):
        profile_level.finish(levels, run)
    reader = ArtifactReader(made.agent.output.artifacts.store.folder)
    parts = [reader.read(name) for _, _, _, name in told(made)]
    assert [header.kind for header, _ in parts] == ["profile", "profile", "off_cpu"]
    assert {(header.uid, header.owner) for header, _ in parts} == {(OWNER, "alice")}
    assert bytes(node.runs.rows["profile_hottest"][run]) == b"62% f"
    of_cpu = merged(pprof.decode(content) for header, content in parts if header.kind == "profile")
    ((first, last),) = of_cpu.unseen
    assert first == pytest.approx(BEGIN + 60.0, abs=0.01) and last == pytest.approx(time.time(), abs=60.0)
    for each in (of_cpu, *(pprof.decode(content) for _, content in parts[1:])):
        assert "not seen from " in flame_graph.flame_graph(each)
        assert json.loads(rendered(each, "json"))["Unseen"] == unseen.records(((first, last),))
    fields = profile_records.fields(parts[1][0], pprof.decode(parts[1][1]), "node01")
    assert (fields["Unseen"], fields["Total"]) == (unseen.records(((first, last),)), 0)


def can_sample(made: Made, profiles: RunProfiles, run: int) -> None:
    """As far as the end of a run asks."""
    without: Any = SimpleNamespace(end=lambda number: None, loaded=None)
    made.node.sampling = profile_level.Sampling(without, without, profiles, without)
    made.node.runs.state["kernel_slot"][run] = -1


def test_of_a_run_that_is_sampled_to_its_end_nothing_is_declared(made: Made, profiles: RunProfiles) -> None:
    run = made.begin("12.0")
    made.node.runs.state["profile_seen"][run] = BEGIN
    made.node.runs.rows["level_number"][run] = int(Level.PROFILE)
    can_sample(made, profiles, run)
    profile_level.finish(made.agent.levels, run)
    assert told(made) == []
