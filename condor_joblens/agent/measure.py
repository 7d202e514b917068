"""One round of measuring: all collectors put their numbers into the rows of all runs, as columns.

The order is what makes totals exact: see sample/collectors.py. A collector that raises costs its own numbers only. They
become absent in the rows that it was to fill, `Uncounted` names it, and it is tried again in the next round. If it
raises for some runs and not for others, only those runs lack its numbers.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import numpy as np

from condor_joblens.agent import before_job
from condor_joblens.agent.node import Node
from condor_joblens.commands.level import LATE_IO
from condor_joblens.model.metrics import LISTS, METRICS, MetricKind, empty_rows, text
from condor_joblens.sample import cpu_rates, totals
from condor_joblens.sample.collector import Collector, SourceFailed, declare_uncounted, withdraw_uncounted

COLUMNS = [metric.column for metric in METRICS] + list(LISTS)
NEVER_LESS = frozenset(metric.column for metric in METRICS if metric.kind is not MetricKind.GAUGE)

MEASURING = "measuring"
"""The step (run_guard.py) that is left out for a run which alone makes a collector fail, again and again."""

MAX_HALVED = 32
"""How often in one round a group of runs is halved, to find those that make a collector fail. What has not been found
by then is found in the next rounds."""


def sample_all(node: Node) -> None:
    """Takes the numbers of all runs whose turn it is."""
    now = time.monotonic()
    runs, rows = node.runs.living(), node.runs.rows
    # HTCondor can leave the empty cgroup of a job that has ended behind: its last numbers stand
    may_live = (rows["process_live"][runs] != 0) & (node.runs.state["kernel_slot"][runs] >= 0)
    over = rows["final"][runs] & ~may_live
    runs = _measurable(node, runs[(rows["level_number"][runs] > 0) & ~over & _due(node, runs, now)])
    if len(runs):
        before_job.give_up_waiting(node, runs, at_end=False)
        _collect(node, runs, at_end=False)
        finish(node, runs)


def _measurable(node: Node, runs: np.ndarray) -> np.ndarray:
    """Those of `runs` (n,) that have not made a collector fail too often."""
    left_out = node.guard.runs_left_out(MEASURING)
    if not left_out:
        return runs
    found: np.ndarray = runs[~np.isin(runs, sorted(left_out))]
    return found


def _due(node: Node, runs: np.ndarray, now: float) -> np.ndarray:
    """Which of `runs` (n,) are measured in this round: some have a longer period than the node's."""
    state, rows = node.runs.state, node.runs.rows
    # a round comes a little early or late: half of its period is no reason to wait for the next one
    due: np.ndarray = state["next_measure"][runs] <= now + node.config.period / 2
    state["next_measure"][runs[due]] = now + rows["period_seconds"][runs[due]]
    state["due"][runs[due]] = True
    return due


def take_sampled(node: Node, runs: np.ndarray) -> np.ndarray:
    """Those of `runs` (n,) that have new numbers since the last call."""
    sampled: np.ndarray = runs[node.runs.state["due"][runs]]
    node.runs.state["due"][sampled] = False
    return sampled


def sample_final(node: Node, runs: np.ndarray) -> None:
    """Takes the numbers of `runs` (n,) whose first process has ended, in far less time than a walk over all threads.

    What lives on in them is known from the round before, and a total never goes backwards.
    """
    runs = _measurable(node, runs[node.runs.rows["level_number"][runs] > 0])
    if len(runs):
        node.runs.state["due"][runs] = True
        before_job.give_up_waiting(node, runs, at_end=True)
        _collect(node, runs, at_end=True)
        finish(node, runs)


def any_open(node: Node, runs: list[int]) -> bool:
    """Whether any of the runs that the kernel counts has open connections."""
    return node.collectors.kernel.any_open(np.array(runs, "i8"))


# -- one guard for each collector ---------------------------------------------------------------------------------


