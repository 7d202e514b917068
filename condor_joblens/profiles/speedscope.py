"""Profiles for https://www.speedscope.app, a viewer of one web page: https://www.speedscope.app/file-format-schema.json."""

from __future__ import annotations

from typing import Any

from condor_joblens.profiles.profile import Frame, Profile, View
from condor_joblens.profiles.text import clean


def speedscope(profile: Profile, name: str) -> dict[str, Any]:
    """The document; each thread of each process is a profile of its own in it, those with most samples first."""
    numbers: dict[Frame, int] = {}
    threads: dict[tuple[str, int, str], tuple[list[list[int]], list[int]]] = {}
    for stack, count in profile.stacks.items():
        samples, weights = threads.setdefault((stack.process, stack.pid, stack.thread), ([], []))
        samples.append([numbers.setdefault(frame, len(numbers)) for frame in stack.frames])
        weights.append(count)
    ordered = sorted(threads.items(), key=lambda each: (-sum(each[1][1]), each[0]))
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "condor_joblens",
        "name": clean(name),
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(frame) for frame in numbers]},
        "profiles": [
            {
                "type": "sampled",
                "name": clean(f"{process or 'process'} ({pid}), thread {thread or '(no name)'}"),
                "unit": "none" if profile.view is View.ON_CPU else "nanoseconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
            for (process, pid, thread), (samples, weights) in ordered
        ],
    }


def _frame(frame: Frame) -> dict[str, Any]:
    found: dict[str, Any] = {"name": clean(frame.function), "file": clean(frame.file or frame.library)}
    return {**found, "line": frame.line} if frame.line else found
