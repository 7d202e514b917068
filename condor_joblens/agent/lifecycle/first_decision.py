"""A run's job ad goes to the policies; with their first answer the run gets its name and its level."""

from __future__ import annotations

import time

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import (
    level_arbiter,
    policy_decisions,
    policy_input,
    policy_rounds,
    provisional_io,
)
from condor_joblens.agent.lifecycle import checkpoint
from condor_joblens.agent.lifecycle.run_identity import identify
from condor_joblens.model.metrics import text
from condor_joblens.policy.job_identity import Identity, literals
from condor_joblens.policy.policy_answers import PolicyAnswer, PolicyFailure

NAMELESS_SECONDS = 5.0
"""How long joblensd waits for a job's ad."""


def submit_job_ad(agent: Agent, run: int) -> None:
    """Submits the job's ad to the policies, once; before the job's own code runs the ad is the starter's."""
    node, sent = agent.node, agent.levels.inputs[run]
    sandbox = node.handles[run].sandbox
    if sent.is_submitted or sandbox is None:
        return
    ad = sandbox.job_ad()
    if ad is None:
        return
    sent.is_submitted, sent.job_ad = True, ad
    if b"checkpointexitcode" in ad.lower():
        # the run may have begun before its checkpoint, and the policies' temporary entries with it
        _identify(agent, run, literals(ad))
    agent.levels.policy.submit(node.key_of(run), policy_input.request(agent.levels, run, ad, None))
    # after that, so that attaching programs and deciding go on at the same time
    node.guard(run, "level io", provisional_io.begin, agent.levels, run, ad)


def apply_answers(agent: Agent) -> None:
    """Applies what the policy child has answered since the last call, and sends it the next request."""
    node, levels = agent.node, agent.levels
    is_changed, decided = False, []
    for key, outcome in levels.policy.receive():
        run = node.run_of(key)
        if run is None:
            levels.policy.forget(key)
            continue
        decided.append(run)
        if not node.runs.state["named"][run]:
            node.guard(run, "decision", _apply_first, agent, run, outcome)
        else:
            is_changed |= bool(node.guard(run, "decision", policy_decisions.record, levels, run, outcome))
    if is_changed:
        level_arbiter.arbitrate(levels)
    for run in decided:
        node.guard(run, "decision", provisional_io.settle, levels, run)
    policy_rounds.send_next(levels)


def identify_before_end(agent: Agent, run: int) -> None:
    """A job can end before the policies have answered: the literals in its ad then identify the run.

    A run without a name can't be published, and the starter reads the last numbers only once.
    """
    sent = agent.levels.inputs[run]
    if sent.job_ad is None or agent.node.runs.state["named"][run]:
        return
    _identify(agent, run, literals(sent.job_ad))
    _announce(agent, run)


def give_up_waiting(agent: Agent) -> None:
    """A run whose job ad can't be read for NAMELESS_SECONDS is known by its slot alone."""
    node = agent.node
    runs = node.runs.living()
    old = node.runs.state["began"][runs] < time.monotonic() - NAMELESS_SECONDS
    for run in runs[old & ~node.runs.state["named"][runs]].tolist():
        node.guard(run, "job ad", submit_job_ad, agent, run)
        if not agent.levels.inputs[run].is_submitted:
            agent.levels.inputs[run].is_submitted = True
            note = "the job's ad could not be read: known by its slot alone"
            failure = PolicyFailure(level_arbiter.undecided_level(node.config), note)
            node.guard(run, "decision", _apply_first, agent, run, failure)


def _apply_first(agent: Agent, run: int, outcome: PolicyAnswer) -> None:
    """The run gets its name and its level."""
    node, levels = agent.node, agent.levels
    sent = levels.inputs[run]
    _save_ad(agent, run)
    _identify(agent, run, outcome.identity)
    policy_decisions.record_first(levels, run, outcome)
    _announce(agent, run)
    sent.job_ad = None
    level_arbiter.enter(levels, run)
    level_arbiter.arbitrate(levels, run)
    level_arbiter.explain(levels, run)
    # now, not in the next round: a job may end before that
    agent.output.job_ads.publish(run)
    row = node.runs.rows[run]
    remarks = "; ".join(filter(None, (outcome.note, node.handles[run].notes.get("io"))))
    remarks = f" ({remarks})" if remarks else ""
    level = f"is watched at {text(row['level'])}{level_arbiter.reason(levels, run)}{remarks}"
    node.log(f"{node.describe(run)} of {text(row['owner'])} {level}")


def _save_ad(agent: Agent, run: int) -> None:
    """Saves the ad that was sent, for the next time that the policies are asked."""
    node, levels = agent.node, agent.levels
    ad, owner = levels.inputs[run].job_ad, policy_input.owner(levels, run)
    if ad is not None and not levels.saved_ads.keep(int(node.runs.state["cgroup_id"][run]), ad, owner):
        node.log_once(f"no room to save the ads of more jobs of {owner}: the policies decide about those once only")


def _identify(agent: Agent, run: int, from_ad: Identity) -> None:
    identify(agent.node, run, from_ad)
    checkpoint.resume(agent, run)


def _announce(agent: Agent, run: int) -> None:
    agent.output.events.run_started(run)
    agent.node.runs.state["named"][run] = True
