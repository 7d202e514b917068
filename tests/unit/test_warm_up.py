"""What is gone through at start is the end of a job, and touches nothing of the node's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from condor_joblens.agent import measure, warm_up
from condor_joblens.common.config import Config
from condor_joblens.jobs.death_sentence import said
from condor_joblens.model.endpoints import LISTED, Scope

LOADS = """
import sys
import numpy  # before 2.0 it loads all of itself
before = set(sys.modules)
import condor_joblens.agent.__main__ as agent
agent.loop.warm_up.end_of_a_job(agent.run_folder.Config())
print(*{"numpy.ma", "psutil"} & (set(sys.modules) - before))
"""


def test_it_goes_through_level_io_the_endpoints_and_the_death(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = []
    last = measure.sample_final
    monkeypatch.setattr(measure, "sample_final", lambda node, runs: (last(node, runs), nodes.append(node)))
    warm_up.end_of_a_job(Config())
    row, state = nodes[-1].runs.rows[0], nodes[-1].runs.state[0]
    assert row["syscall_read_calls"] == row["wait_sleep_seconds"] == 0
    assert row["endpoints"]["scope"][LISTED] == Scope.REST and row["endpoints"]["scope"][0] == Scope.OUTSIDE
    assert row["tcp_connected"] == 1
    assert said(state["death"]["first"]) == "job exited 1: no such file: /file"


def test_it_loads_nothing_that_an_end_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
