"""The policies are asked again about all running jobs: with live numbers, every JOBLENS_POLICY_PERIOD seconds.

The child keeps each job that it has decided about, so a round sends it numbers only, CHUNK jobs at a time, and a job
that starts waits for one chunk at most. Jobs that the child does not know (it is a new one, or the slot's ad has
changed) are decided about anew, with their ad as it was at their start.
"""

from __future__ import annotations

import os
import platform
import time

import numpy as np

from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.node import Node
from condor_joblens.model.metrics import METRICS, ROW, text
from condor_joblens.policy.decision import ActivationRequest
from condor_joblens.policy.slot_facts import Fact

CHUNK = 64
"""Jobs that are asked about at a time: 1 ms of joblensd's, some 10 ms of the child's."""

ROUND_SHARE = 100
"""A round over all jobs may cost so many times what one decision may: 2 s."""

CHUNK_SHARE = 10
"""And a chunk of a few jobs no less than this: 0.2 s."""

SLOT_AD_EVERY = 5.0
"""Seconds between two looks at the ad of one slot: up to HTCondor 23 the job's owner can write it all the time."""

IDLE_CORES = 0.01
"""A job that uses less is idle."""

ASIDE = "policies.aside"
"""In the run folder: a line for each policy file that failed too often."""

FACTS = {
    "IdleSeconds": "how long the job has used less than 1 % of a core, while it was not suspended",
    "RunSeconds": "time since the run began",
    "LevelSeconds": "time since its level last changed",
}
"""What a policy sees of a run besides its metrics."""

PATHS = [*(metric.path for metric in METRICS), *FACTS]
_SINCE = ("idle_since", "began", "changed")  # columns of the state: FACTS are the seconds since then
_COLUMNS = [metric.column for metric in METRICS]
_PLACES = [(ROW.names or ()).index(column) for column in _COLUMNS]


def tick(node: Node) -> None:
    """Once a period of measuring: what has become due is noted, and the first of it is asked."""
    now, review = time.monotonic(), node.review
    note_idle(node, now)
    if node.policy.aside != review.aside:
        review.aside = dict(node.policy.aside)
        review.failed.clear()
        _show_aside(node)
    for run in [run for run in review.slot_ads if now - node.handles[run].slot_ad_at >= SLOT_AD_EVERY]:
        review.slot_ads.discard(run)
        node.handles[run].slot_ad_at = now
        slot_ad_changed(node, run)
    runs = _reviewable(node)
    if now >= review.next_round:
        level_arbiter.try_again(node)
        level_arbiter.mind_own_cpu(node)
    if not review.unknown and (review.lives != node.policy.lives or now >= review.next_round):
        review.lives = node.policy.lives
        review.unknown.extend(_lacking(node, runs))
    if not review.known:
        review.known.extend(_due(node, runs, now))
        review.of = max(1, len(review.known))
    go_on(node)


def _show_aside(node: Node) -> None:
    """The files that were set aside, in a file for `joblens doctor` and `joblens status`."""
    path = os.path.join(node.config.run_dir, ASIDE)
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.writelines(f"{name}: {why}\n" for name, why in node.policy.aside.items())
        os.replace(path + ".new", path)
    except OSError as error:
        node.say_once(f"{path} can't be written: {error.strerror}: `joblens doctor` won't see what is set aside")


def reload(node: Node) -> None:
    """condor_reconfig: there are other policies, and all of them are asked about everything."""
    node.review.failed.clear()
    node.review.said.clear()
    node.review.next_round = 0.0


def go_on(node: Node) -> None:
    """Asks the next question, if the child has nothing to do."""
    if not node.policy.idle:
        return
    if node.review.unknown:
        _ask_anew(node)
    elif node.review.known:
        _ask_again(node)


def _reviewable(node: Node) -> np.ndarray:
    runs = node.runs.living()
    state = node.runs.state
    found: np.ndarray = runs[state["named"][runs] & ~node.runs.rows["final"][runs]]
    return found


def _lacking(node: Node, runs: np.ndarray) -> list[str]:
    """Those whom the child does not know and could."""
    ids = node.runs.state["cgroup_id"][runs].tolist()
    keys = [node.key_of(run) for run, cgroup_id in zip(runs.tolist(), ids) if node.kept.has(cgroup_id)]
    return [key for key in keys if not node.policy.knows(key) and key not in node.review.failed]


def _due(node: Node, runs: np.ndarray, now: float) -> list[str]:
    """All in their turn; before it those of whom a temporary entry has ended."""
    state = node.runs.state
    until = state["decided_until"][runs]
    due = (until > 0) & (until <= time.time())
    state["decided_until"][runs[due]] = -1
    if now >= node.review.next_round:
        node.review.next_round = now + node.config.policy_period
        due[:] = True
    return [node.key_of(run) for run in runs[due].tolist()]


