"""What a policy sees of a running job: the same for the agent, which sends it, and for the tools, which check it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from agent_node import make

from condor_joblens.agent.levels import policy_input
from condor_joblens.agent.levels.policy_input import FACTS
from condor_joblens.agent.lifecycle import first_decision
from condor_joblens.cli.policy_check import LIVE, NODE
from condor_joblens.jobs.run_table import Ended
from condor_joblens.model.metrics import ROW

AD = b'GlobalJobId = "ap#1.0#1"\nClusterId = 1\nProcId = 0\nNumShadowStarts = 1\nOwner = "alice"\n'


def test_the_tools_know_what_the_agent_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(LIVE) == set(FACTS)
    it = make(tmp_path, monkeypatch)
    assert set(NODE) == set(policy_input.request(it.levels, it.begin(), b"", None).node)


@pytest.mark.parametrize(("more", "resumed"), [(b"CheckpointExitCode = 85\n", True), (b"", False)])
def test_a_job_that_goes_on_from_its_checkpoint_is_as_old_as_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bytes, resumed: bool
) -> None:
    """Temporary entries begin at the run's start: they do not begin anew with each of its rounds."""
    it = make(tmp_path, monkeypatch)
    long_ago, now = int(time.time()) - 1000, int(time.time())
    before = np.zeros(1, ROW)
    before["run"], before["start_time"] = b"ap#1.0#1#1", long_ago
    before["job_id"], before["owner"] = b"1.0", b"alice"
    run = it.begin("2.0")
    for column in ("slot", "execute"):
        before[column] = it.node.runs.rows[column][run]
    it.node.ended = Ended(str(tmp_path / "ended"), 0)
    it.node.ended.add(before[0])
    it.node.runs.rows["start_time"][run], it.node.runs.state["named"][run] = now, False
    it.node.handles[run].sandbox.job_ad.return_value = AD + more  # type: ignore[union-attr]
    first_decision.submit_job_ad(it.agent, run)
    ((_, request),) = it.policies.submitted
    assert request.started == (long_ago if resumed else now)
