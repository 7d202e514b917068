"""`joblens history`: the jobs that have left an access point's queue, a line each, in 80 columns."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from condor_joblens.cli import accesspoint, job_summaries, job_table
from condor_joblens.cli.job_table import JobLine
from condor_joblens.cli.status import below_headers
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common.errors import JobLensError

HEADERS = ("JOB", "OWNER", "ENDED", "WALL", "EFF", "MEMORY", "WAITS", "HOW")
LEFT = "JOB OWNER ENDED WAITS HOW"

LATEST = 20
"""Jobs that are shown unless more are asked for."""


def run(options: argparse.Namespace) -> int:
    """Prints the jobs, the latest first; exit code 0. Raises JobLensError if there is none."""
    selected, whose = job_table.selection(options.job, options.owner, options.all, options.constraint)
    if options.since:
        # the history is read backwards, and no further than to the first job that left before
        selected += ["-since", f"EnteredCurrentStatus < {time.time() - options.since:.0f}"]
    most = options.jobs or (None if options.since or options.job else LATEST)
    selected += ["-limit", str(most)] if most else []
    with job_table.naming(options.constraint):
        ads = accesspoint.read_ads(
            "condor_history", *selected, attributes=job_table.ATTRIBUTES, timeout=job_summaries.TIMEOUT_SECONDS
        )
    if not ads:
        there = "joblens q shows those that are in the queue"
        raise JobLensError(job_table.none_found(options.job, whose, "history", there))
    found = [job_table.job_line(ad, time.time()) for ad in ads]
    if options.json:
        import json

        print(json.dumps([line.record() for line in found], indent=2))
    else:
        print("\n".join(lines(found, whose, most, style())))
    return 0


def lines(found: Sequence[JobLine], whose: str, most: int | None, look: Style) -> list[str]:
    """The table, in the order of `found`. `most`: how many were asked for, if not all."""
    headers = HEADERS if job_table.of_several_owners(found) else tuple(name for name in HEADERS if name != "OWNER")
    body = table(headers, [_cells(line, "OWNER" in headers) for line in found], LEFT, look.width)
    title = job_table.counted(found, whose, ("ended", "removed"))
    if len(found) == most:
        title = f"the latest {title}; -n shows more"
    return [look.paint(look.fit(title), "bold"), *below_headers(body, look)]


def _cells(line: JobLine, with_owner: bool) -> tuple[str, ...]:
    who = (line.owner[:16],) if with_owner else ()
    ended = time.strftime("%m-%d %H:%M", time.localtime(line.ended)) if line.ended else "-"
    return line.job, *who, ended, line.wall, line.efficiency, line.memory, line.wait, _how(line)


def _how(line: JobLine) -> str:
    """`exit 0`, `exit 0, but xrdcp exited 54, 12 s before the end`, `removed: via condor_rm`."""
    if line.state != "ended":
        return f"{line.state}: {line.reason}" if line.reason else line.state
    return line.reason or (f"exit 0, but {line.first_failure}" if line.first_failure else "exit 0")
