"""Which job a run is of: GlobalJobId, owner and the other attributes of its ad that joblensd reads itself."""

from __future__ import annotations

import re

from condor_joblens.agent.node import Node
from condor_joblens.common.redact import clipped
from condor_joblens.jobs.run_state import AdTrust
from condor_joblens.model.metrics import ABSENT, cut, text
from condor_joblens.policy.job_identity import Identity, literals
from condor_joblens.policy.policy_answers import PERIODS

MEGABYTE = 1 << 20

_JOB_ID = re.compile(r"#([0-9]{1,12})\.([0-9]{1,12})#[0-9]+$")

NAMES = ("GlobalJobId", "ClusterId", "ProcId", "Owner", "User", "RemoteUser", "NumShadowStarts", "NumJobStarts")
"""What says whose a run is. Its other attributes are the job's own affair."""

OTHERS_NAME = "GlobalJobId is not this job's: the run is named by its slot"
NO_PERIOD = "JobLensPeriod is no number of seconds above 0: write +JobLensPeriod = 20"


def identify(node: Node, run: int, from_ad: Identity, startds: Identity | None = None) -> bool:
    """Writes the run's identity into its row; whether that names a job, and not a slot alone.

    `from_ad` is what the job's ad says, `startds` what the startd holds.
    """
    known = _with_own_name(node, run, _trusted(node, run, from_ad) if startds is None else {**from_ad, **startds})
    row = node.runs.rows[run : run + 1]
    job = f"{known.get('ClusterId', '?')}.{known.get('ProcId', '?')}"
    start = int(row["start_time"][0])
    global_id = str(known.get("GlobalJobId", f"{text(row['slot'][0])}#{job}#{start}"))
    row["global_job_id"] = cut(global_id, "global_job_id")
    row["job_id"] = cut(job, "job_id")
    row["owner"] = cut(str(known.get("Owner", "")), "owner")
    row["accounting_group"] = cut(str(known.get("AcctGroup", "")), "accounting_group")
    row["vo"] = cut(str(known.get("x509UserProxyVOName", "")), "vo")
    row["executable"] = cut(str(known.get("Cmd", "")), "executable")
    row["request_cpus"] = float(known.get("RequestCpus", float("nan")))
    node.runs.state["command"][run] = clipped(str(known.get("Cmd", "")), node.runs.state.dtype["command"].itemsize)
    # never RemoteUser, which a job's user can write in its ad; the schedd writes User
    node.runs.state["user"][run] = str(known.get("User", "")).encode()[: node.runs.state.dtype["user"].itemsize]
    node.runs.state["checkpoint_code"][run] = int(known.get("CheckpointExitCode", -1))
    node.runs.state["is_interactive"][run] = known.get("InteractiveJob") is True
    node.runs.state["wants_report"][run] = known.get("JobLensReport") is True
    row["user_note"] = cut(str(known.get("JobLensNote", "")), "user_note")
    period = float(known.get("JobLensPeriod", 0))
    node.runs.state["job_period"][run] = min(period, PERIODS[1]) if period > 0 else 0
    node.put_note(run, "period", NO_PERIOD if "JobLensPeriod" in known and period <= 0 else "")
    memory = known.get("RequestMemory")
    row["request_memory_bytes"] = ABSENT if memory is None else int(float(memory) * MEGABYTE)
    is_named = "GlobalJobId" in known
    # two jobs that a slot had in one second are two runs
    otherwise = start if is_named else int(row["run_number"][0])
    number = int(float(known.get("NumShadowStarts", known.get("NumJobStarts", otherwise))))
    row["run"] = cut(f"{global_id}#{number}", "run")
    return is_named


def _trusted(node: Node, run: int, from_ad: Identity) -> Identity:
    """What the job's ad says, unless the startd knows better: the job's owner can rewrite that ad.

    If the startd should have been asked, and has not answered, nobody's word but HTCondor's own files' names the run.
    """
    sandbox = node.handles[run].sandbox
    is_awaited = node.runs.state["ad_trust"][run] != AdTrust.SETTLED
    if sandbox is None:
        return _nameless(from_ad) if is_awaited else from_ad
    if sandbox.is_users:
        return from_ad  # up to HTCondor 23 the file belongs to HTCondor's own user, or is not read
    startds = literals(sandbox.update_ad() or b"")
    if is_awaited and "GlobalJobId" not in startds:
        return _nameless(from_ad)
    if user := str(startds.get("RemoteUser", "")):
        startds["User"], startds["Owner"] = user, user.partition("@")[0]
    if ids := _JOB_ID.search(str(startds.get("GlobalJobId", ""))):
        startds["ClusterId"], startds["ProcId"] = (int(number) for number in ids.groups())
    if startds.get("GlobalJobId", from_ad.get("GlobalJobId")) == from_ad.get("GlobalJobId"):
        return {**from_ad, **{name: startds[name] for name in ("Owner", "User") if name in startds}}
    node.log(f"{text(node.runs.rows['slot'][run])}: .job.ad is not that of the slot's job: the startd's ad is used")
    return startds


def _with_own_name(node: Node, run: int, known: Identity) -> Identity:
    """`known` without a GlobalJobId that is another job's: the schedd lets a job's owner edit it, but no other id."""
    ids = _JOB_ID.search(str(known.get("GlobalJobId", "")))
    own = known.get("ClusterId"), known.get("ProcId")
    if "GlobalJobId" not in known or None in own or (ids is not None and tuple(map(int, ids.groups())) == own):
        return known
    node.put_note(run, "name", OTHERS_NAME)
    return {name: value for name, value in known.items() if name != "GlobalJobId"}


def _nameless(from_ad: Identity) -> Identity:
    return {name: value for name, value in from_ad.items() if name not in NAMES}
