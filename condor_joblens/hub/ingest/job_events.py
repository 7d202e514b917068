"""Steps of jobs' lives, from the access point that has these jobs and from nobody else."""

from __future__ import annotations

import re
from typing import Any

from condor_joblens.analysis.causes import general
from condor_joblens.hub.store.schema import JOB_EVENTS

TYPE = "job_event"

_JOB = re.compile(r"([^#]{1,255})#(\d{1,12}\.\d{1,9})#\d{1,12}", re.A)
_MOST = {"Reason": 1000, "Id": 700}
_MOST_TEXT = 300
"""Characters."""
_GREATEST = {"UInt64": 1 << 63, "Nullable(Int32)": 1 << 31, "UInt16": 1 << 16, "Float64": 1 << 60}
_NEEDED = ("GlobalJobId", "Owner", "Kind", "State", "Sequence")


def is_of(global_job_id: str, access_point: str) -> bool:
    """Whether it is a job of a schedd on this machine: its name is the machine's, or ends with it behind an @."""
    return global_job_id.partition("#")[0].rpartition("@")[2].lower() == access_point.lower()


def cleaned(record: dict[str, Any]) -> dict[str, Any]:
    """What is kept of one. Raises ValueError."""
    found = {
        name: _fit(name, kind, record[name])
        for name, kind in JOB_EVENTS.columns.items()
        if record.get(name) is not None
    }
    for name in _NEEDED:
        if not found.get(name):
            raise ValueError(f"it has no {name}")
    match = _JOB.fullmatch(str(found["GlobalJobId"]))
    if match is None:
        raise ValueError("its GlobalJobId is not SCHEDD#JOB#TIME")
    reason = str(found.get("Reason", ""))
    return found | {"JobId": match[2], "Cause": general(reason) if reason else ""}


def _fit(name: str, kind: str, value: Any) -> str | int | float:
    """The value, if the store's column can have it. Raises ValueError."""
    if "String" in kind:
        if not isinstance(value, str):
            raise ValueError(f"its {name} is no text")
        return value[: _MOST.get(name, _MOST_TEXT)]
    is_number = isinstance(value, (int, float) if kind == "Float64" else int) and not isinstance(value, bool)
    if not is_number or not abs(value) < _GREATEST[kind] or (value < 0 and kind.startswith("UInt")):
        raise ValueError(f"its {name} is no number that can be")
    found: int | float = value
    return found
