"""Level io from the first instruction: a job that asks for it is counted from its birth, before it is decided.

So is one that an entry may raise (entries.py).

The policies' decision then only removes. What it confirms is counted from the job's first instruction on; what it
refuses is forgotten. Until a decision confirms it, nothing of it is published: not in rows, ads, events or metrics.
"""

from __future__ import annotations

import time

from condor_joblens.agent import before_job, measure
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.commands.level import LATE_IO
from condor_joblens.model.levels import Level
from condor_joblens.policy.job_identity import literals
from condor_joblens.policy.level_request import may_ask_for


def begin(levels: Levels, run: int, ad: bytes) -> None:
    """The job's ad is there, and nothing is decided yet: counts the run at io, if it asks for that and may have it.

    Without waiting: if the programs are not loaded yet, or no row is free, the run is counted once it is decided.
    """
    node = levels.node
    state, slot = node.runs.state, int(node.runs.state["kernel_slot"][run])
    if node.config.max_level < Level.IO or node.runs.rows["level_number"][run] >= Level.IO:
        return
    if slot < 0 or state["io_provisional"][run] or not _may_have_io(levels, ad):
        return
    state["io_provisional"][run] = True  # first: if joblensd is killed here, the next one publishes nothing either
    if not node.tracer.sensors["io"].start(slot):
        state["io_provisional"][run] = False
        return
    node.tracer.counters["level"][slot] = int(Level.IO)  # connections by endpoint, and UDP
    # an exec since then was counted; one before it was not, and may have been the job
    has_begun = not node.tracer.counters["awaits_exec"][slot]
    measure.begin_unpublished_io(node, run, time.monotonic() if has_begun else 0)


def _may_have_io(levels: Levels, ad: bytes) -> bool:
    entries, config = levels.entries, levels.node.config
    if may_ask_for(ad, Level.IO):
        return True
    return bool(entries.holding(config)) and entries.may_raise(literals(ad), Level.IO, config)


def job_starts(levels: Levels, run: int) -> None:
    """The wrapper has called: what ran until now was not the job, and counting begins with its first instruction."""
    ad = levels.inputs[run].job_ad
    if (
        not levels.node.runs.state["io_provisional"][run] and ad is not None
    ):  # nobody has decided yet; maybe its programs have been loaded meanwhile
        begin(levels, run, ad)


def confirm(levels: Levels, run: int) -> None:
    """The run has level io: what was counted is published from now on, as if it had been decided from the start."""
    node, state = levels.node, levels.node.runs.state
    since, began = float(state["io_late_since"][run]), float(state["began"][run])
    state["io_provisional"][run] = False
    node.handles[run].notes[LATE_IO] = before_job.late_note(since - began) if since else ""
    measure.publish_io(node, run)


def job_ends(levels: Levels, run: int) -> None:
    """The job is over, and nothing is decided: what was counted stays unpublished, and its note says so."""
    if levels.node.runs.state["io_provisional"][run]:
        levels.node.handles[run].notes["io"] = "it ended before its policies had confirmed level io"
        levels.node.update_note(run)


def settle(levels: Levels, run: int) -> None:
    """It is decided about the run: without level io, what was counted is forgotten."""
    node = levels.node
    if not node.runs.state["io_provisional"][run]:
        return
    node.runs.state["io_provisional"][run] = False
    slot = int(node.runs.state["kernel_slot"][run])
    if slot < 0:
        return
    node.tracer.counters["level"][slot] = int(node.runs.rows["level_number"][run])
    node.tracer.sensors["io"].discard(slot)
    measure.discard_io(node, run)


def make_room(levels: Levels) -> bool:
    """A run that is to have level io finds no room: the one that came last and is undecided gives its own."""
    node = levels.node
    runs = node.runs.living()
    runs = runs[node.runs.state["io_provisional"][runs]]
    if not len(runs):
        return False
    settle(levels, int(runs[node.runs.state["began"][runs].argmax()]))
    return True


def take_over(levels: Levels, run: int) -> None:
    """An earlier joblensd has left the run: its counting goes on if it did so meanwhile, and is still undecided."""
    state, tracer = levels.node.runs.state, levels.node.tracer
    slot = int(state["kernel_slot"][run])
    if state["named"][run] or slot < 0 or not tracer.counters["io_key"][slot]:
        settle(levels, run)
    elif state["io_provisional"][run]:
        tracer.counters["level"][slot] = int(Level.IO)
