"""What the child of `joblens doctor` says, which has run a sink's code."""

from __future__ import annotations

import json

from condor_joblens.cli.checks.checked_node import State
from condor_joblens.cli.checks.sinks import LONGEST, _findings

SEEDS = [
    json.dumps([[State.OK.value, "it is set up", ""], [State.FAIL.value, "no route", "look at the network"]]).encode(),
    b"[" * 3000,
    b'["ok"]',
]
WORDS = [b'"%b"' % state.value.encode() for state in State] + [b"\\ud800", b"NaN", b"null"]


def check(data: bytes) -> None:
    """Findings are bounded and printable, whatever it says."""
    for finding in _findings("file", data):
        assert isinstance(finding.state, State)
        for text in (finding.text, finding.remedy):
            assert text.isascii() and text.isprintable() and len(text) <= LONGEST
