"""The pool's machines as its collector has them, asked once a minute by condor_status: also those that tell us nothing.

What stands in the collector is said by whoever may advertise there, also of which machine a slot is. So each line is
read strictly, and there are bounds on machines and on what one can have.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterable
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.ingest.command_output import output
from condor_joblens.hub.store.client import Store, StoreGone, StoreRefused
from condor_joblens.hub.store.schema import MACHINES

PERIOD = 60.0
"""Seconds between two questions."""

MOST_MACHINES = 50_000
"""Of an answer: the store takes all of them at once, and pages count them."""

MOST_OF_ONE = {"Slots": 100_000, **dict.fromkeys(("Cores", "ClaimedCores"), 1_000_000)}
MOST_OF_ONE |= dict.fromkeys(("MemoryBytes", "ClaimedMemoryBytes"), 1 << 50)
"""Of a machine: what its slots say beyond that is not counted, or sums would overflow."""

QUESTION = (
    *("-constraint", "Machine isnt undefined && Offline isnt true && BackfillSlot isnt true"),
    *("-af:r", "Machine", "SlotType", "State", "Cpus", "Memory", "CondorVersion", "OpSysAndVer", "Arch"),
)
"""Strings come quoted. Backfill slots have cores that others have too."""

_TEXT = r'("(?:[^"\\\n]|\\.){0,300}"|undefined)'
_LINE = re.compile(rf'"([^"\\\s]{{1,255}})" {_TEXT} {_TEXT} (\d{{1,7}}) (\d{{1,10}}) {_TEXT} {_TEXT} {_TEXT}')
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,4}")
_WORD = re.compile(r"[\w.+-]{1,40}", re.A)
_CLAIMED = ("claimed", "preempting")


def machines(lines: Iterable[str], now: float) -> list[dict[str, Any]]:
    """A row of MACHINES for each machine, from a line for each slot; now: epoch seconds.

    Other lines are left out. Of a partitionable slot the cores that are left are nobody's: those that it gave away are
    of slots of their own.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        match = _LINE.fullmatch(line.strip())
        if match is None or (len(found) >= MOST_MACHINES and match[1] not in found):
            continue
        name, kind, state, cores, megabytes, version, system, architecture = match.groups()
        nothing = {"Node": name, "Time": now, "Slots": 0, "Cores": 0, "ClaimedCores": 0}
        row = found.setdefault(name, {**nothing, "MemoryBytes": 0, "ClaimedMemoryBytes": 0})
        row["Version"] = _found(_VERSION, version)
        row["System"] = " ".join(filter(None, (_found(_WORD, system), _found(_WORD, architecture))))
        row["Cores"] += int(cores)
        row["MemoryBytes"] += int(megabytes) << 20
        is_partitionable = _found(_WORD, kind).lower() == "partitionable"
        if not is_partitionable:
            row["Slots"] += 1
        if not is_partitionable and _found(_WORD, state).lower() in _CLAIMED:
            row["ClaimedCores"] += int(cores)
            row["ClaimedMemoryBytes"] += int(megabytes) << 20
    for row in found.values():
        row.update({name: min(row[name], most) for name, most in MOST_OF_ONE.items()})
    return list(found.values())


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search("" if text == "undefined" else text)
    return match[0] if match else ""


class Collector:
    """For one thread."""

    def __init__(
        self, command: str, store: Store, say: Callable[[str], None], clock: Callable[[], float] = time.time
    ) -> None:
        """command: condor_status with whatever says which pool."""
        self._command = [*shlex.split(command), *QUESTION]
        self._store, self._say, self._clock = store, say, clock
        self._said = ""

    def run(self) -> None:
        """For ever."""
        while True:
            self.ask()
            time.sleep(PERIOD)

    def ask(self) -> None:
        """Once. An error is said once, and what was there stays until it is too old."""
        try:
            now = self._clock()
            rows = machines(output(self._command).splitlines(), now)
            if rows:
                self._store.insert(MACHINES, [json.dumps(row).encode() for row in rows])
            why = "" if rows else "the collector has no machine: is its address right, and may this user read there?"
            if len(rows) >= MOST_MACHINES:
                why = f"the collector has {MOST_MACHINES} machines or more: of more than these nothing is kept"
        except (StoreGone, StoreRefused) as error:
            why = f"what the collector says can't be kept: {error}"
        except (JobLensError, OSError) as error:
            why = f"the collector can't be asked (--collector): {error}"
        if why and why != self._said:
            self._say(why)
        self._said = why
