"""What a policy sees of a running job is the same for the agent, which sends it, and for the tools, which check it."""

from __future__ import annotations

from condor_joblens.agent.review import FACTS
from condor_joblens.cli.policy_check import LIVE


def test_the_tools_know_what_the_agent_sends() -> None:
    assert set(LIVE) == set(FACTS)
