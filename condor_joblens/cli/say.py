"""`joblens say WORDS`, from inside of a running job: what it does just now, for its row and its ad."""

from __future__ import annotations

import argparse
import json
import os

from condor_joblens.cli.runs import run_dir
from condor_joblens.control import SOCKET, client


def run(options: argparse.Namespace) -> int:
    """Tells joblensd, which knows of itself whose process this is; exit code 0."""
    return tell(options, {"words": " ".join(options.words)})


def tell(options: argparse.Namespace, said: dict[str, str]) -> int:
    """The same for anything that is said. A job's output is its own: without --json nothing is printed."""
    answer = client.ask(os.path.join(run_dir(options.run_dir), SOCKET), "say", said)
    if options.json:
        print(json.dumps({"Progress": answer.get("progress", "")}))
    return 0
