"""Starts and ends of a job's processes, for its time line: those that live, the latest on its node, and of a file."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any, Union

from condor_joblens.cli import plot_series
from condor_joblens.common.errors import JobLensError
from condor_joblens.model.events import EventKind
from condor_joblens.profiles.last_events import Event
from condor_joblens.profiles.text import clean
from condor_joblens.profiles.timeline import Life

MOST = 100_000
"""Starts and ends from one source."""

_LONGEST = 400

Seen = Union[Life, Event]
"""A process of which begin and end are known, or one of the two."""


def living(path: str, job: str) -> Iterator[Life]:
    """Those of a running job, as its owner sees them; none if nobody answers. `path`: of joblensd's socket."""
    from condor_joblens.cli import ps

    with contextlib.suppress(JobLensError):
        processes, _ = ps.ask(path, job)
        now = time.time()
        for each in processes[:MOST]:
            program = os.path.basename(each["Command"].partition(" ")[0])
            yield Life(each["Pid"], now - max(0.0, each["WallSeconds"]), None, clean(program), each["ParentPid"])


def latest(path: str, run_number: int) -> Iterator[Seen]:
    """Of a run, from the ring of events at `path`. Raises JobLensError if this user may not read it."""
    from condor_joblens.shm.ring import EventReader

    reader = EventReader(path)
    while len(events := reader.read()):
        for event in events[(events["run_number"] == run_number) & (events["pid"] > 0)]:
            program, words = (clean(bytes(event[name]).decode("utf-8", "replace")) for name in ("program", "text"))
            pid, parent, when = int(event["pid"]), int(event["parent_pid"]), float(event["time"])
            if event["kind"] == EventKind.EXEC:
                yield Event(when, pid, program, "exec", about=words)
            elif event["kind"] == EventKind.EXIT:
                yield _ended(
                    when, pid, program, parent, _ending(int(event["exit_code"])), float(event["lived_seconds"])
                )


def of_file(path: str, job: str) -> Iterator[Seen]:
    """Of a job or a run, from a file of the sink `file`. Raises JobLensError."""
    for number, record in enumerate(plot_series.events(path, job)):
        if number > MOST:
            return
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            yield _of_record(record)


def _of_record(record: Mapping[str, Any]) -> Seen:
    """Raises KeyError, TypeError and ValueError for what is none."""
    when, pid = float(record["Time"]), int(record["Pid"])
    program, parent = clean(str(record.get("Program", ""))), int(record.get("ParentPid", 0))
    if pid <= 0 or not 0 < when < plot_series.LATEST:
        raise ValueError("of no process")
    if record["Kind"] == "Exec":
        return Event(when, pid, program, "exec", about=clean(str(record.get("CommandLine", "")), _LONGEST))
    if "ExitSignal" in record:
        ending = _ending(int(record["ExitSignal"]) & 0x7F | (0x80 if record.get("CoreDumped") else 0))
    else:
        ending = _ending(int(record["ExitCode"]) << 8) if "ExitCode" in record else ""
    return _ended(when, pid, program, parent, ending, float(record.get("LivedSeconds", -1.0)))


def _ended(when: float, pid: int, program: str, parent: int, ending: str, lived: float) -> Seen:
    if 0 <= lived < when:
        return Life(pid, when - lived, when, program, parent, ending)
    return Event(when, pid, program, "exit", result=ending)


def _ending(status: int) -> str:
    """As wait(2) has it: `status 3`, `SIGSEGV, core dumped`; nothing if nobody saw it."""
    if status < 0:
        return ""
    number = status & 0x7F
    if not number:
        return f"status {status >> 8 & 0xFF}"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return name + (", core dumped" if status & 0x80 else "")
