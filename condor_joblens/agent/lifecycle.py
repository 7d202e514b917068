"""The life of a run: its cgroup is born, its wrapper calls, the policies decide, its first process and its cgroup end.

What the kernel tells, the wrapper says and the policy child answers comes here; each function is one of these
moments. They come in any order that killing and restarting of HTCondor or of joblensd can make.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time

import numpy as np

from condor_joblens.agent import measure, publishing
from condor_joblens.agent.node import Handles, Node, cgroup_id_of, open_files
from condor_joblens.jobs import cgroups
from condor_joblens.jobs.activation import Refused, Request
from condor_joblens.jobs.runs import COUNTERS, carry_on
from condor_joblens.jobs.sandbox import Sandbox, is_roots, parent_of
from condor_joblens.levels import Level
from condor_joblens.metrics import ABSENT, METRICS, Kind, cut, text
from condor_joblens.policy.decision import ActivationRequest, Decision, Outcome, PolicyFailure
from condor_joblens.policy.identity import Identity, literals
from condor_joblens.tracer import layout
from condor_joblens.tracer.tracer import EVENTS_AT_A_TIME

MEGABYTE = 1 << 20
CARRIED = [metric.column for metric in COUNTERS]
NAMELESS_SECONDS = 5.0
"""How long a job's ad is waited for."""

PEAKS = [metric.column for metric in METRICS if metric.kind is Kind.PEAK]
MAX_ANCESTORS = 16
"""How far above a process its starter is looked for."""

MAX_CGROUPS = 100
"""In how many of a slot's cgroups a process is looked for."""

WRAPPERS_EXECS = 2
"""Programs that can have been started in a slot when its wrapper calls: a shell and the helper. With a third it could
be the job, which calls to begin anew and hide what it did, where its wrapper was not answered."""


def events(node: Node) -> None:
    """Everything the kernel has told since the last call, in its order."""
    while True:
        found = node.tracer.events()
        ends: dict[int, bool] = {}
        for event in found:
            kind, cgroup_id = int(event["kind"]), int(event["cgroup_id"])
            if kind == layout.BORN:
                _born(node, cgroup_id, event)
                continue
            run = node.runs.by_cgroup.get(cgroup_id)
            if run is None:
                continue
            if kind == layout.CGROUP_GONE:
                if run in ends:
                    _ended(node, {run: ends.pop(run)})
                gone(node, run)
            else:
                ends[run] = ends.get(run, False) or kind == layout.EMPTY
        _ended(node, ends)
        if len(found) < EVENTS_AT_A_TIME:
            return


# -- births -----------------------------------------------------------------------------------------------------


def _born(node: Node, cgroup_id: int, event: np.void) -> None:
    name = text(bytes(event["name"]))
    slot = int(event["slot"])
    run = begin(node, cgroup_id, name, int(event["pid"]), None if slot == layout.NO_SLOT else slot)
    if run is None and slot != layout.NO_SLOT:
        node.tracer.stop(slot)


def begin(node: Node, cgroup_id: int, name: str, maker: int, kernel_slot: int | None) -> int | None:
    """A slot's cgroup `name` is there: its run, or None where the cgroup isn't a slot's or is known.

    `maker` is the process that made it (0: unknown), `kernel_slot` its index in the tracer (None: not counted).
    """
    slot = cgroups.parse_slot(name, node.executes)
    path = _path_below_bases(node, name, cgroup_id)
    if slot is None or path is None or cgroup_id in node.runs.by_cgroup or _is_occupied(node, slot):
        return None
    run = node.runs.add(cgroup_id)
    if run is None:
        node.say_once(f"more than JOBLENS_MAX_JOBS = {node.runs.capacity} jobs: the further ones are not watched")
        return None
    now = time.monotonic()
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    row["slot"], row["execute"] = cut(slot.name, "slot"), cut(slot.execute, "execute")
    row["cgroup"] = cut(os.path.relpath(path, node.tree.mount), "cgroup")
    row["source"] = b"bpf"
    row["period_seconds"] = node.config.period
    row["start_time"] = row["update_time"] = int(time.time())
    row["complete"] = kernel_slot is not None
    state["kernel_slot"] = -1 if kernel_slot is None else kernel_slot
    state["began"], state["next_slow"] = now, now
    state["lost_before"] = node.tracer.lost()
    state["made_here"] = os.path.dirname(path) == node.tree.path(OWN_CGROUP)
    handles = node.handles[run] = Handles(path, open_files(path, cgroup_id))
    if kernel_slot is None:
        handles.notes["slots"] = "the kernel's table was full: only CPU and pressure are counted (JOBLENS_MAX_JOBS)"
    set_level(node, run, node.config.default_level)
    find_sandbox(node, run, maker)
    ask(node, run)
    return run


