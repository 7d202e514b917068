"""`joblens watch ID`: a line whenever the numbers of a job of this node are taken, until the job is over."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Generator

from condor_joblens.cli.runs import Run, from_rows, run_dir
from condor_joblens.cli.status import HEADERS, cells
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import SOCKET, client

WIDTHS = {"LEVEL": -7, "CORES": 11, "MEMORY": 14, "READ": 9, "WRITTEN": 9, "PROC": 6, "TIME": 11}
"""Columns of `joblens status` that are shown, and their widths; below 0: aligned to the left."""

SHOWN = [HEADERS.index(name) for name in WIDTHS]


def run(options: argparse.Namespace) -> int:
    """Prints until the job is over or so many lines are out; exit code 0."""
    look, shown, latest, noted = style(), 0, None, ""
    with contextlib.closing(watch(os.path.join(run_dir(options.run_dir), SOCKET), options.id)) as runs:
        for latest in runs:
            if options.json:
                import json

                print(json.dumps(latest.record()), flush=True)
            else:
                if not shown:
                    print(look.paint(look.fit(heading(latest)), "bold"))
                    print(look.paint(look.fit(line(HEADERS)), "dim"))
                said = [look.fit(line(cells(latest, time.time())))]
                if latest.fact("note") != noted:
                    noted = latest.fact("note")
                    said += look.wrapped(noted or "all is well again", "note: ", "  ")
                print("\n".join(said), flush=True)
            shown += 1
            if shown == options.lines:
                return 0
    if latest is not None and not options.json:
        print(ending(latest, look))
    return 0


def watch(path: str, job: str) -> Generator[Run, None, None]:
    """The states of a job's run, the present one first. Raises JobLensError if joblensd refuses or does not answer."""
    import numpy as np

    from condor_joblens.model.metrics import ROW, SCHEMA_HASH

    with contextlib.closing(client.stream(path, "watch", {"job": job, "schema": f"{SCHEMA_HASH:016x}"})) as chunks:
        for chunk in chunks:
            if len(chunk) != ROW.itemsize:
                raise JobLensError("joblensd sends rows of another version: install the same version of both")
            yield from from_rows(np.frombuffer(chunk, ROW))


def heading(run: Run) -> str:
    """`job 12.0 of alice in slot1_1`."""
    return f"job {run.fact('job_id') or '?'} of {run.fact('owner') or '?'} in {run.fact('slot')}"


def line(values: tuple[str, ...]) -> str:
    """One line of the table, from the cells of a line of `joblens status`."""
    padded = []
    for position, width in zip(SHOWN, WIDTHS.values()):
        padded.append(values[position].ljust(-width) if width < 0 else values[position].rjust(width))
    return " ".join(padded).rstrip()


def ending(run: Run, look: Style) -> str:
    """What is said when no more numbers come."""
    death = run.fact("death")
    return look.fit(f"the job is over: {death}" if death else "the job is over")
