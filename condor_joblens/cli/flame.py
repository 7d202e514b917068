"""`joblens flame ID ...`: where the time of jobs of this node went, as a flame graph or for other programs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from condor_joblens.cli.artifacts import write
from condor_joblens.cli.profiles import Kept, span_of, view_of
from condor_joblens.cli.source_lines import lacking, with_lines
from condor_joblens.common.errors import UsageError, printable
from condor_joblens.profiles import pprof, unseen
from condor_joblens.profiles.flame_graph import counts, flame_graph, title
from condor_joblens.profiles.folded import folded
from condor_joblens.profiles.profile import Profile, View, by_library, by_line, under
from condor_joblens.profiles.speedscope import speedscope
from condor_joblens.profiles.text import clean

FILES = {"svg": "flame.svg", "pprof": "profile.pb.gz", "speedscope": "profile.speedscope.json"}
"""Where each format goes unless -o says it; the others go to standard output."""


def run(options: argparse.Namespace) -> int:
    """Writes a file and says so, or writes to standard output; exit code 0."""
    form = options.format or ("json" if options.json else "svg")
    if options.compare and form != "svg":
        raise UsageError("--compare is drawn as a picture only: leave --format out")
    if options.has_lines and options.by == "library":
        raise UsageError("--lines is about functions: leave --by library out")
    kept = Kept(options.run_dir, only_here=options.has_lines)  # lines are read in the files of this node
    span, view = span_of(options), view_of(options)
    without: set[str] = set()

    def taken(jobs: list[str]) -> Profile:
        found = kept.profile(jobs, span, view)
        if options.has_lines:
            found, lacks = with_lines(found, kept.user(jobs, span, view))
            without.update(lacks)
            found = by_line(found) if form == "svg" else found
        return _grouped(found, options)

    profile = taken(options.ids)
    other = taken([options.compare]) if options.compare else None
    content = rendered(profile, form, other)
    output = options.output or FILES.get(form, "-")
    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        if without:
            print(lacking(sorted(without)), file=sys.stderr)
        return 0
    write(output, content)
    print(f"{printable(output, 400)}: {printable(title(profile), 400)}; {counts(profile)}")
    if without:
        print(lacking(sorted(without)))
    return 0


def rendered(profile: Profile, form: str, other: Profile | None = None) -> bytes:
    """The profile in that format."""
    if form == "svg":
        return flame_graph(profile, other).encode("utf-8", "replace")
    if form == "folded":
        return folded(profile).encode("utf-8", "replace")
    if form == "pprof":
        return pprof.encode(profile)
    document = speedscope(profile, title(profile)) if form == "speedscope" else record(profile)
    return json.dumps(document).encode() + b"\n"


def record(profile: Profile) -> dict[str, Any]:
    """All of a profile in JSON. A stack has its outermost caller first. Off the CPU, samples are nanoseconds."""
    frames = {frame: number for number, frame in enumerate(dict.fromkeys(f for s in profile.stacks for f in s.frames))}
    return {
        "JobId": profile.job,
        "Node": profile.node,
        "BeginTime": profile.begun,
        "EndTime": profile.ended,
        "View": profile.view.value,
        "Unit": "samples" if profile.view is View.ON_CPU else "nanoseconds",
        "Waits": profile.waits,
        "Taken": profile.taken,
        "Hz": profile.hz,
        "Samples": profile.samples,
        "Lost": profile.lost,
        "Lacks": [*profile.lacks],
        "Unseen": unseen.records(profile.unseen),
        "Guessed": profile.guessed,
        "Unplaced": profile.unplaced,
        "Broken": profile.broken,
        "NotOurs": profile.not_ours,
        "Frames": [
            {
                "Function": clean(frame.function),
                "Kind": frame.kind.value,
                "File": clean(frame.file),
                "Line": frame.line,
                "Offset": frame.offset,
                "BuildId": frame.build_id,
            }
            for frame in frames
        ],
        "Stacks": [
            {
                "Samples": count,
                "Pid": stack.pid,
                "Process": clean(stack.process),
                "Thread": clean(stack.thread),
                "Guessed": stack.is_guessed,
                "Frames": [frames[frame] for frame in stack.frames],
            }
            for stack, count in profile.stacks.items()
        ],
    }


def _grouped(profile: Profile, options: argparse.Namespace) -> Profile:
    if options.by == "library":
        profile = by_library(profile)
    return (
        under(profile, process=options.process, thread=options.thread) if options.process or options.thread else profile
    )
