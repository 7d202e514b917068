"""`joblens env ID [PID]`: the environment of a process of a running job, without what is a secret."""

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
    """Asks, and prints; exit code 0."""
    variables: list[dict[str, str]] = []
    notices = []
    arguments = {"job": options.id} if options.pid is None else {"job": options.id, "pid": str(options.pid)}
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "env", arguments):
        if kind == CONTENT:
            variables.append(record(said, {"Name": str}, {"Value": str}))
        else:
            notices.append(said.decode())
    if options.json:
        print(json.dumps(variables, indent=2))
    else:
        for each in variables:
            print(f"{each['Name']}={each['Value']}" if "Value" in each else each["Name"])
    for notice in notices:
        print(f"joblens: {notice}", file=sys.stderr)
    return 0
