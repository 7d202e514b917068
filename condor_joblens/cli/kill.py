"""`joblens kill ID [PID]`: a process of a running job of this node gets a signal."""

from __future__ import annotations

import argparse
import json
import os
import sys

from condor_joblens.cli.child_output import messages, record
from condor_joblens.cli.runs import run_dir
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT

FIELDS = {"Pid": int, "Signal": str, "Command": str}


def run(options: argparse.Namespace) -> int:
    """Asks, and tells what has got it; exit code 0."""
    arguments = {"job": options.id, "signal": str(options.signal)}
    if options.pid is not None:
        arguments["pid"] = str(options.pid)
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "kill", arguments):
        if kind != CONTENT:
            print(f"joblens: {said.decode()}", file=sys.stderr)
            continue
        done = record(said, FIELDS)
        print(json.dumps(done) if options.json else f"{done['Signal']} to process {done['Pid']}: {done['Command']}")
    return 0
