"""What the policies decide about a run, and what becomes of it: the run gets its name and its level."""

from __future__ import annotations

import time

from condor_joblens.agent.levels import level_arbiter, policy_rounds
from condor_joblens.agent.node import Node
from condor_joblens.agent.output import emit_events, publishing
from condor_joblens.common.redact import clipped
from condor_joblens.jobs.run_table import COUNTERS, carry_on
from condor_joblens.model.metrics import ABSENT, METRICS, Kind, cut, text
from condor_joblens.policy.decision import PERIODS, Decision, Outcome, PolicyFailure
from condor_joblens.policy.identity import Identity, literals

MEGABYTE = 1 << 20
CARRIED = [metric.column for metric in COUNTERS]
PEAKS = [metric.column for metric in METRICS if metric.kind is Kind.PEAK]
NO_SINK = "none"
NAMELESS_SECONDS = 5.0
"""How long a job's ad is waited for."""


def ask(node: Node, run: int) -> None:
    """Hands the job's ad to the policies, once; before the job's own code runs the ad is the starter's."""
    handles = node.handles[run]
    if handles.asked or handles.sandbox is None:
        return
    ad = handles.sandbox.job_ad()
    if ad is None:
        return
    handles.asked, handles.job_ad = True, ad
    if b"checkpointexitcode" in ad.lower():
        # another round of a run, whose temporary entries began with the first
        _name(node, run, _trusted(node, run, literals(ad)))
        _resume(node, run)
    node.policy.submit(node.key_of(run), policy_rounds.request(node, run, ad, None))


def decided(node: Node) -> None:
    """Applies what the policy child has answered since the last call, and asks the next question."""
    changed = False
    for key, outcome in node.policy.receive():
        run = node.run_of(key)
        if run is None:
            node.policy.forget(key)
        elif not node.runs.state["named"][run]:
            _apply_first(node, run, key, outcome)
        else:
            changed |= _apply_again(node, run, key, outcome)
    if changed:
        level_arbiter.settle(node)
    policy_rounds.go_on(node)


def name_before_its_end(node: Node, run: int) -> None:
    """A job can be over before the policies have answered: what its ad says plainly is then its name.

    Without a name its last numbers could not be published, and its starter looks for them but once more.
    """
    ad = node.handles[run].job_ad
    if ad is None or node.runs.state["named"][run]:
        return
    _name(node, run, _trusted(node, run, literals(ad)))
    _resume(node, run)
    node.runs.state["named"][run] = True
    emit_events.run_started(node, run)


def _apply_first(node: Node, run: int, key: str, outcome: Outcome) -> None:
    """The run gets its name and its level."""
    handles, state = node.handles[run], node.runs.state[run : run + 1]
    if handles.job_ad is not None and not node.kept.keep(int(state["cgroup_id"][0]), handles.job_ad):
        node.say_once("no room to keep the ads of more jobs: about those the policies are not asked again")
    handles.job_ad = None
    _name(node, run, _trusted(node, run, outcome.identity))
    if isinstance(outcome, Decision):
        _take(node, run, outcome)
    else:
        node.review.failed.add(key)
        state["decided_level"], state["decided_cap"] = outcome.level, node.config.max_level
    handles.notes["policy"] = outcome.note
    _resume(node, run)
    emit_events.run_started(node, run)
    state["named"] = True
    # so far it had the default, by nobody's word: `off` is a change from it
    state["aimed"] = node.runs.rows["level_number"][run]
    level_arbiter.settle(node, run)
    level_arbiter.explain(node, run)
    # at once: a job may be over before its first round
    publishing.publish_ad(node, run)
    row = node.runs.rows[run]
    remarks = "; ".join(filter(None, (outcome.note, handles.notes.get("io"))))
    said = f" ({remarks})" if remarks else ""
    watched = f"is watched at {text(row['level'])}{level_arbiter.because(node, run)}{said}"
    node.log(f"{publishing.describe(node, run)} of {text(row['owner'])} {watched}")


def _apply_again(node: Node, run: int, key: str, outcome: Outcome) -> bool:
    """A run that is known is decided about anew; whether that can change a level."""
    if isinstance(outcome, PolicyFailure):
        # what was decided before stands
        node.review.failed.add(key)
        node.log(f"{publishing.describe(node, run)}: {outcome.note.rpartition(':')[0]}: its level stays as it is")
        return False
    if _must_wait(node, run, outcome):
        node.review.held[run] = outcome
        return False
    node.review.held.pop(run, None)
    state = node.runs.state[run]
    before = state["decided_level"], state["decided_cap"], state["decided_priority"]
    _take(node, run, outcome)
    node.handles[run].notes["policy"] = outcome.note
    level_arbiter.explain(node, run)
    return bool(before != (outcome.level, outcome.cap, outcome.priority))


def _must_wait(node: Node, run: int, decision: Decision) -> bool:
    """Whether the level that the policies gave before has to stand a little longer, so that none goes up and down."""
    state = node.runs.state[run]
    before, held = state["decided_level"], time.monotonic() - state["decided_at"] >= node.config.policy_hold
    at_once = state["decided_until"] < 0 or decision.cap < before or bool(state["decided_policy"] == b"")
    return bool(decision.level != before and not held and not at_once)


