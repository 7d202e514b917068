"""`joblens hot ID`: the functions, lines or files in which a job of this node spent most time on a CPU, or waited."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any, Optional

from condor_joblens.cli import wait_lengths
from condor_joblens.cli.profiles import Kept, Span, span_of, view_of
from condor_joblens.cli.source_lines import lacking, with_lines
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common.errors import UsageError, printable
from condor_joblens.profiles import unseen
from condor_joblens.profiles.flame_graph import counts, title
from condor_joblens.profiles.hottest import BY, Heat, hottest
from condor_joblens.profiles.profile import Kind, Profile, View

_POLL_SECONDS = 3.0
_LONGEST = 200


def run(options: argparse.Namespace) -> int:
    """Prints; exit code 0."""
    if options.waits:
        return wait_lengths.run(options)
    kept = Kept(options.run_dir, only_here=options.has_lines or options.follow)  # lines are read in files of this node
    span = span_of(options)
    if options.follow and options.wall:
        raise UsageError("--follow shows each part as it comes, which is on the CPU or off it: leave --wall out")
    if options.has_lines:
        options.by = "line"
    if options.follow:
        follow(kept, options, span)
    profile = kept.profile([options.id], span, view_of(options))
    _print(profile, options, kept.user([options.id], span, view_of(options)) if options.has_lines else None)
    return 0


def follow(kept: Kept, options: argparse.Namespace, span: Span) -> None:
    """Prints each part that comes from now on, the newest that there is first; ends by KeyboardInterrupt."""
    seen: dict[int, float] = {}  # until when each run has been printed: older parts may become others
    while True:
        parts = kept.segments(options.id, span, View.OFF_CPU if options.off_cpu else View.ON_CPU)
        new = [each for each in parts if each.begun >= seen.get(each.run_number, 0.0)]
        for each in new if seen else new[-1:]:
            _print(kept.segment(options.id, each), options, each.uid)
        for each in parts:
            seen[each.run_number] = max(each.ended, seen.get(each.run_number, 0.0))
        time.sleep(_POLL_SECONDS)


def _print(profile: Profile, options: argparse.Namespace, uid: Optional[int]) -> None:
    without: list[str] = []
    if options.has_lines:
        profile, without = with_lines(profile, uid)
    found = hottest(profile, BY[options.by])
    if options.total:
        found.sort(key=lambda heat: (-heat.total, -heat.self, heat.name))
    shown = found[: options.lines]
    if options.json:
        said = {**record(profile, shown), **({"WithoutLines": without} if options.has_lines else {})}
        print(json.dumps(said, indent=None if options.follow else 2), flush=True)
    else:
        look = style()
        notes = look.wrapped(lacking(without)) if without else []
        print("\n".join([*page(profile, shown, options.by, look), *notes]), flush=True)


def page(profile: Profile, shown: Sequence[Heat], by: str, look: Style) -> list[str]:
    """The lines for a person."""
    samples = max(1, profile.samples)
    rows = [
        (f"{100 * heat.self / samples:.1f} %", f"{100 * heat.total / samples:.1f} %", _place(heat, by))
        for heat in shown
    ]
    lines = table(("SELF", "TOTAL", by.upper()), rows, by.upper(), look.width)
    return [
        look.paint(look.fit(printable(title(profile), 400)), "bold"),
        *look.wrapped(counts(profile)),
        look.paint(lines[0], "dim"),
        *(look.fit(line) for line in lines[1:]),
    ]


def record(profile: Profile, shown: Sequence[Heat]) -> dict[str, Any]:
    """The same in JSON."""
    return {
        "JobId": profile.job,
        "BeginTime": profile.begun,
        "EndTime": profile.ended,
        "View": profile.view.value,
        "Unit": "samples" if profile.view is View.ON_CPU else "nanoseconds",
        "Samples": profile.samples,
        "Lost": profile.lost,
        "Lacks": [*profile.lacks],
        "Unseen": unseen.records(profile.unseen),
        "Guessed": profile.guessed,
        "Unplaced": profile.unplaced,
        "NotOurs": profile.not_ours,
        "Hottest": [
            {
                "Name": printable(heat.name, 2000),
                "File": printable(heat.file, 2000),
                "Kind": heat.kind.value,
                "SelfSamples": heat.self,
                "TotalSamples": heat.total,
            }
            for heat in shown
        ],
    }


def _place(heat: Heat, by: str) -> str:
    name = printable(heat.name, _LONGEST)
    file = "" if by != "function" else heat.file.rpartition("/")[2]
    kernel = "  [kernel]" if heat.kind is Kind.KERNEL and by != "file" else ""
    return f"{name}  {printable(file)}" if file and not name.startswith(file) else name + kernel
