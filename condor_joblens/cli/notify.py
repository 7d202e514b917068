"""`joblens notify ID TEXT`: a running job is told something, in a file of its scratch folder."""

from __future__ import annotations

import argparse
import json
import os

from condor_joblens.cli import afar
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET
from condor_joblens.control.verbs import MOST_NOTICE

FILE = ".joblens/notices"
"""As in owner_files/notices.py, of the node's privileged half."""


def run(options: argparse.Namespace) -> int:
    """Has it written; exit code 0. Whether the job reads it, nobody knows."""
    said = " ".join(options.words)
    if not 0 < len(said.encode("utf-8", "surrogateescape")) <= MOST_NOTICE:
        raise UsageError(f"say something, of at most {MOST_NOTICE} bytes")
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    for _ in afar.asked(path, "notify", {"job": options.id, "text": said}):
        raise JobLensError("the node answers with more than notify has: install the same version of all parts")
    if options.json:
        print(json.dumps({"JobId": options.id, "File": FILE}))
    else:
        print(f"job {printable(options.id, 60)} has it in {FILE} of its scratch folder")
    return 0
