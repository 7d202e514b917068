"""What the policies decide about a run, and what becomes of it: the run gets its name and its level."""

from __future__ import annotations

import time

from condor_joblens.agent import publishing, telling, watching
from condor_joblens.agent.node import Node
from condor_joblens.jobs.runs import COUNTERS, carry_on
from condor_joblens.metrics import ABSENT, METRICS, Kind, cut, text
from condor_joblens.policy.decision import ActivationRequest, Decision, Outcome, PolicyFailure
from condor_joblens.policy.identity import Identity, literals

MEGABYTE = 1 << 20
CARRIED = [metric.column for metric in COUNTERS]
PEAKS = [metric.column for metric in METRICS if metric.kind is Kind.PEAK]
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
    slot = {"Name": text(node.runs.rows["slot"][run])}
    request = ActivationRequest(ad, slot, node.config.default_level, node.config.max_level)
    node.policy.submit((run, int(node.runs.state["cgroup_id"][run])), request)


def decided(node: Node) -> None:
    """Applies what the policy child has answered since the last call."""
    for key, outcome in node.policy.receive():
        assert isinstance(key, tuple)
        run, cgroup_id = key
        if node.runs.by_cgroup.get(cgroup_id) == run:
            _apply(node, run, outcome)


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
    telling.run_started(node, run)


def _apply(node: Node, run: int, outcome: Outcome) -> None:
    """The run gets its name and its level."""
    row = node.runs.rows[run : run + 1]
    node.handles[run].job_ad = None
    named = bool(node.runs.state["named"][run])
    if not named:
        _name(node, run, _trusted(node, run, outcome.identity))
    if isinstance(outcome, Decision):
        row["policy"], row["reason"] = cut(outcome.policy, "policy"), cut(outcome.reason, "reason")
        row["requested"] = cut(outcome.written, "requested")
        for error in outcome.errors:
            node.log(str(error))
    node.handles[run].notes["policy"] = outcome.note
    if not named:
        _resume(node, run)
        telling.run_started(node, run)
    node.runs.state["named"][run] = True
    watching.set_level(node, run, outcome.level)
    publishing.set_note(node, run)
    # at once: a job may be over before its first round
    publishing.publish_ad(node, run)
    said = f" ({outcome.note})" if outcome.note else ""
    node.log(f"{publishing.describe(node, run)} of {text(row['owner'][0])} is watched at {outcome.level.word}{said}")


def _name(node: Node, run: int, known: Identity) -> None:
    row = node.runs.rows[run : run + 1]
    job = f"{known.get('ClusterId', '?')}.{known.get('ProcId', '?')}"
    start = int(row["start_time"][0])
    global_id = str(known.get("GlobalJobId", f"{text(row['slot'][0])}#{job}#{start}"))
    row["global_job_id"] = cut(global_id, "global_job_id")
    row["job_id"] = cut(job, "job_id")
    row["owner"] = cut(str(known.get("Owner", "")), "owner")
    row["request_cpus"] = float(known.get("RequestCpus", float("nan")))
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
            _apply(node, run, PolicyFailure(min(node.config.default_level, node.config.max_level), note))


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
    for column in ("start_time", "sequence", "lost"):
        rows[column][run] = before[column]
    state["began"][run] = time.monotonic() - (time.time() - int(before["start_time"]))
    rows["complete"][run] &= before["complete"]
