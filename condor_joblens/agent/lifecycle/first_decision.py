"""A run's job ad goes to the policies; with their first answer the run gets its name and its level."""

from __future__ import annotations

import time
from collections.abc import Callable

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import (
    level_arbiter,
    policy_decisions,
    policy_input,
    policy_rounds,
    provisional_io,
)
from condor_joblens.agent.lifecycle import checkpoint, raised, startd_truth
from condor_joblens.agent.lifecycle.run_identity import identify
from condor_joblens.model.metrics import cut, text
from condor_joblens.policy import peek_request, trace_request
from condor_joblens.policy.job_identity import Identity, literals
from condor_joblens.policy.policy_answers import PolicyAnswer, PolicyFailure

NAMELESS_SECONDS = 5.0
"""How long joblensd waits for a job's ad."""

UNCONFIRMED_SECONDS = 15.0
"""How long it waits for a startd to confirm that ad. Meanwhile the job is counted, and not published."""


def submit_job_ad(agent: Agent, run: int) -> None:
    """Reads the job's ad, once, and submits it to the policies as soon as a startd has confirmed it."""
    node, sent = agent.node, agent.levels.inputs[run]
    sandbox = node.handles[run].sandbox
    if sent.is_submitted or sandbox is None:
        return
    ad = sandbox.job_ad()
    if ad is None:
        return
    sent.is_submitted, sent.job_ad = True, ad
    sent.trace, sent.peek = trace_request.understand(ad), peek_request.understand(ad)
    if startd_truth.consult(agent, run):
        _submit(agent, run)
    # after that, so that attaching programs and deciding go on at the same time
    node.guard(run, "level io", provisional_io.begin, agent.levels, run, ad)


def _submit(agent: Agent, run: int) -> None:
    sent = agent.levels.inputs[run]
    ad = sent.job_ad
    if ad is None:
        return
    sent.is_judged = True
    if b"checkpointexitcode" in ad.lower():
        # the run may have begun before its checkpoint, and the policies' temporary entries with it
        _identify(agent, run, literals(ad))
    agent.levels.policy.submit(agent.node.key_of(run), policy_input.request(agent.levels, run, ad, None))


def apply_startds_answer(agent: Agent) -> None:
    """A startd may have answered: ads that it has confirmed, or refused, are judged now."""
    for run in startd_truth.receive(agent):
        agent.node.guard(run, "startd", _confirmed, agent, run)


def _confirmed(agent: Agent, run: int) -> None:
    node = agent.node
    if not node.runs.state["named"][run]:
        _submit(agent, run)
        return
    before = text(node.runs.rows["run"][run])
    ad = agent.levels.saved_ads.ad(int(node.runs.state["cgroup_id"][run]))
    _identify(agent, run, literals(ad or agent.levels.inputs[run].job_ad or b""))
    agent.node.handles[run].own_name, agent.node.handles[run].own_owner = b"", ""
    if node.runs.rows["final"][run]:
        return  # the list of ended runs has its name; its events did not
    if text(node.runs.rows["run"][run]) != before:
        node.log(f"{text(node.runs.rows['slot'][run])}: {before} is {text(node.runs.rows['run'][run])}")
        agent.output.events.run_started(run)
    node.update_note(run)
    agent.output.job_ads.publish_soon(run)


def apply_answers(agent: Agent, between: Callable[[], None] = lambda: None) -> None:
    """Applies what the policy child has answered since the last call, and sends it the next request.

    `between` two answers runs may end: each of them takes some milliseconds.
    """
    node, levels = agent.node, agent.levels
    is_changed, decided = False, []
    for key, outcome in levels.policy.receive():
        run = node.run_of(key)
        if run is None:
            levels.policy.forget(key)
            continue
        decided.append(key)
        if not node.runs.state["named"][run]:
            node.guard(run, "decision", _apply_first, agent, run, outcome)
        else:
            is_changed |= bool(node.guard(run, "decision", policy_decisions.record, levels, run, outcome))
        between()
    if is_changed:
        level_arbiter.arbitrate(levels)
    for key in decided:
        run = node.run_of(key)
        if run is not None:
            node.guard(run, "decision", provisional_io.settle, levels, run)
    policy_rounds.send_next(levels)


def identify_before_end(agent: Agent, run: int) -> None:
    """A job can end before the policies have answered: the literals in its ad then identify the run.

    A run without a name can't be published, and the starter reads the last numbers only once.
    """
    sent = agent.levels.inputs[run]
    if agent.node.runs.state["named"][run]:
        return
    sandbox = agent.node.handles[run].sandbox
    if sent.job_ad is None and sandbox is not None:
        sent.job_ad = sandbox.job_ad()  # on a busy node a job can be over before its wrapper's call is served
    if sent.job_ad is None:
        return
    claimed = literals(sent.job_ad)
    _identify(agent, run, claimed)
    if "GlobalJobId" in claimed and agent.node.runs.rows["global_job_id"][run] != str(claimed["GlobalJobId"]).encode():
        # a job of milliseconds: its own ad is its own, whatever name its file claims
        number = claimed.get("NumShadowStarts", 1)
        agent.node.handles[run].own_name = cut(f"{claimed['GlobalJobId']}#{number}", "run")
        agent.node.handles[run].own_owner = str(claimed.get("Owner", ""))
    _announce(agent, run)


def give_up_waiting(agent: Agent) -> None:
    """A run whose job ad can't be read for NAMELESS_SECONDS is known by its slot alone, or by the startd's word.

    An ad that no startd has confirmed in UNCONFIRMED_SECONDS is judged as it is, within the default level.
    """
    node = agent.node
    startd_truth.tick(agent)
    runs = node.runs.living()
    old = node.runs.state["began"][runs] < time.monotonic() - NAMELESS_SECONDS
    for run in runs[old & ~node.runs.state["named"][runs]].tolist():
        node.guard(run, "job ad", submit_job_ad, agent, run)
        sent = agent.levels.inputs[run]
        is_late = node.runs.state["began"][run] < time.monotonic() - UNCONFIRMED_SECONDS
        if is_late and sent.job_ad is not None and not sent.is_judged:
            startd_truth.doubt(agent, run)
            node.guard(run, "job ad", _submit, agent, run)
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
    sent.job_ad, sent.is_decided = None, True
    level_arbiter.enter(levels, run)
    level_arbiter.arbitrate(levels, run)
    level_arbiter.explain(levels, run)
    node.guard(run, "traceback", raised.settle, agent, run)
    # now, not in the next round: a job may end before that
    agent.output.job_ads.publish(run)
    row = node.runs.rows[run]
    before = agent.resumed.get(run)
    if before is not None and before["level"] == row["level"]:
        return  # a job can go on from its checkpoint many times a second
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
    truth = agent.levels.inputs[run].truth
    if identify(agent.node, run, from_ad, None if truth is None else truth.identity):
        checkpoint.resume(agent, run)


def _announce(agent: Agent, run: int) -> None:
    agent.output.events.run_started(run)
    agent.node.runs.state["named"][run] = True
