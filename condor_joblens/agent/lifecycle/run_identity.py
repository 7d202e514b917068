"""Which job a run is of: GlobalJobId, owner and the other attributes of its ad that joblensd reads itself."""

from __future__ import annotations

from condor_joblens.agent.node import Node
from condor_joblens.common.redact import clipped
from condor_joblens.model.metrics import ABSENT, cut, text
from condor_joblens.policy.job_identity import Identity, literals
from condor_joblens.policy.policy_answers import PERIODS

MEGABYTE = 1 << 20


def identify(node: Node, run: int, from_ad: Identity) -> None:
    """Writes the run's identity into its row. `from_ad` is what the job's ad says."""
    known = _trusted(node, run, from_ad)
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
    period = float(known.get("JobLensPeriod", 0))
    node.runs.state["job_period"][run] = min(period, PERIODS[1]) if period > 0 else 0
    memory = known.get("RequestMemory")
    row["request_memory_bytes"] = ABSENT if memory is None else int(float(memory) * MEGABYTE)
    number = int(float(known.get("NumShadowStarts", known.get("NumJobStarts", start))))
    row["run"] = cut(f"{global_id}#{number}", "run")


def _trusted(node: Node, run: int, from_ad: Identity) -> Identity:
    """What the job's ad says, unless the startd knows better: the job's owner can rewrite that ad."""
    sandbox = node.handles[run].sandbox
    if sandbox is None or sandbox.is_users:
        return from_ad
    startds = literals(sandbox.update_ad() or b"")
    if "RemoteUser" in startds:
        startds["Owner"] = str(startds["RemoteUser"]).partition("@")[0]
    if startds.get("GlobalJobId", from_ad.get("GlobalJobId")) == from_ad.get("GlobalJobId"):
        return {**from_ad, "Owner": startds.get("Owner", from_ad.get("Owner", ""))}
    node.log(f"{text(node.runs.rows['slot'][run])}: .job.ad is not that of the slot's job: the startd's ad is used")
    return startds
