"""Profiles as records for sinks: the hottest paths and functions, in a bounded line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from profile_samples import hostile, profile, random_profile, waits

from condor_joblens.common.errors import JobLensError
from condor_joblens.export import profile_records
from condor_joblens.profiles import pprof
from condor_joblens.profiles.profile import UNPLACED, Profile, Stack
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter

LIMITS = ArtifactLimits(4 << 20, 1 << 30, 1e9)


def about(kind: str = "profile") -> Artifact:
    return Artifact(
        kind, pprof.CONTENT_TYPE, 7, 1.7e9, 1.7e9 + 60, run="ap#12.0#17#1", owner="alice", slot="slot1_1", node="n"
    )


def test_what_a_record_says() -> None:
    found = profile_records.fields(about(), profile(), "n")
    assert (found["Run"], found["GlobalJobId"], found["Owner"]) == ("ap#12.0#17#1", "ap#12.0#17", "alice")
    assert (found["View"], found["Unit"], found["Total"], found["Lost"], found["Guessed"]) == (
        "OnCpu",
        "samples",
        10,
        2,
        1,
    )
    assert found["Paths"][0] == {"Path": "_start;fit_tracks (fit.py:41);Tree::Fill(int)", "Value": 6}
    assert [path["Value"] for path in found["Paths"]] == [6, 3, 1] and found["OtherPaths"] == 0
    assert found["Functions"][0] == {
        "Function": "Tree::Fill(int)", "File": "/opt/lib/libTree.so", "Self": 6, "Total": 9,
    }  # fmt: skip
    assert found["Lacks"] == []


def test_code_without_a_place_is_counted() -> None:
    made = profile()
    before = made.samples
    made.add(Stack((UNPLACED,)), 3)
    found = profile_records.fields(about(), made, "n")
    assert (found["Unplaced"], found["Total"]) == (3, before + 3)


def test_waits_are_times() -> None:
    found = profile_records.fields(about("off_cpu"), waits(), "n")
    assert (found["View"], found["Unit"], found["Total"]) == ("OffCpu", "nanoseconds", 2_000_000_000)
    assert found["Lacks"] == ["waits in page faults"]


@pytest.mark.parametrize(
    "made", [hostile(), random_profile(1, 5000), random_profile(2, 0)], ids=["hostile", "many", "none"]
)
def test_a_record_is_a_bounded_line_and_all_samples_are_in_it(made: Profile) -> None:
    found = profile_records.fields(about(), made, "n")
    line = json.dumps(found, separators=(",", ":"))
    assert len(line) <= profile_records.MOST_RECORD_BYTES and line.isascii() and "\n" not in line
    assert sum(path["Value"] for path in found["Paths"]) + found["OtherPaths"] == made.samples
    assert all(len(path["Path"]) <= profile_records.MOST_PATH + 10 for path in found["Paths"])
    assert not re.search(r"[\x00-\x1f]", "".join(path["Path"] for path in found["Paths"]))


def test_it_is_read_from_its_artifact(tmp_path: Path) -> None:
    store = ArtifactWriter(str(tmp_path / "artifacts"), LIMITS)
    kept = store.add(about(), [pprof.encode(profile())])
    found = profile_records.read(store.folder, kept.name, "n")
    assert found["Artifact"] == kept.name and found["Id"] == f"n/{kept.name}" and found["Total"] == 10


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x1f\x8b" + bytes(100), bytes(2 << 20)])
def test_what_is_no_profile_or_too_large_is_said(tmp_path: Path, content: bytes) -> None:
    store = ArtifactWriter(str(tmp_path / "artifacts"), LIMITS)
    kept = store.add(about(), [content])
    with pytest.raises(JobLensError, match=kept.name):
        profile_records.read(store.folder, kept.name, "n")
    with pytest.raises(JobLensError, match="is not there"):
        profile_records.read(store.folder, "1.profile", "n")
