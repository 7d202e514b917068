"""One round of measuring: kernel counters and cgroup files into the rows of all runs, as columns."""

from __future__ import annotations

import contextlib
import os
import time

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import METRICS, cut, empty_rows, text
from condor_joblens.sample import cgroup_files, endpoint_lists, io_counters, memory_growth, task_counters, totals
from condor_joblens.tracer.backend import Backend

CONNECTIONS_EVERY = 5.0
"""Seconds between two walks over the open TCP connections: it costs as much as everything else together."""

ELSEWHERE = "connections of other network namespaces while they are open"
"""As `uncounted` calls them: a walk meets those of joblensd's own alone."""

UDP_BY_FILE = "UDP by read() and write()"
"""What a kernel before 6.3 does not tell (udp.bpf.c)."""

COLUMNS = [metric.column for metric in METRICS]
TCP = [column for column in COLUMNS if column.startswith("tcp_")]


def everything(node: Node) -> None:
    """Takes the numbers of all runs once."""
    now = time.monotonic()
    runs, rows = node.runs.living(), node.runs.rows
    # HTCondor can leave the empty cgroup of a job that has ended behind: its last numbers stand
    may_live = (rows["process_live"][runs] != 0) & (node.runs.state["kernel_slot"][runs] >= 0)
    over = rows["final"][runs] & ~may_live
    runs = runs[(rows["level_number"][runs] > 0) & ~over & _due(node, runs, now)]
    if not len(runs):
        return
    counted = _counted(node, runs)
    connections = bool(len(counted)) and now >= node.next_connections
    if connections:
        node.next_connections = now + CONNECTIONS_EVERY
    _kernel(node, counted, tasks=True, connections=connections)
    _files(node, runs, now)
    _finish(node, runs, now)


def _due(node: Node, runs: np.ndarray, now: float) -> np.ndarray:
    """Which of `runs` (n,) are to be measured in this round: some have a longer period than the node's."""
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


def last(node: Node, runs: np.ndarray) -> None:
    """Takes the numbers of `runs` (n,) whose first process has ended, in far less than a walk over all threads.

    What lives on in them is known from the round before, and a total never goes backwards.
    """
    runs = runs[node.runs.rows["level_number"][runs] > 0]
    if not len(runs):
        return
    now = time.monotonic()
    node.runs.state["due"][runs] = True
    _kernel(node, _counted(node, runs), tasks=False, connections=True)
    # last, so that the exiting process has left its CPU by now and is accounted for
    _files(node, runs, now, at_end=True)
    _finish(node, runs, now)


def _counted(node: Node, runs: np.ndarray) -> np.ndarray:
    """Those of `runs` that the kernel counts, and whose job has begun."""
    slots = node.runs.state["kernel_slot"][runs]
    counted = slots >= 0
    counted[counted] = node.tracer.counters["awaits_exec"][slots[counted]] == 0
    found: np.ndarray = runs[counted]
    return found


def _kernel(node: Node, runs: np.ndarray, tasks: bool, connections: bool) -> None:
    if not len(runs):
        return
    tracer = node.tracer
    slots = node.runs.state["kernel_slot"][runs]
    has_open = _has_open(node, runs, slots)
    by_endpoint = _by_endpoint(node, runs, slots) & (connections or not has_open)
    if by_endpoint.any():
        node.endpoints.read()
    # the totals of what has ended first, then what lives: see kernel.columns
    ended = tracer.counters[slots]
    if tasks:
        tracer.count_living()
        living = tracer.living[slots]
    else:
        living = np.zeros(len(slots), tracer.living.dtype)
    if connections and has_open:
        opened = ended["connected"] + ended["accepted"]
        tracer.count_connections()
        open_connections = tracer.connections[slots]
        # those that the walk met have been counted when they opened
        for name in ("connected", "accepted", "closed"):
            ended[name] = tracer.counters[name][slots]
        # the walk meets all that were open before it and are still open after it
        unmet = (opened - ended["closed"]).astype("i8") > open_connections["connections"].astype("i8")
        _note_unmet(node, runs, set(runs[by_endpoint & unmet].tolist()))
    else:
        open_connections = np.zeros(len(slots), tracer.connections.dtype)
    columns = _known(tracer, task_counters.columns(ended, living, open_connections))
    if not connections and has_open:
        # a closed connection's bytes without those of the open ones would be less than was published
        for column in TCP:
            columns.pop(column, None)
    totals.merge(node.runs.rows, node.runs.state["offset"], runs, columns)
    if by_endpoint.any():
        _endpoints(node, runs, by_endpoint, ended, open_connections if connections and has_open else None)
    at_io, counted = tracer.sensors["io"].counters(slots)
    if len(counted):
        _io(node, runs[at_io], counted)


