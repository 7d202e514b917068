"""`joblens hot ID --waits`: how long a job's system calls have waited, by class of call and by length."""

from __future__ import annotations

import argparse
import json
import os
import time

from condor_joblens.cli import units
from condor_joblens.cli.artifacts import fetched, listed
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles.call_waits import KIND, LENGTHS_NS, CallWaits, ClassWaits, decode, merged, record

NOTHING = (
    "how long calls of job {job} wait is not kept: it needs level profile (`joblens level {job} profile`, or "
    "+JobLensLevel), and some seconds"
)

COLUMNS = (("<16us", 15_625), ("<125us", 125_000), ("<1ms", 1e6), ("<8ms", 8e6), ("<64ms", 64e6), ("<1s", 1024e6))
"""Some lengths together: what a column is called, and where in LENGTHS_NS it ends."""


def run(options: argparse.Namespace) -> int:
    """Prints; exit code 0."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    kept = [each for each in listed(path, options.id) if each.kind == KIND]
    if not kept:
        raise JobLensError(NOTHING.format(job=printable(options.id)))
    about = kept[-1]
    mine = [each.name for each in kept if each.run_number == about.run_number]
    try:
        found = merged(decode(fetched(path, options.id, name)[1]) for name in mine)
    except ValueError as error:
        raise JobLensError(printable(str(error))) from None
    parts = about.run.split("#")
    job = parts[-3] if len(parts) > 3 else about.run
    if options.json:
        print(json.dumps({"JobId": job, **record(found)}, indent=2))
    else:
        print("\n".join(page(found, job, about.node, style())))
    return 0


def page(found: CallWaits, job: str, node: str, look: Style) -> list[str]:
    """The lines for a person."""
    begun, ended = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when)) for when in (found.begun, found.ended))
    short, long = (sum(getattr(each, name) for each in found.classes.values()) for name in ("short", "long"))
    short_ns, long_ns = (sum(getattr(each, f"{name}_ns") for each in found.classes.values()) for name in _LENGTHS)
    rows = [(name, *_row(each)) for name, each in found.classes.items()]
    lines = table(
        ("CALLS", "DID NOT WAIT", *(name for name, _ in COLUMNS), "LONGER", "WAITED"), rows, "CALLS", look.width
    )
    return [
        look.paint(look.fit(printable(f"job {job} on {node}, waits of system calls, {begun} to {ended}", 400)), "bold"),
        *look.wrapped(
            f"{units.count(short, 'wait')} below a millisecond, {short_ns / 1e9:,.3f} s together; "
            f"{units.count(long, 'longer one')}, {long_ns / 1e9:,.3f} s: joblens hot --off-cpu shows where"
        ),
        look.paint(lines[0], "dim"),
        *(look.fit(line) for line in lines[1:]),
    ]


_LENGTHS = ("short", "long")


def _row(each: ClassWaits) -> list[str]:
    bounds = [0, *(LENGTHS_NS.index(end) for _, end in COLUMNS), len(LENGTHS_NS)]
    counts = [sum(each.waits[first:end]) for first, end in zip(bounds, bounds[1:])]
    seconds = (each.short_ns + each.long_ns) / 1e9
    return [f"{each.did_not_wait:,}", *(f"{count:,}" for count in counts), units.latency(seconds) if seconds else "-"]
