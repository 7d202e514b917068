"""Level profile of a run: it is sampled, and what its samples come to in a minute is kept as an artifact."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from condor_joblens.agent.levels import missing_level
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.output.run_profiles import RunProfiles
from condor_joblens.agent.output.run_reports import RunReports
from condor_joblens.agent.output.run_waits import RunWaits
from condor_joblens.agent.profiles import Profiles
from condor_joblens.common import kernel_limits
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.process_starter import ProcessStarter
from condor_joblens.model.levels import Level
from condor_joblens.tracer.on_demand import LOADING
from condor_joblens.tracer.sensors import Profile

NOTE_OF_READER = "reader of samples"
LACKS = "what reads its samples has ended once or more: its profile may lack some"


@dataclass
class Sampling:
    """What the node needs to sample runs."""

    sensor: Profile
    profiles: Profiles
    kept: RunProfiles
    waits: RunWaits
    begun: set[int] = field(default_factory=set)  # numbers of runs that are sampled


def open_sampling(
    levels: Levels,
    lookers: ProcessStarter | None,
    readers: ProcessStarter | None,
    selector: selectors.BaseSelector,
    told_crash: Callable[[int, int, int, str], object],
) -> None:
    """From now on runs can be sampled, if this node can do it at all: else level profile counts what io counts.

    `told_crash` is called with a run's number, a process, a signal that killed it, and where it was, in words.
    """
    node = levels.node
    sensor = getattr(node.tracer.sensors.get("profile"), "sensor", None)
    if not isinstance(sensor, Profile) or readers is None or lookers is None:
        return

    def start_opener(number: int, channel: socket.socket) -> None:
        run = _run_of(levels, number)
        sandbox = None if run is None else node.handles[run].sandbox
        if sandbox is None:
            raise JobLensError("the job is over")
        lookers.start(channel, sandbox.scratch, for_whom=("profile", number))

    def keep(number: int, begun: float, ended: float, data: bytes, is_off_cpu: bool = False) -> bool:
        is_kept = kept.keep(number, begun, ended, data, is_off_cpu)
        if not is_off_cpu:
            reports.part_is_kept(number)
            waits.keep(number)
        return is_kept

    kept, waits = RunProfiles(levels.output.artifacts), RunWaits(node, levels.output.artifacts)

    def crashed(number: int, tgid: int, signal: int, when: float, words: str, data: bytes) -> None:
        told_crash(number, tgid, signal, words)
        kept.keep_crash(number, when, data)

    profiles = Profiles(sensor, node.config.unwind_bytes, readers, start_opener, keep, crashed, selector, node.log)
    reports = RunReports(node, kept, profiles.report)
    kept.merge = profiles.merge
    node.sampling = Sampling(sensor, profiles, kept, waits)
    profiles.on_seen = lambda number, until, lost: _seen(levels, number, until, lost)
    profiles.on_lost = lambda numbers: _lost(levels, numbers)
    # an earlier joblensd has sampled them: the arbiter of levels begins anew with these
    for run in node.runs.living().tolist():
        if node.runs.rows["level_number"][run] >= Level.PROFILE:
            node.runs.rows["level_number"][run] = int(Level.IO)
            node.runs.rows["level"][run] = Level.IO.word.encode()


def apply(levels: Levels, run: int, slot: int, level: Level) -> Level:
    """Starts or stops the sampling of a run that is counted at level io; returns the level that it gets."""
    node = levels.node
    sampling: Sampling | None = getattr(node, "sampling", None)
    notes = node.handles[run].notes
    notes["profile"] = ""
    if sampling is None:
        return level
    number = int(node.runs.rows["run_number"][run])
    if level < Level.PROFILE:
        end(levels, run)
        return level
    sandbox = node.handles[run].sandbox
    if sandbox is None:
        notes["profile"] = missing_level.note(level, "the job's folder is unknown")
        return Level.IO
    sensor = node.tracer.sensors["profile"]
    sampling.sensor.describe(slot, number, sandbox.scratch_uid)
    started = sensor.start(slot)
    for name, reason in sensor.missing.items():
        node.log_once(f"level profile can't take {name}: {reason}")
    if not started:
        why = sensor.why_not()
        if why != LOADING and sensor.missing:  # of what is tried again, it still has what failed before
            why = "; ".join(sensor.missing.values())
        notes["profile"] = missing_level.note(level, why)
        return Level.IO
    lacks = [f"level profile lacks {', '.join(sensor.missing)}"] if sensor.missing else []
    limits = [f"stacks on {kernel_limits.of_this_kernel()}"] if sampling.sensor.is_guessing else []
    notes["profile"] = "; ".join(lacks + limits)
    if number not in sampling.begun:
        sampling.begun.add(number)
        levels.cut_off.pop(number, None)
        node.collectors.profile.begin(run)
        sampling.kept.begin(run)
        sampling.waits.begin(run, slot)
        seen = node.runs.state["profile_seen"]
        sampling.profiles.begin(number, slot, float(seen[run]))
        seen[run] = seen[run] or time.time()
    return level


def end(levels: Levels, run: int) -> None:
    """The run is not sampled any more. Its last window comes in a moment, even if the run is over by then."""
    node = levels.node
    sampling: Sampling | None = getattr(node, "sampling", None)
    slot = int(node.runs.state["kernel_slot"][run])
    if sampling is None:
        return
    number = int(node.runs.rows["run_number"][run])
    if slot >= 0 and sampling.sensor.loaded is not None:
        counted = node.tracer.sensors["profile"].stop(slot)
        if counted is not None and not node.runs.rows["final"][run]:
            node.collectors.profile.add(run, counted)
    sampling.begun.discard(number)
    sampling.waits.end(number)
    sampling.profiles.end(number)


def take_over(levels: Levels, run: int) -> None:
    """An earlier joblensd has left the run. If it was sampled, nobody does so now."""
    rows = levels.node.runs.rows
    if rows["level_number"][run] >= Level.PROFILE:
        levels.cut_off[int(rows["run_number"][run])] = time.time()


def finish(levels: Levels, run: int) -> None:
    """As `end`, of a run that is over. Declares what an earlier joblensd has sampled, and no later one."""
    end(levels, run)
    node = levels.node
    sampling: Sampling | None = getattr(node, "sampling", None)
    begun = float(node.runs.state["profile_seen"][run])
    ended = levels.cut_off.pop(int(node.runs.rows["run_number"][run]), 0.0)
    if 0 < begun < ended:
        kept = RunProfiles(levels.output.artifacts) if sampling is None else sampling.kept
        kept.declare_unseen(run, begun, ended)


def _seen(levels: Levels, number: int, until: float, lost: int) -> None:
    """A window of a run has closed. An earlier joblensd's last one is where its profile has a hole."""
    run = _run_of(levels, number)
    if run is not None:
        levels.node.runs.state["profile_seen"][run] = until
        levels.node.collectors.profile.lose(run, lost)


def _lost(levels: Levels, numbers: list[int]) -> None:
    """The reader of samples has ended. A run that ends before the next window has no other word of it."""
    for number in numbers:
        run = _run_of(levels, number)
        if run is not None:
            levels.node.handles[run].notes[NOTE_OF_READER] = LACKS
            levels.node.update_note(run)


def _run_of(levels: Levels, number: int) -> int | None:
    runs = levels.node.runs
    living = runs.living()
    found = living[runs.rows["run_number"][living] == number]
    return int(found[0]) if len(found) else None
