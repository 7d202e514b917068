"""Profiles of runs -> records: what was hottest in a minute of a job, by path and by function, in a line of JSON.

An event announces the artifact, which joblensd has written of what a job's programs call their functions. So what is
read of it is bounded, and so is the record. What has no room in it is counted in OtherPaths.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import SCHEMA
from condor_joblens.profiles import folded, pprof, unseen
from condor_joblens.profiles.hottest import hottest
from condor_joblens.profiles.profile import Frame, Profile, View
from condor_joblens.profiles.text import clean
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import ArtifactReader

KINDS = frozenset({"profile", "off_cpu"})
"""Of artifacts that are profiles."""

MOST_ARTIFACT_BYTES = 1 << 20
"""joblensd writes none that is larger."""

MOST_UNPACKED_BYTES = 8 << 20
"""Some 20,000 different stacks, which take 0.3 s to read."""

MOST_RECORD_BYTES = 64 << 10
MOST_PATHS, MOST_FUNCTIONS = 200, 50
MOST_PATH = 4000
"""Characters of a path; of a longer one the innermost functions are kept."""

MOST_READ = 2000
"""Stacks that are put into words: those that were seen most. What they don't stand for is in OtherPaths."""

_VIEWS = {View.ON_CPU: ("OnCpu", "samples"), View.OFF_CPU: ("OffCpu", "nanoseconds")}


def read(folder: str, name: str, node: str) -> dict[str, Any]:
    """The fields of the record of an artifact in that folder. Raises JobLensError if it is gone, or can't be read."""
    reader = ArtifactReader(folder)
    about = reader.describe(name)
    if about.length > MOST_ARTIFACT_BYTES:
        raise JobLensError(f"{name} has {about.length} bytes: more than a profile of ours")
    about, content = reader.read(name)
    try:
        profile = pprof.decode(content, MOST_UNPACKED_BYTES)
    except (ValueError, MemoryError, RecursionError) as error:
        raise JobLensError(f"{name} is no profile: {error}") from None
    return fields(about, profile, node)


def fields(about: Artifact, profile: Profile, node: str) -> dict[str, Any]:
    """The record as a dictionary; MOST_RECORD_BYTES at most as JSON."""
    view, unit = _VIEWS[profile.view]
    found: dict[str, Any] = {
        "Type": "profile",
        "Id": f"{node}/{about.name}",
        "Schema": SCHEMA,
        "Node": node,
        "Time": about.ended,
        "Run": about.run,
        "GlobalJobId": about.run.rpartition("#")[0] or about.run,
        "RunNumber": about.run_number,
        "Owner": about.owner,
        "Slot": about.slot,
        "Artifact": about.name,
        "View": view,
        "Unit": unit,
        "BeginTime": about.begun,
        "EndTime": about.ended,
        "Frequency": profile.hz,
        "Total": profile.samples,
        "Lost": profile.lost,
        "Guessed": profile.guessed,
        "Broken": profile.broken,
        "NotOurs": profile.not_ours,
        "Unplaced": profile.unplaced,
        "Lacks": [*profile.lacks],
        "Unseen": unseen.records(profile.unseen),
    }
    room = MOST_RECORD_BYTES - len(json.dumps(found)) - 100
    found["Functions"] = _fitting(_functions(profile), room // 2)
    found["Paths"] = _fitting(_paths(profile), room - len(json.dumps(found["Functions"])))
    found["OtherPaths"] = profile.samples - sum(path["Value"] for path in found["Paths"])
    return found


def _functions(profile: Profile) -> list[dict[str, Any]]:
    return [
        {"Function": clean(heat.name), "File": clean(heat.file), "Self": heat.self, "Total": heat.total}
        for heat in hottest(profile)[:MOST_FUNCTIONS]
    ]


def _paths(profile: Profile) -> list[dict[str, Any]]:
    same: Counter[tuple[Frame, ...]] = Counter()
    for stack, count in profile.stacks.items():
        same[stack.frames] += count
    counts: Counter[str] = Counter()
    for frames, count in same.most_common(MOST_READ):
        counts[_path(frames)] += count
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return [{"Path": path, "Value": value} for path, value in ordered[:MOST_PATHS]]


def _path(frames: tuple[Frame, ...]) -> str:
    names: list[str] = []
    room = MOST_PATH
    for frame in reversed(frames):
        name = folded.name(frame)
        room -= len(name) + 1
        if room < 0:
            names.append("...")
            break
        names.append(name)
    return ";".join(reversed(names))


def _fitting(items: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """As many of them, from the first on, as fit into so many bytes of JSON."""
    for place, item in enumerate(items):
        room -= len(json.dumps(item)) + 2
        if room < 0:
            return items[:place]
    return items