def _ask_again(node: Node) -> None:
    review = node.review
    asked: dict[str, int] = {}
    while review.known and len(asked) < CHUNK:
        key = review.known.popleft()
        run = node.run_of(key)
        if run is not None and node.policy.knows(key):
            asked[key] = run
    if not asked:
        return
    now = time.monotonic()
    runs = np.array(list(asked.values()))
    _note_suspended(node, runs, now)
    about = ActivationRequest(b"", {}, node.config.default_level, node.config.max_level)
    share = max(CHUNK_SHARE, ROUND_SHARE * len(asked) / review.of)
    node.policy.ask_again(list(asked), numbers(node, runs, now).tobytes(), time.time(), about, share)


def _ask_anew(node: Node) -> None:
    run = node.run_of(node.review.unknown.popleft())
    ad = None if run is None else node.kept.ad(int(node.runs.state["cgroup_id"][run]))
    if run is None or ad is None:
        return
    now = time.monotonic()
    _note_suspended(node, np.array([run]), now)
    node.policy.submit(node.key_of(run), request(node, run, ad, _usage(node, run, now)))


def _usage(node: Node, run: int, now: float) -> dict[str, float]:
    """The same as `numbers` of one run, by path, without what is absent; for one this is faster."""
    row, state = node.runs.rows[run].tolist(), node.runs.state
    values = [row[place] for place in _PLACES] + [now - float(state[column][run]) for column in _SINCE]
    return {path: value for path, value in zip(PATHS, values) if value >= 0}  # false for NaN


def request(node: Node, run: int, ad: bytes, usage: dict[str, float] | None) -> ActivationRequest:
    """What the policies are asked about the run; `usage` is None at its start."""
    return ActivationRequest(
        ad=ad,
        slot={**slot_facts(node, run), "Name": text(node.runs.rows["slot"][run])},
        default=node.config.default_level,
        cap=node.config.max_level,
        node={"Name": platform.node(), "Cpus": os.cpu_count() or 1, "Kernel": platform.release()},
        usage=usage,
        now=time.time(),
        started=float(node.runs.rows["start_time"][run]),
        state=node.kept.memory(int(node.runs.state["cgroup_id"][run])),
        keep=True,
    )


def slot_facts(node: Node, run: int) -> dict[str, Fact]:
    """What the startd says of the slot; before it has written to the job's folder, what the starter does."""
    handles = node.handles[run]
    if handles.slot_facts is None and handles.sandbox is not None:
        ad = handles.sandbox.update_ad() or handles.sandbox.machine_ad() or b""
        handles.slot_facts = node.slot_facts.facts(ad)
    return handles.slot_facts or {}


def slot_ad_changed(node: Node, run: int) -> None:
    """The startd has written the slot's ad anew: where facts in it are others, the policies hear of them."""
    handles, sandbox = node.handles[run], node.handles[run].sandbox
    if sandbox is None or not node.policy.knows(node.key_of(run)):
        return
    ad = sandbox.update_ad() or b""
    facts, of_job = node.slot_facts.facts(ad), b"" if sandbox.is_users else node.slot_facts.of_job(ad)
    if facts == handles.slot_facts and of_job == handles.of_job:
        return
    cgroup_id = int(node.runs.state["cgroup_id"][run])
    if of_job != handles.of_job and (kept := node.kept.ad(cgroup_id)) is not None:
        # of two lines with the same name the later one counts
        node.kept.keep(cgroup_id, kept + b"\n" + of_job)
    handles.slot_facts, handles.of_job = facts, of_job
    node.policy.forget(node.key_of(run))
    node.review.unknown.append(node.key_of(run))


def numbers(node: Node, runs: np.ndarray, now: float) -> np.ndarray:
    """What policies see of `runs` (n,): float64 of shape (n, len(PATHS)), NaN where absent."""
    rows, state = node.runs.rows, node.runs.state
    found: np.ndarray = np.empty((len(PATHS), len(runs)))
    for place, column in enumerate(_COLUMNS):
        found[place] = rows[column][runs]
    found[found < 0] = np.nan
    for place, column in enumerate(_SINCE, len(METRICS)):
        found[place] = np.maximum(now - state[column][runs], 0.0)
    by_run: np.ndarray = np.ascontiguousarray(found.T)
    return by_run


def note_idle(node: Node, now: float) -> None:
    """Remembers since when each run has been idle; one of which nothing is known yet is not."""
    runs = node.runs.living()
    busy = ~(node.runs.rows["cpu_recent_cores"][runs] < IDLE_CORES)
    node.runs.state["idle_since"][runs[busy]] = now


def _note_suspended(node: Node, runs: np.ndarray, now: float) -> None:
    """A suspended job is frozen, not idle."""
    state = node.runs.state
    for run in runs[state["idle_since"][runs] < now].tolist():
        if _is_suspended(node, run):
            state["idle_since"][run] = now


def _is_suspended(node: Node, run: int) -> bool:
    if slot_facts(node, run).get("Activity") == "Suspended":
        return True
    try:
        events = os.open(os.path.join(node.handles[run].path, "cgroup.events"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return b"frozen 1" in os.read(events, 4096)
    except OSError:
        return False
    finally:
        os.close(events)
