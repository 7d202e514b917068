"""What triggers can be told of, and the lowest level that feeds each kind: what joblensd and the tools both know."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS

METRIC = "metric"
"""The kind that is no event: a run's numbers, once a period."""

KINDS: dict[str, EventKind] = {
    "start": EventKind.RUN_START,
    "end": EventKind.RUN_END,
    "exec": EventKind.EXEC,
    "exit": EventKind.EXIT,
    "oom": EventKind.OOM,
    "death": EventKind.DEATH,
    "level": EventKind.LEVEL,
    "loss": EventKind.LOSS,
    "artifact": EventKind.ARTIFACT,
    "hang": EventKind.HANG,
    "failed_open": EventKind.FAILED_OPEN,
    "traceback": EventKind.TRACEBACK,
}
"""They come from level basic on, but for these."""

LEVELS: dict[str, Level] = {"failed_open": Level.TRACE, "traceback": Level.TRACE}

NOT_YET: dict[str, str] = {
    "refused": 'single refused connects are told at no level; Tcp.Refused, by on("metric"), counts them at level io',
    "function": "calls of functions are told to `joblens trace` alone",
    "exception": 'those that end a Python are told: on("traceback"); those of C++ to `joblens trace ID throws` alone',
    "command": "commands of a shell are told at no level; programs that it starts are: exec",
    "signal": "signals are told at no level; the ends that they cause are: exit",
}
"""Kinds that somebody might look for, and what there is instead."""

FACTS = ("IdleSeconds", "RunSeconds", "LevelSeconds")
"""Numbers of a run besides its metrics: policy_input.FACTS of joblensd."""

PROCESSES = frozenset({EventKind.EXEC, EventKind.EXIT, EventKind.OOM})
"""Those that come from the kernel's ring of process events."""

_LEVELS = {metric.path.lower(): metric.level for metric in METRICS}
_FORMATS = {"u4": "<I4", "i4": "<i4", "u8": "<I8", "i8": "<i8", "f8": "<d"}


@dataclass(frozen=True)
class Need:
    """What feeds one handler."""

    level: Level  # the lowest that does
    what: str  # the number that needs it, or "its events"; empty: events, or numbers of every level


def need(kind: str, asks: Iterable[str]) -> Need:
    """What a handler of this kind needs, whose filter asks for these fields or numbers."""
    found = Need(LEVELS[kind], "its events") if kind in LEVELS else Need(Level.BASIC, "")
    for path in asks:
        root, _, rest = path.partition(".")
        level = _LEVELS.get((rest if root.lower() == "usage" else path).lower(), Level.BASIC)
        if (kind == METRIC or root.lower() == "usage") and level > found.level:
            found = Need(level, path)
    return found


def layout() -> dict[str, Any]:
    """What the child must know of events and numbers, which has no numpy: sizes, places and formats, and names."""
    columns: dict[str, tuple[int, Any]] = {}
    for name, (kind, place, *_) in (EVENT.fields or {}).items():
        columns[name] = place, kind.itemsize if kind.kind == "S" else _FORMATS[kind.str[1:]]
    return {
        "size": EVENT.itemsize,
        "columns": columns,
        "kinds": {word: int(kind) for word, kind in KINDS.items()},
        "not_yet": NOT_YET,
        "errors": {name: number for number, name in errno.errorcode.items()},
        "paths": [*(metric.path for metric in METRICS), *FACTS],
    }


def load_message(files: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The message that loads triggers: see trigger_service.py."""
    return {"verb": "triggers", "files": [list(file) for file in files], "layout": layout()}