def _is_occupied(node: Node, slot: cgroups.Slot) -> bool:
    """Whether the slot's job lives, so that this cgroup is not its next one's: condor_ssh_to_job makes such."""
    runs = node.runs.living()
    rows = node.runs.rows[runs]
    same = (rows["slot"] == cut(slot.name, "slot")) & (rows["execute"] == cut(slot.execute, "execute"))
    for run in runs[same].tolist():
        if cgroup_id_of(node.handles[run].path) == int(node.runs.state["cgroup_id"][run]):
            return True
        gone(node, run)
    return False


def _path_below_bases(node: Node, name: str, cgroup_id: int) -> str | None:
    for base in [*node.bases, OWN_CGROUP]:
        path = node.tree.path(os.path.join(base, name))
        if cgroup_id_of(path) == cgroup_id:
            return path
    return None


def find_sandbox(node: Node, run: int, maker: int) -> None:
    """Opens the starter's folder. The cgroup's maker is the starter, or its child (before HTCondor 24.8).

    Where the maker is not known, the first process of the slot is a descendant of its starter.
    """
    known = text(node.runs.rows["execute"][run])
    process = maker or _first_process(node.handles[run].path)
    for _ in range(MAX_ANCESTORS):
        if process <= 1:
            return
        for execute in ([known] if known else node.executes) if is_roots(process) else []:
            sandbox = Sandbox.open(execute, process)
            if sandbox is not None:
                node.enter(run, sandbox)
                node.runs.state["starter"][run] = process
                return
        process = parent_of(process)


def _first_process(path: str) -> int:
    # a job can make as many cgroups of its own as it likes
    for folder, _, files in itertools.islice(os.walk(path), MAX_CGROUPS):
        if "cgroup.procs" in files:
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "cgroup.procs")) as procs:
                return int(procs.readline())
    return 0


def ask(node: Node, run: int) -> None:
    """Hands the job's ad to the policies, once; before the job's own code runs the ad is the starter's."""
    handles = node.handles[run]
    if handles.asked or handles.sandbox is None:
        return
    ad = handles.sandbox.job_ad()
    if ad is None:
        return
    handles.asked = True
    slot = {"Name": text(node.runs.rows["slot"][run])}
    request = ActivationRequest(ad, slot, node.config.default_level, node.config.max_level)
    node.policy.submit((run, int(node.runs.state["cgroup_id"][run])), request)


# -- the wrapper calls --------------------------------------------------------------------------------------------

OWN_CGROUP = "joblens"
"""Where HTCondor makes no cgroups (a machine with v1 and v2 mixed), each job gets one of ours below this one."""


def activate(node: Node, request: Request) -> dict[str, str]:
    """The wrapper of a job says that the job is about to start. Raises Refused."""
    if request.verb != "activate":
        raise Refused(f"no such verb: {request.verb[:20]}")
    events(node)
    run = _run_of(node, request)
    claimed = request.claims.get("slot")
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    if claimed and claimed.partition("@")[0] != text(row["slot"][0]):
        raise Refused("this process is in another slot")
    sandbox = node.handles[run].sandbox
    if sandbox is not None and request.uid != sandbox.scratch_uid:
        raise Refused("this process is not the job's user's")
    if state["activated"][0] and _next_job(node, run, request):
        return activate(node, request)
    slot = int(state["kernel_slot"][0])
    if state["activated"][0] or (slot >= 0 and node.tracer.counters["executed"][slot] > WRAPPERS_EXECS):
        raise Refused("the job has started already")
    state["activated"] = True
    if node.handles[run].sandbox is None:
        find_sandbox(node, run, request.pid)
    ask(node, run)
    if slot >= 0:
        measure.start_over(node, run)
        _go_on(node, run)
    return {"level": text(row["level"][0])}


def _next_job(node: Node, run: int, request: Request) -> bool:
    """Another starter's job in the same cgroup: HTCondor goes on in one that a job which can't be killed keeps.

    The run of the one before is over, and a new one begins. False where it is the same starter's.
    """
    starter = parent_of(parent_of(request.pid))
    execute = text(node.runs.rows["execute"][run])
    if starter == int(node.runs.state["starter"][run]) or not os.path.isdir(f"{execute}/dir_{starter}"):
        return False
    # a dead starter's folder may be there, and its process id the job's own by now
    if not is_roots(starter):
        return False
    path, cgroup_id = node.handles[run].path, int(node.runs.state["cgroup_id"][run])
    gone(node, run)
    slot = node.tracer.take(cgroup_id, int(node.config.default_level))
    new = begin(node, cgroup_id, os.path.basename(path), starter, slot)
    if new is None:
        return False
    measure.go_on(node, new)
    return True


def _run_of(node: Node, request: Request) -> int:
    cgroup = cgroups.cgroup_of(request.pid)
    slot = None if cgroup is None else cgroups.slot_cgroup(cgroup, [*node.bases, OWN_CGROUP])
    if slot is None and node.tree.hybrid:
        slot = _make_cgroup(node, request)
    if slot is None:
        raise Refused("this process is in no slot's cgroup")
    cgroup_id = cgroup_id_of(node.tree.path(slot))
    run = None if cgroup_id is None else node.runs.by_cgroup.get(cgroup_id)
    if run is None:
        raise Refused("this slot is not watched")
    return run