def _note_unmet(node: Node, runs: np.ndarray, unmet: set[int]) -> None:
    """Of `runs` (n,) the walk has not met all open connections of `unmet`: declared at the second walk in a row.

    One alone can be a connection that was just being closed: it is out of the kernel's table before it is counted.
    """
    for run in unmet & node.unmet:
        _declare(node.runs.rows, run, [ELSEWHERE])
    node.unmet.difference_update(runs.tolist())
    node.unmet |= unmet


def any_open(node: Node, runs: list[int]) -> bool:
    """Whether any of the runs that the kernel counts has open connections."""
    counted = _counted(node, np.array(runs, "i8"))
    return _has_open(node, counted, node.runs.state["kernel_slot"][counted])


def _has_open(node: Node, runs: np.ndarray, slots: np.ndarray) -> bool:
    """Whether any of the runs has open connections."""
    counters = node.tracer.counters[slots]
    if np.any(counters["connected"] + counters["accepted"] != counters["closed"]):
        return True
    # a job that is older than the tracer can have connections that were never seen to open: the walk met them
    late = slots[~node.runs.rows["complete"][runs]]
    return bool(node.tracer.connections["connections"][late].any())


def _by_endpoint(node: Node, runs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Which of `runs` (n,) are counted by endpoint: those that are or were at level io, shape (n,)."""
    if not node.endpoints.usable:
        return np.zeros(len(runs), "?")
    found: np.ndarray = node.runs.rows["level_number"][runs] >= Level.IO
    found |= node.tracer.counters["by_endpoint"][slots] > 0
    return found


def _endpoints(node: Node, runs: np.ndarray, chosen: np.ndarray, ended: np.ndarray, walked: np.ndarray | None) -> None:
    """Level io's numbers of the network, of those of `runs` (n,) that are `chosen` (n,)."""
    rows, state = node.runs.rows, node.runs.state
    runs, ended = runs[chosen], ended[chosen]
    walked = None if walked is None else walked[chosen]
    columns = endpoint_lists.columns(ended, walked, "UDP" not in node.tracer.missing)
    totals.merge(rows, state["offset"], runs, columns)
    if "jl_udp_sys_exit" in node.tracer.attached():
        for run in runs.tolist():
            _declare(rows, run, [UDP_BY_FILE])
    node.endpoints.update(rows, runs, state["cgroup_id"][runs], walked)


def _io(node: Node, runs: np.ndarray, counted: np.ndarray) -> None:
    """Level io's numbers of `runs` (n,): layout.IO_COUNTERS, shape (n,)."""
    rows = node.runs.rows
    for columns, numbers in io_counters.blocks(counted).items():
        totals.merge_counters(rows, node.runs.state["offset"], runs, columns, numbers)
    for run, names in zip(runs.tolist(), io_counters.uncounted(counted)):
        _declare(rows, run, [*node.tracer.missing, *names])


def _declare(rows: np.ndarray, run: int, names: list[str]) -> None:
    """What of the run can't be counted, beside what is said of it already."""
    known = text(bytes(rows["uncounted"][run])).split("; ")
    rows["uncounted"][run] = cut("; ".join(dict.fromkeys(filter(None, [*known, *names]))), "uncounted")


def _at_io(node: Node, runs: np.ndarray) -> np.ndarray:
    """Which of `runs` (n,) the kernel counts at level io, shape (n,)."""
    slots = node.runs.state["kernel_slot"][runs]
    found: np.ndarray = (slots >= 0) & (node.tracer.counters["io_key"][slots] > 0)
    return found


def begin_io(node: Node, run: int) -> None:
    """Level io counts from nothing on: its totals go on from where they are."""
    totals.rebase(node.runs.rows, node.runs.state["offset"], run, io_counters.nothing(1))
    node.runs.state["lost_io_before"][run] = node.tracer.sensors["io"].lost()


def end_io(node: Node, run: int, counted: np.ndarray) -> None:
    """Level io counts no longer: its last numbers (layout.IO_COUNTERS, shape (1,)) stand from now on."""
    _io(node, np.array([run]), counted)
    state = node.runs.state
    state["lost_before"][run] -= max(0, node.tracer.sensors["io"].lost() - int(state["lost_io_before"][run]))


def _known(source: Backend, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the source can give: all else stays absent."""
    return {column: values for column, values in columns.items() if column not in source.unknown}


def _files(node: Node, runs: np.ndarray, now: float, at_end: bool = False) -> None:
    rows, state = node.runs.rows, node.runs.state
    files = [node.handles[run].files for run in runs.tolist()]
    totals.merge(rows, state["offset"], runs, cgroup_files.read_cpu(files))
    due = np.arange(len(runs)) if at_end else np.flatnonzero(state["next_slow"][runs] <= now)
    if len(due):
        columns = _slow(node, [files[index] for index in due])
        totals.merge(rows, state["offset"], runs[due], columns)
        state["next_slow"][runs[due]] = now + node.config.pressure_period
        if not at_end:  # memory that is given back then is no part of where it was going
            _growth(node, runs[due], now)


def _slow(node: Node, files: list[cgroup_files.CgroupFiles]) -> dict[str, np.ndarray]:
    """What need not be read each round. A tracer that counts victims of the OOM killer counts none of them twice."""
    columns = cgroup_files.read_slow(files)
    kills = columns.get(cgroup_files.OOM_KILLS)
    if kills is not None and (cgroup_files.OOM_KILLS not in node.tracer.unknown or (kills < 0).all()):
        del columns[cgroup_files.OOM_KILLS]
    return columns


def _growth(node: Node, runs: np.ndarray, now: float) -> None:
    """Where the memory of `runs` (n,) is going: by their cgroups, or their processes where those are not charged."""
    rows, state, window = node.runs.rows, node.runs.state, node.config.memory_trend_seconds
    charged, summed = rows["memory_cgroup_anon_bytes"][runs], rows["memory_anon_bytes"][runs]
    anon = np.where(charged >= 0, charged, summed)
    limit, asked = rows["memory_limit_bytes"][runs], rows["request_memory_bytes"][runs]
    memory_growth.remember(state, runs, anon, now, window)
    held = anon + np.maximum(rows["memory_cgroup_kernel_bytes"][runs], 0)
    found = memory_growth.columns(state, runs, held, np.where(limit >= 0, limit, asked), now, window)
    totals.merge(rows, state["offset"], runs, found)


def _finish(node: Node, runs: np.ndarray, now: float) -> None:
    rows, state = node.runs.rows, node.runs.state
    totals.cores(rows, state, runs, now)
    rows["update_time"][runs] = int(time.time())
    lost = node.tracer.lost() - state["lost_before"][runs]
    at_io = _at_io(node, runs)
    lost[at_io] += np.maximum(0, node.tracer.sensors["io"].lost() - state["lost_io_before"][runs[at_io]])
    rows["lost"][runs] = np.maximum(lost, rows["lost"][runs])
    rows["complete"][runs] &= lost <= 0


def rebase_losses(node: Node, run: int) -> None:
    """The kernel's losses up to now are not the run's, except those that its row has already."""
    node.runs.state["lost_before"][run] = node.tracer.lost() - max(0, int(node.runs.rows["lost"][run]))


def start_over(node: Node, run: int) -> None:
    """Counting begins now: the job's first instruction is the next exec in its slot."""
    rows, state = node.runs.rows, node.runs.state
    now = time.monotonic()
    forget(node, run)
    state["growth_time"][run] = 0
    _look_inside(node, run)
    runs = np.array([run])
    files = [node.handles[run].files]
    for columns in (cgroup_files.read_cpu(files), _slow(node, files)):
        totals.rebase(rows, state["offset"], run, columns)
    node.tracer.begin_at_next_exec(int(state["kernel_slot"][run]))
    if _at_io(node, runs)[0]:
        begin_io(node, run)
        node.handles[run].notes["late_io"] = ""
    rows["update_time"][run] = int(time.time())
    totals.remember(rows, state, runs, now)


def _look_inside(node: Node, run: int) -> None:
    """The starter has made all cgroups by now: a limit can be in the inner one."""
    with contextlib.suppress(OSError):
        folder = os.open(node.handles[run].path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            node.handles[run].files.look_inside(folder)
        finally:
            os.close(folder)


def go_on(node: Node, run: int) -> None:
    """A tracer that knows nothing of this run's past takes it over: the totals go on from where they are."""
    runs = np.array([run])
    slots = node.runs.state["kernel_slot"][runs]
    if slots[0] < 0:
        return
    node.tracer.count_living()
    node.tracer.count_connections()
    tracer = node.tracer
    columns = _known(
        tracer, task_counters.columns(tracer.counters[slots], tracer.living[slots], tracer.connections[slots])
    )
    totals.rebase(node.runs.rows, node.runs.state["offset"], run, columns)
    if _by_endpoint(node, runs, slots)[0]:
        columns = endpoint_lists.columns(tracer.counters[slots], tracer.connections[slots], "UDP" not in tracer.missing)
        totals.rebase(node.runs.rows, node.runs.state["offset"], run, columns)
        node.endpoints.go_on(node.runs.rows, run, int(node.runs.state["cgroup_id"][run]))


def forget(node: Node, run: int) -> None:
    """The run's numbers are absent again."""
    nothing = empty_rows(1)[0]
    for column in COLUMNS:
        node.runs.rows[column][run] = nothing[column]
    node.endpoints.forget(node.runs.rows, run)
    node.runs.state["offset"][run : run + 1].view("u1")[:] = 0
    node.runs.state["history_time"][run] = np.nan
