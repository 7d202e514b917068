"""level: root, or the owner of a job, changes the level of a running job for a while, or asks what it is.

How far each may go, and what comes of it, is decided by the level arbiter (agent/levels/level_arbiter.py).
"""

from __future__ import annotations

import time

from condor_joblens.commands import find_run
from condor_joblens.commands.authority import asker, name_of
from condor_joblens.commands.node_protocol import NodeProtocol
from condor_joblens.common.errors import printable
from condor_joblens.common.time_of_day import time_of_day
from condor_joblens.control.verbs import Refused, Request
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import cut, text

DEFAULT_SECONDS = 600

NOT_SO_OFTEN = 2.0
"""Seconds between two changes of a run by its owner: each writes its ad and a line of the log."""

ANSWERED = ("job_id", "slot", "level", "policy", "reason", "note")
"""Columns of the run that the answer has, as far as they say something."""

_AS_OWNER = "; from an access point, root too asks as the job's owner"

LATE_IO = "late_io"
"""Cause of the note about what level io has missed."""


def find(node: NodeProtocol, request: Request) -> int:
    """The run that is named. Raises Refused."""
    return find_run.of(node, request)


def answer(node: NodeProtocol, request: Request, run: int) -> dict[str, str]:
    """Gives a run a level by hand, takes that back, or only tells what it has. Raises Refused."""
    state = node.runs.state
    level, clear = request.arguments.get("level"), request.arguments.get("clear", False)
    changes = level is not None or clear
    if changes and (why := node.level_refusal(run, level, request.uid == 0)):
        raise Refused(why + _AS_OWNER if _is_super_user(request) else why)
    if changes and request.uid != 0 and time.monotonic() - state["override_changed_at"][run] < NOT_SO_OFTEN:
        raise Refused("it was changed a moment ago: try again in two seconds")
    if level is not None:
        _give(node, run, level, request)
    elif clear:
        state["override_until"][run] = 0
        node.log(f"{node.describe(run)}: {asker(request)} took the level given by hand back")
    if changes:
        state["override_changed_at"][run] = time.monotonic()
        node.apply_levels(run)
    row = node.runs.rows[run]
    told = {column: text(row[column]) for column in ANSWERED if row[column]}
    if "note" in told and told.get("level") in (Level.OFF.word, Level.BASIC.word):
        told["note"] = node.note(run, without=LATE_IO)  # that is about numbers which are not counted now
    if kept := node.kept_low(run):
        told["note"] = "; ".join(filter(None, (told.get("note"), kept)))
    return told


def _is_super_user(request: Request) -> bool:
    return request.vouched is not None and not request.vouched.is_his_own and not request.vouched.is_staff


def _give(node: NodeProtocol, run: int, level: Level, request: Request) -> None:
    seconds, uid = request.arguments.get("for", DEFAULT_SECONDS), request.uid
    until = time_of_day(time.time() + seconds)
    vouched = request.vouched
    who = name_of(uid) if vouched is None or vouched.by == vouched.user else printable(vouched.by, 60)
    reason = f"by {who} until {until}"
    state = node.runs.state[run : run + 1]
    state["override_level"], state["override_until"] = level, time.monotonic() + seconds
    state["override_by_root"], state["override_reason"] = uid == 0, cut(reason, "reason")
    node.log(f"{node.describe(run)}: level {level.word} by hand, by {asker(request)} until {until}")
