"""Values of knobs: an input is lines NAME=VALUE."""

from __future__ import annotations

from condor_joblens.common.config import KNOBS
from condor_joblens.common.config_parser import parse

SEEDS = [
    "\n".join(f"{knob.name}={knob.default}" for knob in KNOBS).encode()[:3500],
    b"JOBLENS_MAX_JOBS=1e999\nJOBLENS_PERIOD=nan\njoblens_perod=1\nJOBLENS_SINKS=a,,b",
]
WORDS = [knob.name.encode() for knob in KNOBS]


def check(data: bytes) -> None:
    """Any value is taken or costs a line, and each line can be printed."""
    macros = dict(line.partition("=")[::2] for line in data.decode("utf-8", "surrogateescape").split("\n"))
    config, problems = parse(macros)
    assert config is not None
    for problem in problems:
        assert problem.isprintable() and "\n" not in problem
