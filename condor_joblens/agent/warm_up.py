"""The end of a job, gone through once at start, with nothing in it: nothing of it is published.

Python and numpy set up what this takes at its first use. That would last longer than a starter waits for the last
numbers of its job.
"""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import numpy as np

from condor_joblens.agent import measure
from condor_joblens.agent.lifecycle import death, process_events
from condor_joblens.agent.run_guard import Failures, RunGuard
from condor_joblens.common.config import Config
from condor_joblens.jobs.run_state import STATE
from condor_joblens.jobs.wrapper_programs import WrapperPrograms
from condor_joblens.model import failures
from condor_joblens.model.levels import Level
from condor_joblens.model.metrics import empty_rows
from condor_joblens.publish.classad import usage_ads
from condor_joblens.sample.cgroup_files import CgroupFiles
from condor_joblens.sample.collectors import Collectors
from condor_joblens.tracer import map_layout

TIMES = 2
"""The second time goes other ways: there are numbers before it, and a list of endpoints."""


def end_of_a_job(config: Config) -> None:
    """At level io, with a connection that is still open, by a process that fails."""
    node, runs = _node(config), np.array([0])
    found: np.ndarray = np.zeros(1, map_layout.PROCESS_EVENT)
    found["kind"], found["exit_code"], found["program"] = map_layout.PROCESS_EXIT, 1 << 8, b"job"
    for _ in range(TIMES):
        measure.sample_final(node, runs)
        process_events.as_events(found, np.zeros(1, "u8"), 0.0)
        death.record_exits(node, runs, found)
        usage_ads(node.runs.rows)


_FAILURES = failures.Failures(
    (failures.Failure(errno.ENOENT, failures.Subject.PATH, 0.0, path=b"/file"),), b"/file: no such file"
)


def _refuse(line: str) -> None:
    """A collector that fails here fails at the first end of a job."""
    raise RuntimeError(line)


def _node(config: Config) -> Any:
    """A node with one run, of which nothing is anybody else's."""
    rows, state = empty_rows(1), np.zeros(1, STATE)
    rows["level_number"] = Level.IO
    counters: np.ndarray = np.zeros(1, map_layout.COUNTERS)
    counters["connected"] = counters["io_key"] = 1
    keys: np.ndarray = np.zeros(1, map_layout.ENDPOINT_KEY)
    values: np.ndarray = np.zeros(1, map_layout.ENDPOINT)
    asked: np.ndarray = np.zeros(1, map_layout.SERVER_KEY)
    counted: np.ndarray = np.zeros(1, map_layout.IO_COUNTERS)
    tracer: Any = SimpleNamespace(
        counters=counters,
        living=np.zeros(1, map_layout.LIVING),
        connections=np.ones(1, map_layout.LIVING),
        connections_round=0,
        count_connections=lambda: None,
        endpoints=SimpleNamespace(room=1, read=lambda: (keys, values)),
        servers=SimpleNamespace(room=1, read=lambda: (asked, np.zeros(1, map_layout.SERVER))),
        fuse_mounts=dict,
        uncounted_servers=frozenset,
        sensors={
            "io": SimpleNamespace(
                counters=lambda slots: (np.ones(1, "?"), counted),
                lost=lambda: 0,
                missing={},
            )
        },
        failures=lambda slot, tgid: _FAILURES,
        lost=lambda: 0,
        missing={},
        unknown=frozenset(),
        attached=lambda: [],
    )
    node = SimpleNamespace(
        config=config,
        log=_refuse,
        runs=SimpleNamespace(rows=rows, state=state),
        tracer=tracer,
        handles={0: SimpleNamespace(files=CgroupFiles({}))},
        wrapper_programs=WrapperPrograms(),
    )
    node.collectors = Collectors(node)
    node.failures = Failures(_refuse)
    node.guard = RunGuard(node, node.failures)
    return node
