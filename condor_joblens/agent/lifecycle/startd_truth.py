"""Whether a job's ad is the starter's: the startd is asked, and no run gets more than the default level before that.

The job's user can replace `.job.ad` by a transferred file, before joblensd can read it. What the startd holds of the
slot's job comes from the schedd. It is laid over the ad before a policy sees it (startd/overlay.py). An ad that
contradicts it is refused: its run keeps the default level as its cap.

The question is sent when a starter's folder appears, so the answer is mostly there when the job begins.
"""

from __future__ import annotations

import os
import time

from condor_joblens.agent.agent import Agent
from condor_joblens.agent.levels import level_arbiter, policy_input
from condor_joblens.agent.node import Node
from condor_joblens.common import files
from condor_joblens.jobs.run_state import AdTrust
from condor_joblens.model.metrics import text
from condor_joblens.startd.overlay import lay_over, truth_of
from condor_joblens.startd.startd_answers import SlotJob

STATE = "startd"
"""In the run folder, for `joblens doctor`: why the startds can't be asked; empty if they answer."""

LONGEST_PAUSE = 60.0
"""Seconds between two questions about a run that no startd knows."""

VOLATILE = ("Activity", "State")
"""Facts of a slot that change while its job runs: the slot's own ad is newer than the answer."""

_LOCAL = "local_"


def expect(agent: Agent, run: int) -> None:
    """A run begins: its ad is to be confirmed, if a startd can know of it."""
    node, startd = agent.node, agent.startd
    is_startds = startd.client is not None and not text(node.runs.rows["slot"][run]).startswith(_LOCAL)
    node.runs.state["ad_trust"][run] = AdTrust.AWAITED if is_startds else AdTrust.SETTLED
    agent.levels.inputs[run].asked_since = time.monotonic()


def consult(agent: Agent, run: int) -> bool:
    """Whether the run's ad can be judged now; else a startd is asked, and `receive` names the run later."""
    if agent.node.runs.state["ad_trust"][run] != AdTrust.AWAITED:
        return True
    job = job_of(agent, run)
    if job is not None and _settle(agent, run, job):
        return True
    ask(agent)
    return False


def receive(agent: Agent) -> list[int]:
    """Takes an answer, if there is one; returns the runs about which it says something for the first time."""
    startd, now = agent.startd, time.monotonic()
    if startd.client is None:
        return []
    answer = startd.client.receive(now)
    _tell(agent)
    if answer is None:
        return []
    startd.jobs.clear()
    for job in answer.jobs:
        startd.jobs.setdefault(job.slot, []).append(job)
    return [run for run in _awaited(agent) if agent.node.guard(run, "startd", _answered, agent, run, now)]


def tick(agent: Agent) -> None:
    """Once a period: asks again about runs that no startd has known."""
    now = time.monotonic()
    final = agent.node.runs.rows["final"]
    if any(now >= agent.levels.inputs[run].ask_again_at for run in _awaited(agent) if not final[run]):
        ask(agent)


def watch_starters(agent: Agent) -> None:
    """The EXECUTE folders are watched from now on."""
    if agent.startd.folders is not None:
        agent.startd.folders.watch(agent.node.executes)


def starters_changed(agent: Agent) -> None:
    """Starters' folders have been made or removed. A new one is a reason to ask: its job begins soon."""
    startd, now = agent.startd, time.monotonic()
    if startd.folders is None:
        return
    changes = startd.folders.take()
    for starter in changes.made:
        startd.seen[starter] = now
    for starter in changes.gone:
        startd.seen.pop(starter, None)
    if changes.made:
        ask(agent)


def doubt(agent: Agent, run: int) -> None:
    """The startd has not answered in time: the run's note says what that means."""
    node, client = agent.node, agent.startd.client
    why = f" ({client.fault})" if client is not None and client.fault else ""
    level = level_arbiter.undecided_level(node.config).word
    node.handles[run].notes["startd"] = f"no startd has confirmed the job's ad{why}: no level above {level}"


def ask(agent: Agent) -> None:
    """Asks the startds, whatever they know: joblensd then knows whether they answer."""
    if agent.startd.client is not None:
        agent.startd.client.want(time.monotonic())


def _awaited(agent: Agent) -> list[int]:
    runs, state = agent.node.runs.living(), agent.node.runs.state
    found: list[int] = runs[state["ad_trust"][runs] == AdTrust.AWAITED].tolist()
    return found


