"""`joblens peek ID FILE:NAME`: what a variable of a running job holds, read while the job goes on."""

from __future__ import annotations

import argparse
import json
import os
import sys

from condor_joblens.cli.child_output import messages, record
from condor_joblens.cli.runs import run_dir
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT


def run(options: argparse.Namespace) -> int:
    """Asks, and prints a line for each process; exit code 0 if one of them shows it."""
    arguments = {"job": options.id, "spec": options.spec}
    if options.pid is not None:
        arguments["pid"] = str(options.pid)
    found = []
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "peek", arguments):
        if kind != CONTENT:
            print(f"joblens: {said.decode()}", file=sys.stderr)
            continue
        words = {"Type": str, "Value": str, "Why": str}
        found.append(record(said, {"Pid": int, "File": str, "Variable": str}, words))
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for each in found:
            held = f" = {each['Value']}  ({each.get('Type', '')})" if "Value" in each else f": {each.get('Why', '')}"
            print(f"{each['Pid']}  {each['File'].rpartition('/')[2]}  {each['Variable']}{held}")
    return 0 if any("Value" in each for each in found) else 1
