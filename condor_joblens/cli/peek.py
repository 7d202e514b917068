"""`joblens peek ID FILE:NAME`: what a variable of a running job holds, read while the job goes on.

With `--every` again and again, a line for each value as it comes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from condor_joblens.cli.child_output import messages, record
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import UsageError
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT
from condor_joblens.control.verbs import MOST_TRACE_SECONDS

_FIELDS = {"Pid": int, "File": str, "Variable": str}
_OPTIONAL = {"Time": float, "Type": str, "Value": str, "Why": str}

Seen = dict[str, Any]


def run(options: argparse.Namespace) -> int:
    """Asks, and prints a line for each process and value; exit code 0 if one of them shows it."""
    if options.every is None and options.seconds is not None:
        raise UsageError("--for is of a series: say how often by --every, for example --every 2s")
    return _series(options) if options.every is not None else _once(options)


def _once(options: argparse.Namespace) -> int:
    found = list(_seen(options, {}))
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for each in found:
            print(line(each))
    return 0 if any("Value" in each for each in found) else 1


def _series(options: argparse.Namespace) -> int:
    """None of it is kept."""
    seconds = options.seconds or MOST_TRACE_SECONDS
    asked = {"follow": "1", "every": str(options.every), "seconds": str(seconds)}
    is_shown = False
    for each in _seen(options, asked):
        is_shown |= "Value" in each
        print(json.dumps(each) if options.json else f"{_clock(each)}  {line(each)}", flush=True)
    return 0 if is_shown else 1


def _seen(options: argparse.Namespace, asked: dict[str, str]) -> Iterator[Seen]:
    """What the node tells, as it comes. Raises JobLensError."""
    arguments = {"job": options.id, "spec": options.spec, **asked}
    if options.pid is not None:
        arguments["pid"] = str(options.pid)
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "peek", arguments):
        if kind == CONTENT:
            yield record(said, _FIELDS, _OPTIONAL)
        else:
            print(f"joblens: {said.decode()}", file=sys.stderr, flush=True)


def line(each: Seen) -> str:
    """`7  reco  state.run[3] = 22  (int)`, or why there is no value."""
    held = f" = {each['Value']}  ({each.get('Type', '')})" if "Value" in each else f": {each.get('Why', '')}"
    return f"{each['Pid']}  {each['File'].rpartition('/')[2]}  {each['Variable']}{held}"


def _clock(each: Seen) -> str:
    try:
        return time.strftime("%H:%M:%S", time.localtime(each.get("Time", 0.0)))
    except (OverflowError, ValueError, OSError):
        return "--:--:--"  # a time that is none
