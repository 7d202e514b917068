"""`joblens head ID [FILE]`: the first lines of a file of a running job."""

from __future__ import annotations

import argparse

from condor_joblens.cli import tail


def run(options: argparse.Namespace) -> int:
    """As tail.run does; exit code 0."""
    return tail.show(options, "head", {"file": options.file, "lines": str(options.lines)})
