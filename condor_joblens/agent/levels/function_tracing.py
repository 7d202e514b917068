"""Which functions of a run are traced for its life: by its +JobLensTrace and its policies, if it is at level trace."""

from __future__ import annotations

from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level
from condor_joblens.policy.trace_request import ATTRIBUTE, MOST_SPECS

NOTE = "functions"
MOST_NOTE = 160


def asked(levels: Levels, run: int) -> tuple[str, ...]:
    """The SPECs that its policies and the job ask for, those of the policies first."""
    sent = levels.inputs.get(run)
    if sent is None:
        return ()
    return tuple(dict.fromkeys((*sent.policy_trace.functions, *sent.trace.functions)))[:MOST_SPECS]


def wanted(levels: Levels, run: int) -> tuple[str, ...]:
    """Those of them that are to be traced now; none unless the run has level trace, by whomever it was given."""
    node = levels.node
    sent = levels.inputs.get(run)
    if sent is None or not sent.is_decided or not node.runs.state["named"][run] or node.runs.rows["final"][run]:
        return ()
    return asked(levels, run) if node.runs.rows["level_number"][run] >= Level.TRACE else ()


def note(levels: Levels, run: int) -> str:
    """One line for the run's ad if it asks for what its level does not give; empty if nobody has decided so far."""
    sent = levels.inputs.get(run)
    if sent is None or not sent.is_decided or not asked(levels, run):
        return ""
    if levels.node.runs.state["target_level"][run] < Level.TRACE:
        return f"{ATTRIBUTE} needs level trace: no function is traced"
    return printable(sent.trace_trouble, MOST_NOTE)


def update(levels: Levels, run: int) -> None:
    """The run's note says it."""
    notes = levels.node.handles[run].notes
    before, notes[NOTE] = notes.get(NOTE, ""), note(levels, run)
    if notes[NOTE] != before:
        levels.node.update_note(run)
