"""`joblens log ID`: the last lines of what a running job writes to stdout and stderr, and with -f what follows."""

from __future__ import annotations

import argparse

from condor_joblens.cli import tail


def run(options: argparse.Namespace) -> int:
    """As tail.run does; exit code 0."""
    return tail.show(options, "log", {"lines": str(options.lines), "follow": "1" if options.follow else "0"})
