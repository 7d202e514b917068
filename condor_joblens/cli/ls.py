"""`joblens ls ID [FOLDER]`: what is in a folder of a running job, below its scratch folder."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import time
from typing import Any

from condor_joblens.cli.child_output import messages, record
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.units import volume
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT

FIELDS = {
    "Name": str,
    "Kind": str,
    "Mode": int,
    "Bytes": int,
    "DiskBytes": int,
    "Modified": int,
    "Target": str,
}
_MARKS = {"folder": "/", "pipe": "|", "socket": "=", "device": "%", "other": "?"}


def run(options: argparse.Namespace) -> int:
    """Asks, and prints; exit code 0."""
    entries, notices = [], []
    arguments = {"job": options.id, "folder": options.folder}
    for kind, said in messages(os.path.join(run_dir(options.run_dir), SOCKET), "ls", arguments):
        if kind == CONTENT:
            entries.append(record(said, FIELDS))
        else:
            notices.append(said.decode())
    if options.json:
        print(json.dumps(entries, indent=2))
    else:
        sys.stdout.writelines(f"{line(entry)}\n" for entry in entries)
    for notice in notices:
        print(f"joblens: {notice}", file=sys.stderr)
    return 0


def line(entry: dict[str, Any]) -> str:
    """An entry for a person: rights, size, time of the last change, name."""
    rights = stat.filemode(entry["Mode"] & 0o7777)[1:]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(max(0, entry["Modified"]), 1 << 37)))
    name = entry["Name"] + _MARKS.get(entry["Kind"], "")
    target = f" -> {entry['Target']}" if entry["Target"] else ""
    return f"{rights}  {volume(entry['Bytes']):>9}  {when}  {name}{target}"
