"""`joblens level`: root, or the owner of a job, changes the level of a running job for a while."""

from __future__ import annotations

import pwd
import time

import numpy as np

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.node import Node
from condor_joblens.jobs.activation import Refused, Request
from condor_joblens.model.levels import Level, parse_level
from condor_joblens.model.metrics import cut, text

LONGEST = 86400
"""Seconds for which a level can be given."""

NOT_SO_OFTEN = 2.0
"""Seconds between two changes of a run by its owner: each writes its ad and a line of the log."""

NAMES = ("job_id", "global_job_id", "run", "slot")
"""Columns by which a person can name a run; besides, a cluster and a slot with its host."""


def change(agent: Agent, request: Request) -> dict[str, str]:
    """Gives a run a level by hand, takes that back, or only says what it has. Raises Refused."""
    node = agent.node
    run = _named(node, request.claims.get("job", ""))
    _check_caller(node, run, request.uid)
    wish, seconds = request.claims.get("level"), request.claims.get("for", "600")
    if wish is not None:
        _give(node, run, _level(agent, run, wish, request.uid), _seconds(seconds), request.uid)
    elif request.claims.get("clear"):
        _refuse_unless_allowed(agent, run, None, request.uid)
        node.runs.state["hand_until"][run] = 0
        node.log(f"{node.describe(run)}: {_name_of(request.uid)} took the level given by hand back")
    if wish is not None or request.claims.get("clear"):
        node.runs.state["hand_changed"][run] = time.monotonic()
        level_arbiter.arbitrate(agent.levels)
        level_arbiter.explain(agent.levels, run)
        agent.output.job_ads.publish_soon(run)
    return _answer(node, run)


def _named(node: Node, name: str) -> int:
    """The living run that `name` means: 12.0, 12, a GlobalJobId, a run, a slot with or without its host."""
    runs = node.runs.living()
    runs = runs[node.runs.state["named"][runs]]
    rows, encoded = node.runs.rows, name.encode("utf-8", "replace")
    found: np.ndarray = np.zeros(len(runs), "?")
    for column in NAMES:
        found |= rows[column][runs] == encoded
    found |= rows["slot"][runs] == encoded.partition(b"@")[0]
    if name.isdigit():
        found |= np.char.startswith(rows["job_id"][runs], encoded + b".")
    if not name or not found.any():
        raise Refused(f"no job {name[:60]} runs on this node")
    if found.sum() > 1:
        some = ", ".join(text(job) for job in rows["job_id"][runs[found]][:5].tolist())
        raise Refused(f"{name[:60]} means several jobs here, say which: {some}")
    return int(runs[found][0])


def _check_caller(node: Node, run: int, uid: int) -> None:
    """Root may, and the user as whom the job runs. Of jobs that run as nobody no owner can be told. Raises Refused."""
    sandbox = node.handles[run].sandbox
    if uid == 0:
        return
    if sandbox is None or uid != sandbox.scratch_uid or _name_of(uid) == "nobody":
        raise Refused(f"only root and the user as whom job {text(node.runs.rows['job_id'][run])} runs may change it")
    if time.monotonic() - node.runs.state["hand_changed"][run] < NOT_SO_OFTEN:
        raise Refused("it was changed a moment ago: try again in two seconds")


def _level(agent: Agent, run: int, wish: str, uid: int) -> Level:
    """The level that is asked for, if the caller may give it. Raises Refused."""
    try:
        level = parse_level(wish)
    except ValueError as error:
        raise Refused(f"{wish[:20]} {error}") from None
    _refuse_unless_allowed(agent, run, level, uid)
    return level


def _refuse_unless_allowed(agent: Agent, run: int, level: Level | None, uid: int) -> None:
    why = level_arbiter.refusal(agent.levels, run, level, by_root=uid == 0)
    if why:
        raise Refused(why)


def _seconds(wish: str) -> int:
    if not (wish.isascii() and wish.isdigit() and len(wish) < 8 and 0 < int(wish) <= LONGEST):
        raise Refused(f"a level is given for 1 s to {LONGEST // 3600} h")
    return int(wish)


def _give(node: Node, run: int, level: Level, seconds: int, uid: int) -> None:
    reason = f"by {_name_of(uid)} until {level_arbiter.clock(time.time() + seconds)}"
    state = node.runs.state[run : run + 1]
    state["hand_level"], state["hand_until"] = level, time.monotonic() + seconds
    state["hand_is_roots"], state["hand_reason"] = uid == 0, cut(reason, "reason")
    node.log(f"{node.describe(run)}: level {level.word} by hand, {reason}")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _answer(node: Node, run: int) -> dict[str, str]:
    row = node.runs.rows[run]
    told = ("job_id", "slot", "level", "policy", "reason", "note")
    return {column: text(row[column]) for column in told if row[column]}
