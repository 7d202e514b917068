"""Which variables of a run's programs are read each period: those that its +JobLensPeek names, at any level but off."""

from __future__ import annotations

from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level
from condor_joblens.policy.peek_request import ATTRIBUTE

NOTE = "peek"
MOST_NOTE = 160


def wanted(levels: Levels, run: int) -> tuple[str, ...]:
    """The variables that are to be read now."""
    node, sent = levels.node, levels.inputs.get(run)
    if sent is None or not sent.is_decided or not node.runs.state["named"][run] or node.runs.rows["final"][run]:
        return ()
    return sent.peek.specs if node.config.max_peeks and node.runs.rows["level_number"][run] > Level.OFF else ()


def note(levels: Levels, run: int) -> str:
    """One line for the run's ad if not all that it asks for is there; empty if nobody has decided so far."""
    sent = levels.inputs.get(run)
    if sent is None or not sent.is_decided or not (sent.peek.specs or sent.peek.refused):
        return ""
    if not levels.node.config.max_peeks:
        return f"{ATTRIBUTE}: this site reads no variables of jobs (JOBLENS_MAX_PEEKS)"
    return sent.peek.note() or printable(sent.peek_trouble, MOST_NOTE)


def update(levels: Levels, run: int) -> None:
    """The run's note says it."""
    levels.node.put_note(run, NOTE, note(levels, run))
