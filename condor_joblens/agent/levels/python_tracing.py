"""Whether exceptions that end Pythons of a run are kept: by its +JobLensTrace, its level and the site's configuration.

It takes nothing of the kernel. So the level that was decided counts, whatever of it can be counted.
"""

from __future__ import annotations

import os

from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.model.levels import Level
from condor_joblens.policy.trace_request import ATTRIBUTE

NOTE = "trace"


def why_not(levels: Levels, run: int) -> str:
    """Why nothing of the run's Pythons is kept; empty if it is, or if nobody has decided about the run yet."""
    node, sent = levels.node, levels.inputs.get(run)
    if sent is None or not sent.trace.python_raises:
        return f"the job has not asked for it ({ATTRIBUTE})"
    if not node.config.trace_python:
        return "this site traces no Pythons (JOBLENS_TRACE_PYTHON)"
    if node.config.max_level < Level.TRACE:
        return f"this site's JOBLENS_MAX_LEVEL is {node.config.max_level.word}"
    level = Level(int(node.runs.state["target_level"][run]))
    if sent.is_decided and level < Level.TRACE:
        return f"the job is at level {level.word}: only at level trace its exceptions are kept"
    return ""


def bring_in(levels: Levels, run: int) -> bool:
    """Whether the job's wrapper, which begins the job now, is to load what tells into its Pythons."""
    sent = levels.inputs.get(run)
    is_to = not why_not(levels, run)
    if sent is not None:
        sent.brings_in_hook = is_to
        update(levels, run)
    return is_to


def update(levels: Levels, run: int) -> None:
    """The run's note says what of its request is not done."""
    handles = levels.node.handles[run]
    before, handles.notes[NOTE] = handles.notes.get(NOTE, ""), note(levels, run)
    if handles.notes[NOTE] != before:
        levels.node.update_note(run)


def note(levels: Levels, run: int) -> str:
    """One line if not all that the job asked for is done; empty as long as nobody has decided about it."""
    sent = levels.inputs.get(run)
    if sent is None or not sent.is_decided:
        return ""
    if sent.trace.refused:
        return sent.trace.note()
    if not sent.trace.python_raises:
        return ""
    node = levels.node
    if not node.config.trace_python:
        return f"{ATTRIBUTE}: this site traces no Pythons (JOBLENS_TRACE_PYTHON)"
    if node.runs.state["target_level"][run] < Level.TRACE:
        return f"{ATTRIBUTE} needs level trace: nothing is traced"
    if node.python_hook and not os.path.isfile(os.path.join(node.python_hook, "sitecustomize.py")):
        return f"{ATTRIBUTE}: nothing is traced: {node.python_hook} is missing on this node (joblens doctor)"
    if sent.brings_in_hook is False:
        return f"{ATTRIBUTE}: nothing is traced: the job began below level trace"
    return ""
