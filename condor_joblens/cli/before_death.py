"""`joblens job ID --before-death`: what a job of this node did before it died, and how many seconds that is."""

from __future__ import annotations

import argparse
import json
import os
import time

from condor_joblens.cli.artifacts import fetched, listed
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import Style, style
from condor_joblens.cli.units import count
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles import last_events
from condor_joblens.profiles.last_events import Coverage, Event

SHOWN = 60
"""Events that a person is shown, the last ones."""

NOTHING = (
    "no last events of job {job} are kept on this node. They are kept when a job dies that was at level trace then "
    "(`joblens level {job} trace`, or +JobLensLevel). If it was, its Note (`joblens job {job}`) says what was missing"
)


def run(options: argparse.Namespace) -> int:
    """Prints the newest that is kept; exit code 0."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    kept = [each for each in listed(path, options.id) if each.kind == last_events.KIND]
    if not kept:
        raise JobLensError(NOTHING.format(job=printable(options.id)))
    about, content = fetched(path, options.id, kept[-1].name)
    try:
        coverage, events = last_events.decode(content)
    except ValueError as error:
        raise JobLensError(f"{about.name}: {printable(str(error))}") from None
    if options.json:
        print(json.dumps({"Run": about.run, "Artifact": about.name, **last_events.record(coverage, events)}, indent=2))
    else:
        print("\n".join(page(coverage, events, style())))
    return 0


def page(coverage: Coverage, events: list[Event], look: Style) -> list[str]:
    """The lines for a person, the last event last."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(coverage.tagged))
    heads = {
        "death": f"It died at {when}: {coverage.death}",
        "ended": f"It ended at {when}: {coverage.death}",
        "hang": f"It seemed to hang at {when}",
        "trigger": f"A trigger of the site kept it at {when}",
    }
    lines = look.wrapped(heads.get(coverage.cause, f"It was asked for at {when}"))
    lines += look.wrapped(_covered(coverage))
    if coverage.lost:
        lines += look.wrapped(f"{count(coverage.lost, 'event')} could not be recorded.")
    if coverage.not_ours:
        lines += look.wrapped(
            f"{count(coverage.not_ours, 'event')} of processes with other credentials than the job's: not recorded."
        )
    lines.append("")
    if len(events) > SHOWN:
        lines.append(look.paint(look.fit(f"... {len(events) - SHOWN} earlier ones: --json has all"), "dim"))
    lines += [look.fit(line(event, coverage.tagged)) for event in events[-SHOWN:]]
    return lines


def line(event: Event, end: float) -> str:
    """`-1.204 s  4711 python3  openat failed, ENOENT: /data/x`."""
    what = f"{event.call} failed" if event.what == "failed" else event.what
    parts = ", ".join(part for part in (what, event.result) if part)
    about = f": {event.about}" if event.about else ""
    return f"{event.time - end:+10.3f} s  {event.pid or '-':>7} {event.program:<15} {parts}{about}"


def _covered(coverage: Coverage) -> str:
    """From when on the events of each ring are whole."""
    if coverage.since >= max(coverage.rare_since, coverage.frequent_since):
        return f"Events since recording began, {_seconds(coverage, coverage.since)} before that."
    words = (
        f"Failures, programs, signals and ends of the {_seconds(coverage, coverage.rare_since)} before that; opened "
        f"files, forks, connections, traced calls and commands of the {_seconds(coverage, coverage.frequent_since)} "
        "before."
    )
    if coverage.since >= coverage.rare_since:
        words += f" Recording began {_seconds(coverage, coverage.since)} before."
    return words


def _seconds(coverage: Coverage, since: float) -> str:
    return f"{max(0.0, coverage.tagged - since):.3f} s"