def job_of(agent: Agent, run: int) -> SlotJob | None:
    """What the last answer has of the run; None if that may be of another job."""
    node, startd = agent.node, agent.startd
    jobs = startd.jobs.get(text(node.runs.rows["slot"][run]), [])
    starter = int(node.runs.state["starter"][run])
    if starter and any(job.starter for job in jobs):  # slots of two startds can have one name
        jobs = [job for job in jobs if job.starter == starter]
        return jobs[0] if len(jobs) == 1 else None
    if _is_over(node, run):
        return None  # the startd may have the slot's next job by now
    since = startd.seen.get(starter, agent.levels.inputs[run].asked_since)
    is_newer = startd.client is not None and startd.client.asked_at >= since
    return jobs[0] if len(jobs) == 1 and is_newer else None


def _is_over(node: Node, run: int) -> bool:
    """Whether the run's first process has ended, also if that has not been told yet."""
    slot = int(node.runs.state["kernel_slot"][run])
    return bool(node.runs.rows["final"][run]) or (slot >= 0 and bool(node.tracer.counters["main_exits"][slot]))


def _answered(agent: Agent, run: int, now: float) -> bool:
    job = job_of(agent, run)
    if job is not None and _settle(agent, run, job):
        return True
    seen = agent.levels.inputs[run]
    seen.ask_again_at, seen.ask_pause = now + seen.ask_pause, min(LONGEST_PAUSE, 2 * seen.ask_pause)
    return False


def _settle(agent: Agent, run: int, job: SlotJob) -> bool:
    """Lays what the startd holds over the run's ad; false if it holds nothing of a job."""
    node, levels = agent.node, agent.levels
    seen, sandbox = levels.inputs[run], node.handles[run].sandbox
    cgroup_id = int(node.runs.state["cgroup_id"][run])
    ad = seen.job_ad if seen.job_ad is not None else levels.saved_ads.ad(cgroup_id)
    truth = truth_of(job, levels.slot_attributes.of_job(job.ad))
    if truth is None:
        return False
    seen.truth = truth
    facts = levels.slot_attributes.facts(job.ad)
    if sandbox is not None and sandbox.is_users:
        seen.startd_facts = {name: value for name, value in facts.items() if name not in VOLATILE}
    else:  # the starter's `.machine.ad` is in the user's folder, and `.update.ad` is not
        update = sandbox.update_ad() if sandbox is not None else None
        seen.slot_attributes = levels.slot_attributes.facts(update) if update else facts
    if ad is None:
        return False  # it comes later, or never
    overlaid = lay_over(ad, job, truth)
    if seen.job_ad is not None:
        seen.job_ad = overlaid.ad
    node.runs.state["ad_trust"][run] = AdTrust.REFUSED if overlaid.contradictions else AdTrust.SETTLED
    node.handles[run].notes["startd"] = ""
    if overlaid.contradictions:
        _refuse(agent, run, overlaid.contradictions)
    if node.runs.state["named"][run] and not node.runs.rows["final"][run]:
        _judge_again(agent, run, cgroup_id, overlaid.ad)
    return True


SUBMITTED = {"AcctGroup": "AcctGroup, which accounting_group sets at submission"}
"""Of an attribute that a user may not write himself: what he writes in its place."""


def _refuse(agent: Agent, run: int, contradictions: tuple[str, ...]) -> None:
    node = agent.node
    level = level_arbiter.undecided_level(node.config).word
    named = ", ".join(SUBMITTED.get(name, name) for name in contradictions)
    note = f".job.ad is not the starter's ({named}): no level above {level}"
    node.handles[run].notes["startd"] = note
    node.log(f"{text(node.runs.rows['slot'][run])}: {note}; what the startd holds of the job counts")


def _judge_again(agent: Agent, run: int, cgroup_id: int, ad: bytes) -> None:
    """The answer is late, and the policies have decided by the file: they get what is known now."""
    levels, key = agent.levels, agent.node.key_of(run)
    levels.saved_ads.keep(cgroup_id, ad, policy_input.owner(levels, run))
    levels.policy.forget(key)
    levels.round.unknown.append(key)


def _tell(agent: Agent) -> None:
    """Logs, and tells `joblens doctor`, whether the startds answer, when that has changed."""
    node, startd = agent.node, agent.startd
    client = startd.client
    if client is None or client.fault == startd.told or not (client.fault or client.asked_at):
        return
    fault = client.fault
    if fault:
        level = level_arbiter.undecided_level(node.config).word
        node.log(f"the startd can't be asked ({fault}): jobs get no level above {level}; see joblens doctor")
    elif startd.told:
        node.log("the startd answers again")
    startd.told = fault
    path = os.path.join(node.config.run_dir, STATE)
    try:
        files.write(path, fault.encode(errors="backslashreplace"))
    except OSError as error:
        node.log_once(f"{path} can't be written: {error.strerror}: `joblens doctor` can't show whether startds answer")