def _make_cgroup(node: Node, request: Request) -> str | None:
    """A cgroup of our own for the wrapper that calls, where its starter has made none.

    Who calls is known (the wrapper's helper, its parent the wrapper, whose parent must be a starter of ours with
    the folder that it claims); what it claims is checked against that.
    """
    wrapper = parent_of(request.pid)
    starter = parent_of(wrapper)
    for execute in node.executes:
        folder = os.path.join(execute, f"dir_{starter}")
        scratch = request.claims.get("scratch", "")
        if not (starter > 1 and is_roots(starter)):
            return None
        if (scratch == folder or scratch.startswith(folder + "/")) and os.path.isdir(folder):
            break
    else:
        return None
    slot = request.claims.get("slot", "").partition("@")[0]
    if not slot.replace("_", "").isalnum():
        return None
    name = f"{execute.replace('/', '_')}_{slot}@{starter}"
    path = node.tree.path(os.path.join(OWN_CGROUP, name))
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
        for pid in (wrapper, request.pid):
            with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as procs:
                procs.write(str(pid))
    except OSError as error:
        node.say_once(f"{path}: {error.strerror}: jobs of this machine can't be put into cgroups of their own")
        return None
    events(node)
    cgroup_id = cgroup_id_of(path)
    if cgroup_id is not None and (run := node.runs.by_cgroup.get(cgroup_id)) is not None:
        find_sandbox(node, run, starter)
    return os.path.join(OWN_CGROUP, name)


# -- the policies decide --------------------------------------------------------------------------------------------


def decided(node: Node) -> None:
    """Applies what the policy child has answered since the last call."""
    for key, outcome in node.policy.receive():
        assert isinstance(key, tuple)
        run, cgroup_id = key
        if node.runs.by_cgroup.get(cgroup_id) == run:
            _apply(node, run, outcome)


def _apply(node: Node, run: int, outcome: Outcome) -> None:
    """The run gets its name and its level."""
    row = node.runs.rows[run : run + 1]
    _name(node, run, _trusted(node, run, outcome.identity))
    if isinstance(outcome, Decision):
        row["policy"], row["reason"] = cut(outcome.policy, "policy"), cut(outcome.reason, "reason")
        row["requested"] = cut(outcome.written, "requested")
        for line in outcome.errors:
            node.log(line)
    node.handles[run].notes["policy"] = outcome.note
    _resume(node, run)
    node.runs.state["named"][run] = True
    set_level(node, run, outcome.level)
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


def set_level(node: Node, run: int, level: Level) -> None:
    """Watches the run as closely as `level` says; `off` leaves nothing of it in the kernel."""
    row, state = node.runs.rows[run : run + 1], node.runs.state[run : run + 1]
    row["level"], row["level_number"] = level.word.encode(), int(level)
    slot = int(state["kernel_slot"][0])
    if level is Level.OFF:
        if slot >= 0:
            node.tracer.stop(slot)
            state["kernel_slot"] = -1
        measure.forget(node, run)
    elif slot >= 0:
        node.tracer.counters["level"][slot] = int(level)
    # said as it is: what the closer levels add is not built yet
    node.handles[run].notes["level"] = (
        f"level {level.word} counts what basic counts in this version" if level > Level.BASIC else ""
    )


def _resume(node: Node, run: int) -> None:
    """A job that left by its checkpoint code and goes on in its slot is the same run: its totals go on as well."""
    before = node.ended.resume(text(node.runs.rows["run"][run]))
    if before is not None:
        node.handles[run].before = before
        _go_on(node, run)


def _go_on(node: Node, run: int) -> None:
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


# -- ends -------------------------------------------------------------------------------------------------------------


def _ended(node: Node, ends: dict[int, bool]) -> None:
    """First processes have exited (False) or slots are empty (True): their last numbers, and into the ads at once."""
    if not ends:
        return
    runs = np.array(list(ends), "i8")
    measure.last(node, runs)
    node.runs.rows["final"][runs] = True
    for run, empty in ends.items():
        publishing.publish_ad(node, run)
        if empty and node.runs.state["made_here"][run]:
            with contextlib.suppress(OSError):
                os.rmdir(node.handles[run].path)
    # at once: the slot's next job can start within a second, and must not be shown with these numbers
    publishing.rows(node)


def gone(node: Node, run: int) -> None:
    """The run's cgroup is no more: what is known of it now is all there will ever be."""
    measure.last(node, np.array([run]))
    node.runs.rows["final"][run] = True
    slot = int(node.runs.state["kernel_slot"][run])
    if slot >= 0:
        node.tracer.stop(slot)
    if node.runs.state["named"][run]:
        node.ended.add(node.runs.rows[run])
    publishing.keep_last_ad(node, run)
    node.leave(run)
    node.runs.remove(run)
