"""Whether Pythons of a run are traced: by its +JobLensTrace, its level and the site's configuration.

It takes nothing of the kernel. So the level that was decided counts, whatever of it can be counted.
"""

from __future__ import annotations

import os

from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level
from condor_joblens.policy.trace_request import ALL_FILES, ATTRIBUTE

NOTE = "trace"
MOST_NOTE = 160


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


def what(levels: Levels, run: int) -> str:
    """What its wrapper is to load into its Pythons: `calls`, `raises`, or nothing. It begins the job now."""
    if not bring_in(levels, run):
        return ""
    return "calls" if levels.inputs[run].trace.has_python_calls else "raises"


def records_calls(levels: Levels, run: int) -> bool:
    """Whether calls are recorded now."""
    sent = levels.inputs.get(run)
    return sent is not None and not why_not(levels, run) and sent.trace.has_python_calls


def wants_variables(levels: Levels, run: int) -> bool:
    """Whether local variables are to come with an exception that ends a Python of the run."""
    sent = levels.inputs.get(run)
    return sent is not None and not why_not(levels, run) and sent.trace.python_locals


def what_of_calls(levels: Levels, run: int) -> dict[str, str]:
    """Which calls are recorded, and what of them, as the answer to a Python says it (commands/python.py)."""
    sent = levels.inputs.get(run)
    if sent is None:
        return {}
    trace = sent.trace
    said: dict[str, str] = {}
    if trace.python_files != (ALL_FILES,) or trace.python_arguments:
        said |= {f"file{number}": pattern for number, pattern in enumerate(trace.python_files)}
    said |= {f"call{number}": each for number, each in enumerate(trace.python_arguments)}
    return (
        said
        | ({"values": "plain"} if trace.python_returns else {})
        | ({"raised": "types"} if trace.python_exceptions else {})
        | ({"limited": "calls"} if trace.python_limited else {})
    )


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
    levels.node.put_note(run, NOTE, note(levels, run))


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
    folder = node.python_hook + ("_calls" if sent.trace.has_python_calls else "")
    if node.python_hook and not os.path.isfile(os.path.join(folder, "sitecustomize.py")):
        return f"{ATTRIBUTE}: nothing is traced: {folder} is missing on this node (joblens doctor)"
    if sent.brings_in_hook is False:
        return f"{ATTRIBUTE}: nothing is traced: the job began below level trace"
    return printable(sent.python_trouble, MOST_NOTE)