def _collect(node: Node, runs: np.ndarray, at_end: bool) -> None:
    """Reads all collectors; if one fails, in halves of the runs, until those that make it fail are known."""
    parts, halved = [runs], 0
    failed: list[tuple[Collector, list[int], Exception]] = []
    at_first: dict[str, Exception] = {}
    working: set[str] = set()
    while parts:
        part = parts.pop()
        errors = _read_all(node, part, at_end)
        if errors and len(part) > 1 and halved < MAX_HALVED and _may_differ(node, errors):
            halved += 1
            at_first.update(errors)
            parts += [part[len(part) // 2 :], part[: len(part) // 2]]
            node.collectors.kernel.walk_next_time()
            continue
        for collector in node.collectors.all:
            error = errors.get(collector.name)
            if error is not None:
                failed.append((collector, collector.runs.tolist(), error))
                _fail(node, collector, error)
            elif len(collector.runs):
                working.add(collector.name)
    for name in at_first.keys() - {collector.name for collector, _, _ in failed}:
        head = f"the collector of {name} failed once, and worked when it read the runs again"
        node.failures.log(name, head, at_first[name])
    if failed:
        _learn(node, failed, working)
    elif node.collectors.broken:
        node.collectors.broken.clear()


def _may_differ(node: Node, errors: dict[str, Exception]) -> bool:
    """Whether a collector that failed may work for some of its runs; not if it did for none of them the last time."""
    broken = node.collectors.broken
    return any(
        collector.name in errors
        and not isinstance(errors[collector.name], SourceFailed)
        and not broken.get(collector.name, frozenset()).issuperset(collector.runs.tolist())
        for collector in node.collectors.all
    )


def _learn(node: Node, failed: list[tuple[Collector, list[int], Exception]], working: set[str]) -> None:
    """A collector that fails for all runs is broken. If it works for others, the runs it fails for are to blame."""
    broken: dict[str, frozenset[int]] = {}
    for collector, runs, error in failed:
        if isinstance(error, SourceFailed):
            continue
        if collector.name not in working:
            broken[collector.name] = broken.get(collector.name, frozenset()).union(runs)
        elif len(runs) == 1:
            node.guard.failed(runs[0], MEASURING, error)
    node.collectors.broken = broken


def _read_all(node: Node, runs: np.ndarray, at_end: bool) -> dict[str, Exception]:
    """Reads all collectors once; the errors of those that failed, by name."""
    errors: dict[str, Exception] = {}
    for collector in node.collectors.all:
        collector.runs = runs
        try:
            collector.prepare(runs, at_end)
        except Exception as error:
            errors[collector.name] = error
    for collector in node.collectors.all:
        if collector.name in errors:
            continue
        try:
            collector.read(runs, at_end)
        except Exception as error:
            errors[collector.name] = error
        else:
            if node.collectors.failing:
                _recover(node, collector)
    return errors


def _fail(node: Node, collector: Collector, error: Exception) -> None:
    """The numbers of the runs that the collector was to measure are absent from now on, not those of the last round."""
    _log_once(node, collector, error)
    rows, nothing = node.runs.rows, empty_rows(1)[0]
    failing = node.collectors.failing.setdefault(collector.name, {})
    for run in collector.runs.tolist():
        if run not in failing:
            failing[run] = rows[run].copy()
        for column in collector.columns:
            rows[column][run] = nothing[column]
        declare_uncounted(rows, run, [_called(collector)])


def _recover(node: Node, collector: Collector) -> None:
    """Numbers of the collector are there again: none is less than before it failed."""
    failing = node.collectors.failing.get(collector.name, {})
    for run in failing.keys() & set(collector.runs.tolist()):
        _restore(node, collector, run)
    if not failing:
        node.collectors.failing.pop(collector.name, None)


def _restore(node: Node, collector: Collector, run: int) -> None:
    before, rows = node.collectors.failing[collector.name].pop(run), node.runs.rows
    for column in NEVER_LESS.intersection(collector.columns):
        rows[column][run] = np.fmax(rows[column][run], before[column])
    withdraw_uncounted(rows, run, _called(collector))


def recall_failures(node: Node) -> None:
    """An earlier joblensd can have left runs with numbers that are absent since a collector failed."""
    rows = node.runs.rows
    for collector in node.collectors.all:
        called = _called(collector)
        for run in node.runs.living().tolist():
            if called in text(bytes(rows["uncounted"][run])).split("; "):
                node.collectors.failing.setdefault(collector.name, {})[run] = rows[run].copy()


def _called(collector: Collector) -> str:
    return f"{collector.name} (failed, see JobLensdLog)"


def _log_once(node: Node, collector: Collector, error: Exception) -> None:
    """The traceback, unless the collector whose reading this one needs has failed: that is in the log already."""
    if not isinstance(error, SourceFailed):
        head = f"the collector of {collector.name} failed: its numbers are absent until it works; all others go on"
        node.failures.log(collector.name, head, error)


@contextlib.contextmanager
def _guarded(node: Node, collector: Collector, run: int) -> Iterator[None]:
    """The same guard for what concerns one run, and is no sample."""
    collector.runs = np.array([run])
    try:
        yield
    except Exception as error:
        _fail(node, collector, error)


# -- after each sample --------------------------------------------------------------------------------------------


def finish(node: Node, runs: np.ndarray) -> None:
    """The numbers of `runs` (n,) are those of this moment: what was lost until now is said."""
    rows, state = node.runs.rows, node.runs.state
    _set_update_time(node, runs)
    lost = node.tracer.lost() - state["lost_before"][runs]
    at_io = _at_io(node, runs)
    lost[at_io] += np.maximum(0, node.tracer.sensors["io"].lost() - state["lost_io_before"][runs[at_io]])
    rows["lost"][runs] = np.maximum(lost, rows["lost"][runs])
    rows["complete"][runs] &= lost <= 0
    before_job.declare(node, runs)


def _at_io(node: Node, runs: np.ndarray) -> np.ndarray:
    """Which of `runs` (n,) are counted and published at level io, shape (n,)."""
    slots = node.runs.state["kernel_slot"][runs]
    found: np.ndarray = (slots >= 0) & (node.tracer.counters["io_key"][slots] > 0)
    found &= ~node.runs.state["io_provisional"][runs]
    return found


# -- a run begins, changes or ends --------------------------------------------------------------------------------


def begin_io(node: Node, run: int) -> None:
    """Level io counts from nothing on: its totals go on from where they are."""
    with _guarded(node, node.collectors.io, run):
        node.collectors.io.begin(run)
    node.runs.state["lost_io_before"][run] = node.tracer.sensors["io"].lost()


def begin_unpublished_io(node: Node, run: int, late_since: float) -> None:
    """Level io counts the run from nothing on, and nobody may see that yet.

    late_since: CLOCK_MONOTONIC, if the job may have begun before; else 0.
    """
    node.runs.state["lost_io_before"][run] = node.tracer.sensors["io"].lost()
    node.runs.state["io_late_since"][run] = late_since


def publish_io(node: Node, run: int) -> None:
    """What level io has counted of the run unpublished is in its row from now on."""
    slot = node.runs.state["kernel_slot"][run : run + 1]
    with _guarded(node, node.collectors.io, run):
        node.collectors.io.begin(run)
        is_counted, counted = node.tracer.sensors["io"].counters(slot)
        if is_counted[0]:
            node.collectors.io.add(run, counted)


def discard_io(node: Node, run: int) -> None:
    """What level io has counted of the run unpublished is forgotten; what it does by endpoint as well."""
    with _guarded(node, node.collectors.endpoints, run):
        node.collectors.endpoints.discard(run)


def end_io(node: Node, run: int, counted: np.ndarray) -> None:
    """Level io counts no longer: its last numbers (map_layout.IO_COUNTERS, shape (1,)) stand from now on."""
    with _guarded(node, node.collectors.io, run):
        node.collectors.io.add(run, counted)
    state = node.runs.state
    state["lost_before"][run] -= max(0, node.tracer.sensors["io"].lost() - int(state["lost_io_before"][run]))


def rebase_losses(node: Node, run: int) -> None:
    """The kernel's losses up to now are not the run's, except those that its row has already."""
    node.runs.state["lost_before"][run] = node.tracer.lost() - max(0, int(node.runs.rows["lost"][run]))


def rebase(node: Node, run: int) -> None:
    """A tracer that knows nothing of this run's past takes it over: the totals go on from where they are."""
    if node.runs.state["kernel_slot"][run] < 0:
        return
    for collector in node.collectors.all:
        if run in node.collectors.failing.get(collector.name, ()):
            _restore(node, collector, run)
        with _guarded(node, collector, run):
            collector.rebase(run)


def reset(node: Node, run: int) -> None:
    """Counting begins now: the job's first instruction is the next exec in its slot."""
    forget(node, run)
    _look_inside(node, run)
    for collector in node.collectors.all:
        with _guarded(node, collector, run):
            collector.reset(run)
    # its wrapper waits no longer than it may: on a full node the job can begin while this goes on
    is_in_time = node.tracer.begin_at_next_exec(int(node.runs.state["kernel_slot"][run]))
    if node.runs.state["io_provisional"][run]:
        begin_unpublished_io(node, run, 0 if is_in_time else time.monotonic())
    elif _at_io(node, np.array([run]))[0]:
        begin_io(node, run)
        age = time.monotonic() - float(node.runs.state["began"][run])
        node.handles[run].notes[LATE_IO] = "" if is_in_time else before_job.late_note(age)
    _set_update_time(node, np.array([run]))


def _set_update_time(node: Node, runs: np.ndarray) -> None:
    """The numbers of `runs` (n,) are of now, and none is older than its run: the clock can have been put back."""
    rows = node.runs.rows
    rows["update_time"][runs] = np.maximum(int(time.time()), rows["start_time"][runs])


def _look_inside(node: Node, run: int) -> None:
    """The starter has made all cgroups by now: a limit can be in the inner one."""
    with contextlib.suppress(OSError):
        folder = os.open(node.handles[run].path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            node.handles[run].files.look_inside(folder)
        finally:
            os.close(folder)


def forget(node: Node, run: int) -> None:
    """The run's numbers are absent again."""
    nothing = empty_rows(1)[0]
    for column in COLUMNS:
        node.runs.rows[column][run] = nothing[column]
    for collector in node.collectors.all:
        withdraw_uncounted(node.runs.rows, run, _called(collector))
    node.collectors.forget(run)
    totals.clear(node.runs.state["offset"], run)
    cpu_rates.clear(node.runs.state, run)
