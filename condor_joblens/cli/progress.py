"""`joblens progress 0.3 [WORDS]`, from inside of a running job: how far it is, for its row and its ad."""

from __future__ import annotations

import argparse

from condor_joblens.cli import say


def run(options: argparse.Namespace) -> int:
    """As say.run does; exit code 0. Without WORDS those that were said before stay."""
    return say.tell(options, {"share": options.share, **({"words": " ".join(options.words)} if options.words else {})})
