"""What a sink gets of the samples: how often, and which metrics. These knobs are every sink's that takes samples."""

from __future__ import annotations

import difflib
import fnmatch
from typing import Optional

import numpy as np

from condor_joblens.common.errors import printable
from condor_joblens.model.metrics import METRICS
from condor_joblens.sinks import ENDPOINTS, SERVERS, RecordKind, Sink, SinkKnob

ALL = "*"
LONGEST_PERIOD = 86400.0  # seconds

_NAMES = {name.lower(): name for name in (*(metric.path for metric in METRICS), ENDPOINTS, SERVERS)}


def period(value: str) -> float:
    """Seconds; 0: every sample."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_PERIOD:
        raise ValueError(f"a number of seconds from 0 to {LONGEST_PERIOD:.0f}")
    return seconds


def metrics(value: str) -> Optional[frozenset[str]]:
    """The metrics that some globs name, in any case; None: all there are."""
    globs = value.replace(",", " ").split()
    if not globs or ALL in globs:
        return None
    found: set[str] = set()
    for glob in globs:
        names = {name for lowered, name in _NAMES.items() if fnmatch.fnmatchcase(lowered, glob.lower())}
        if not names:
            near = difflib.get_close_matches(glob.lower(), _NAMES, 1, 0.6)
            meant = f"did you mean {_NAMES[near[0]]}?" if near else "`joblens metrics` has them"
            raise ValueError(f"a list of metrics: {printable(glob, 60)} names none, {meant}")
        found |= names
    return frozenset(found)


METRICS_KNOB = SinkKnob(
    "METRICS",
    ALL,
    metrics,
    "names, `*` and `?`",
    f"the metrics that it gets, with commas between: Cpu.*, Fs.*.ReadBytes ...; {ENDPOINTS} and {SERVERS} are lists",
)
PERIOD_KNOB = SinkKnob("PERIOD", "0", period, "seconds", "a run's samples come at most so often; 0: every one")


def knobs_of(sink: type[Sink]) -> tuple[SinkKnob, ...]:
    """A sink's own knobs, and those that it has because it takes samples; its own of the same name counts."""
    if not sink.selects or RecordKind.SAMPLE not in sink.takes:
        return sink.knobs
    own = {knob.name for knob in sink.knobs}
    return (*sink.knobs, *(knob for knob in (PERIOD_KNOB, METRICS_KNOB) if knob.name not in own))


def chosen(wanted: Optional[frozenset[str]]) -> np.ndarray:
    """Which of METRICS are wanted, shape (metrics,)."""
    found: np.ndarray = np.array([wanted is None or metric.path in wanted for metric in METRICS])
    return found
