"""`joblens last ID`: what a running job of this node did last. It is kept as if the job had died now."""

from __future__ import annotations

import argparse
import itertools
import os
import time

from condor_joblens.cli import afar, before_death
from condor_joblens.cli.artifacts import listed
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles import last_events

PATIENCE = 30.0
LOOK_EVERY, QUICK_LOOKS = 0.1, 10
SECOND = 1.0
"""Between further looks: no access point vouches for more of a user in the long run (control/audit.py)."""


def run(options: argparse.Namespace) -> int:
    """Has it kept, waits for that and prints it; exit code 0."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    try:
        tagged = float(afar.told(path, "last", {"job": options.id})["tagged"])
    except (KeyError, ValueError):
        raise JobLensError("the node answers in another protocol: install the same version of all parts") from None
    until = time.monotonic() + PATIENCE
    for look in itertools.count():
        if any(abs(ended - tagged) < 1e-3 for ended in _kept(path, options.id)):
            return before_death.run(options)
        if time.monotonic() > until:
            break
        time.sleep(LOOK_EVERY if look < QUICK_LOOKS else SECOND)
    raise JobLensError(f"what job {printable(options.id)} did last is not there after {PATIENCE:.0f} s: ask root why")


def _kept(path: str, job: str) -> list[float]:
    try:
        return [each.ended for each in listed(path, job) if each.kind == last_events.KIND]
    except JobLensError:  # nothing at all is kept of it yet
        return []
