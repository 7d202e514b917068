"""`joblens q`: the jobs of an access point's queue, a line each, in 80 columns."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from condor_joblens.analysis.job_summary import id_order
from condor_joblens.cli import accesspoint, job_table
from condor_joblens.cli.job_table import JobLine
from condor_joblens.cli.status import below_headers
from condor_joblens.cli.terminal import Style, notes, style, table
from condor_joblens.common.errors import JobLensError

HEADERS = ("JOB", "OWNER", "STATE", "LEVEL", "WALL", "EFF", "MEMORY", "WAITS", "PROGRAM")
LEFT = "JOB OWNER STATE LEVEL WAITS PROGRAM"
SPARE = "PROGRAM LEVEL"

ORDER = ("running", "output", "suspended", "held", "idle", "removed", "ended")


def run(options: argparse.Namespace) -> int:
    """Prints the jobs of the queue; exit code 0. Raises JobLensError if there is none."""
    selected, whose = job_table.selection(options.job, options.owner, options.all, options.constraint)
    with job_table.naming(options.constraint):
        ads = accesspoint.read_ads("condor_q", "-allusers", *selected, attributes=job_table.ATTRIBUTES)
    if not ads:
        there = "joblens history shows those that have left it"
        raise JobLensError(job_table.none_found(options.job, whose, "queue", there))
    found = sorted((job_table.job_line(ad, time.time()) for ad in ads), key=lambda line: id_order(line.job))
    if options.json:
        import json

        print(json.dumps([line.record() for line in found], indent=2))
    else:
        print("\n".join(lines(found, whose, style())))
    return 0


def lines(found: Sequence[JobLine], whose: str, look: Style) -> list[str]:
    """The table: those that run first, and below it why jobs are held."""
    headers = HEADERS if job_table.of_several_owners(found) else tuple(name for name in HEADERS if name != "OWNER")
    ordered = sorted(found, key=lambda line: ORDER.index(line.state) if line.state in ORDER else len(ORDER))
    rows = [_cells(line, "OWNER" in headers) for line in ordered]
    body = table(headers, rows, LEFT, look.width, SPARE)
    title = job_table.counted(found, whose, ORDER)
    reasons = notes(((line.job, line.reason) for line in ordered if line.state == "held"), look)
    return [look.paint(look.fit(title), "bold"), *below_headers(body, look), *reasons]


def _cells(line: JobLine, with_owner: bool) -> tuple[str, ...]:
    who = (line.owner[:16],) if with_owner else ()
    return (
        line.job, *who, line.state, line.level or "-", line.wall, line.efficiency, line.memory, line.wait, line.program,
    )  # fmt: skip
