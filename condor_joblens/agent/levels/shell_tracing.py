"""Whether the bash scripts of a run are traced for its life: by its +JobLensTrace and its policies, at level trace."""

from __future__ import annotations

from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level
from condor_joblens.model.trace_spec import SHELL
from condor_joblens.policy.trace_request import ATTRIBUTE

NOTE = "shells"
MOST_NOTE = 160


def asked(levels: Levels, run: int) -> tuple[str, ...]:
    """`bash`, if its policies or the job ask for it; else nothing."""
    sent = levels.inputs.get(run)
    return (SHELL,) if sent is not None and (sent.policy_trace.shell or sent.trace.shell) else ()


def wanted(levels: Levels, run: int) -> tuple[str, ...]:
    """The same if it is to be traced now: nothing unless the run has level trace, by whomever it was given."""
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
        return f"{ATTRIBUTE} needs level trace: no script is traced"
    return printable(sent.shell_trouble, MOST_NOTE)


def update(levels: Levels, run: int) -> None:
    """The run's note says it."""
    notes = levels.node.handles[run].notes
    before, notes[NOTE] = notes.get(NOTE, ""), note(levels, run)
    if notes[NOTE] != before:
        levels.node.update_note(run)