def release_held(node: Node) -> None:
    """What was decided and had to wait is applied when its time has come."""
    for run, decision in list(node.review.held.items()):
        if not _must_wait(node, run, decision):
            _apply_again(node, run, node.key_of(run), decision)


def _take(node: Node, run: int, decision: Decision) -> None:
    """What the policies have decided becomes what they say."""
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    if not state["named"][0] or decision.level != state["decided_level"][0]:
        state["decided_at"] = time.monotonic()
    state["decided_level"], state["decided_cap"] = decision.level, decision.cap
    state["decided_priority"], state["decided_until"] = decision.priority, decision.until or 0
    state["decided_policy"], state["decided_reason"] = cut(decision.policy, "policy"), cut(decision.reason, "reason")
    state["period_wanted"] = decision.period or state["period_asked"][0]
    row["period_seconds"] = max(node.config.period, state["period_wanted"][0])
    row["requested"] = cut(decision.written, "requested")
    row["sinks"] = b"" if decision.sinks is None else cut(",".join(decision.sinks) or NO_SINK, "sinks")
    node.kept.remember(int(state["cgroup_id"][0]), decision.state)
    for error in map(str, decision.errors):
        node.say_once(error, node.review.said)


def _name(node: Node, run: int, known: Identity) -> None:
    row = node.runs.rows[run : run + 1]
    job = f"{known.get('ClusterId', '?')}.{known.get('ProcId', '?')}"
    start = int(row["start_time"][0])
    global_id = str(known.get("GlobalJobId", f"{text(row['slot'][0])}#{job}#{start}"))
    row["global_job_id"] = cut(global_id, "global_job_id")
    row["job_id"] = cut(job, "job_id")
    row["owner"] = cut(str(known.get("Owner", "")), "owner")
    row["request_cpus"] = float(known.get("RequestCpus", float("nan")))
    node.runs.state["command"][run] = clipped(str(known.get("Cmd", "")), node.runs.state.dtype["command"].itemsize)
    node.runs.state["checkpoint_code"][run] = int(known.get("CheckpointExitCode", -1))
    row["user_note"] = cut(str(known.get("JobLensNote", "")), "user_note")
    asked = float(known.get("JobLensPeriod", 0))
    node.runs.state["period_asked"][run] = min(asked, PERIODS[1]) if asked > 0 else 0
    memory = known.get("RequestMemory")
    row["request_memory_bytes"] = ABSENT if memory is None else int(float(memory) * MEGABYTE)
    number = int(float(known.get("NumShadowStarts", known.get("NumJobStarts", start))))
    row["run"] = cut(f"{global_id}#{number}", "run")


def _trusted(node: Node, run: int, told: Identity) -> Identity:
    """What the job's ad told of the job, unless the startd knows better: the job's owner can rewrite that ad."""
    sandbox = node.handles[run].sandbox
    if sandbox is None or sandbox.is_users:
        return told
    startds = literals(sandbox.update_ad() or b"")
    if "RemoteUser" in startds:
        startds["Owner"] = str(startds["RemoteUser"]).partition("@")[0]
    if startds.get("GlobalJobId", told.get("GlobalJobId")) == told.get("GlobalJobId"):
        return {**told, "Owner": startds.get("Owner", told.get("Owner", ""))}
    node.log(f"{text(node.runs.rows['slot'][run])}: .job.ad is not that of the slot's job: the startd's word counts")
    return startds


def give_up_asking(node: Node) -> None:
    """Runs whose job's ad can't be read are known by their slot alone after a while."""
    runs = node.runs.living()
    old = node.runs.state["began"][runs] < time.monotonic() - NAMELESS_SECONDS
    for run in runs[old & ~node.runs.state["named"][runs]].tolist():
        ask(node, run)
        if not node.handles[run].asked:
            node.handles[run].asked = True
            note = "the job's ad could not be read: known by its slot alone"
            failure = PolicyFailure(min(node.config.default_level, node.config.max_level), note)
            _apply_first(node, run, node.key_of(run), failure)


def _resume(node: Node, run: int) -> None:
    """A job that left by its checkpoint code and goes on in its slot is the same run: its totals go on as well."""
    before = node.ended.resume(text(node.runs.rows["run"][run]))
    if before is not None:
        node.handles[run].before = before
        go_on(node, run)


def go_on(node: Node, run: int) -> None:
    """The totals go on from the run's last row, if it has one: when that is found, and again when counting begins.

    The policies can decide, which gives the run its name, before its wrapper calls.
    """
    rows, state, before = node.runs.rows, node.runs.state, node.handles[run].before
    if before is None:
        return
    carry_on(rows, state, run, before, CARRIED)
    for column in PEAKS:
        rows[column][run] = max(rows[column][run], before[column])
    for column in ("start_time", "lost"):
        rows[column][run] = before[column]
    state["began"][run] = time.monotonic() - (time.time() - int(before["start_time"]))
    rows["complete"][run] &= before["complete"]
    node.endpoints.carry(rows, run, int(state["cgroup_id"][run]), before["endpoints"])
