"""`joblens last ID`: what a running job of this node did last. It is kept as if the job had died now."""

from __future__ import annotations

import argparse
import os
import time

from condor_joblens.cli import before_death
from condor_joblens.cli.artifacts import listed
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import SOCKET, client
from condor_joblens.profiles import last_events

PATIENCE = 30.0
LOOK_EVERY = 0.1


def run(options: argparse.Namespace) -> int:
    """Has it kept, waits for that and prints it; exit code 0."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    tagged = float(client.ask(path, "last", {"job": options.id})["tagged"])
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if any(abs(ended - tagged) < 1e-3 for ended in _kept(path, options.id)):
            return before_death.run(options)
        time.sleep(LOOK_EVERY)
    raise JobLensError(f"what job {printable(options.id)} did last is not there after {PATIENCE:.0f} s: ask root why")


def _kept(path: str, job: str) -> list[float]:
    try:
        return [each.ended for each in listed(path, job) if each.kind == last_events.KIND]
    except JobLensError:  # nothing at all is kept of it yet
        return []
