"""What triggers can be told of, and the lowest level that feeds each kind: what joblensd and the tools both know."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.model.events import COMMAND_ENDS, EVENT, FUNCTION_ENDS, EventKind
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
    "function": EventKind.FUNCTION,
    "command": EventKind.COMMAND,
    "exception": EventKind.EXCEPTION,
    "signal": EventKind.SIGNAL,
    "refused": EventKind.REFUSED,
}
"""They come from level basic on, but for these."""

LEVELS: dict[str, Level] = dict.fromkeys(
    ("failed_open", "traceback", "function", "command", "exception", "signal", "refused"), Level.TRACE
)

TRACED: frozenset[EventKind] = frozenset({EventKind.FUNCTION, EventKind.COMMAND, EventKind.EXCEPTION})
"""Those that traces tell which stand for a job's life."""

RECORDED: frozenset[EventKind] = frozenset({EventKind.FAILED_OPEN, EventKind.SIGNAL, EventKind.REFUSED})
"""Those that are in the flight recorder's rings, which are looked into every few seconds."""

ASKED_FOR = {
    "traceback": "python:raises",
    "function": "FILE:FUNCTION",
    "command": "bash",
    "exception": "throws",
}
"""What +JobLensTrace or a policy has to name, so that a job at level trace feeds them."""

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
        "errors": {name: number for number, name in errno.errorcode.items()},
        "signals": {each.name: int(each) for each in signal.Signals},
        "ends": {"function": list(FUNCTION_ENDS), "command": list(COMMAND_ENDS)},
        "paths": [*(metric.path for metric in METRICS), *FACTS],
    }


def load_message(files: Sequence[tuple[str, str]], *, asks: bool = False) -> dict[str, Any]:
    """The message that loads triggers: see trigger_service.py. `asks`: the answer has what filters look at."""
    return {"verb": "triggers", "files": [list(file) for file in files], "layout": layout(), "asks": asks}
