"""`joblens cat ID [FILE]`: a file of a running job."""

from __future__ import annotations

import argparse

from condor_joblens.cli import tail


def run(options: argparse.Namespace) -> int:
    """As tail.run does; exit code 0."""
    return tail.show(options, "cat", {"file": options.file})
