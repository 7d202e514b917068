"""`joblens trace ID --timeline`: processes, calls, files, connections and curves of a job on one axis of time."""

from __future__ import annotations

import argparse
import json
import os

from condor_joblens.cli import timeline_page, timeline_sources
from condor_joblens.cli.artifacts import write
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import style
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles import timeline, timeline_picture


def run(options: argparse.Namespace) -> int:
    """Prints it, or writes it as a picture; exit code 0."""
    if options.spec is not None or options.follow or options.tree or options.format:
        raise UsageError("--timeline is of what is kept of a job: leave out SPEC, --follow, --tree and --format")
    if options.output is not None and not options.output.endswith(".svg"):
        raise UsageError(f"{printable(options.output)} is no .svg: name one with -o, or leave -o out")
    folder = run_dir(options.run_dir)
    material = timeline_sources.gathered(folder, os.path.join(folder, SOCKET), options.id, options.series)
    try:
        made = timeline.made_of(material, options.since, options.until)
    except ValueError as error:
        raise JobLensError(f"job {printable(options.id)}: {error}") from None
    if options.output is not None:
        write(options.output, timeline_picture.picture(made).encode("utf-8", "replace"))
        print(f"{printable(options.output, 400)}: {timeline_picture.title(made)}")
    elif options.json:
        print(json.dumps(timeline.record(made), indent=2))
    else:
        print("\n".join(timeline_page.page(made, style())))
    return 0
