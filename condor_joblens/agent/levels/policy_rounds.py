"""The policy round: every JOBLENS_POLICY_PERIOD seconds the policies decide again, with live numbers.

The child keeps each job that it has decided about. So a round sends it numbers only, CHUNK jobs at a time, and a job
that starts waits for one chunk at most. If the child does not know a job, the job is submitted
again, with its ad as it was at its start. That happens if the child is new, or if the slot's ad has changed.
"""

from __future__ import annotations

import os
import time

import numpy as np

from condor_joblens.agent.levels import level_arbiter, policy_decisions, policy_failures, policy_input
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.common import files
from condor_joblens.policy.policy_answers import ActivationRequest

CHUNK = 64
"""Jobs in one request: 1 ms of joblensd's, some 10 ms of the child's."""

ROUND_SHARE = 100
"""A round over all jobs may cost so many times what one decision may: 2 s."""

CHUNK_SHARE = 10
"""And a chunk of a few jobs no less than this: 0.2 s."""

SLOT_AD_EVERY = 5.0
"""Seconds between two readings of one slot's ad: up to HTCondor 23 the job's owner can write it all the time."""

DISABLED = "policies.aside"
"""In the run folder: a line for each policy file that failed too often."""


def tick(levels: Levels) -> None:
    """Once a period of measuring: queues what has become due, and sends the first of it."""
    now, round_ = time.monotonic(), levels.round
    policy_input.update_idle(levels, now)
    if levels.policy.aside != round_.disabled:
        round_.disabled = dict(levels.policy.aside)
        round_.failed.clear()
        _publish_disabled(levels)
    changed = levels.output.job_ads.startd_wrote
    for run in [run for run in changed if now - levels.inputs[run].slot_ad_read_at >= SLOT_AD_EVERY]:
        changed.discard(run)
        levels.inputs[run].slot_ad_read_at = now
        levels.node.guard(run, "slot ad", slot_ad_changed, levels, run)
    runs = _running(levels)
    if now >= round_.next_at:
        level_arbiter.retry_unavailable(levels)
        level_arbiter.adapt_to_own_cpu(levels)
    if not round_.unknown and (round_.child != levels.policy.lives or now >= round_.next_at):
        round_.child = levels.policy.lives
        round_.unknown.extend(_unknown(levels, runs))
    if not round_.due:
        round_.due.extend(_due(levels, runs, now))
        round_.size = max(1, len(round_.due))
    send_next(levels)


def send_next(levels: Levels) -> None:
    """Sends the next request of the round, if the child is idle."""
    if not levels.policy.idle:
        return
    if levels.round.unknown:
        run = levels.node.run_of(levels.round.unknown.popleft())
        if run is not None:
            levels.node.guard(run, "job ad", _submit_again, levels, run)
    elif levels.round.due:
        _send_numbers(levels)


def slot_ad_changed(levels: Levels, run: int) -> None:
    """The startd has written the slot's ad again: if its facts have changed, the policies get them."""
    key = levels.node.key_of(run)
    # the new facts are kept whatever the child knows: it may be about to be told of the run
    if policy_input.read_slot_ad(levels, run) and levels.policy.knows(key):
        levels.policy.forget(key)
        levels.round.unknown.append(key)


def reload(levels: Levels) -> None:
    """condor_reconfig has brought other policies: they decide about all jobs."""
    levels.round.failed.clear()
    levels.round.log_once.clear()
    levels.round.next_at = 0.0


def _publish_disabled(levels: Levels) -> None:
    """Lists the disabled policy files in a file, for `joblens doctor` and `joblens status`."""
    path = os.path.join(levels.node.config.run_dir, DISABLED)
    lines = "".join(f"{name}: {why}\n" for name, why in levels.policy.aside.items())
    try:
        files.write(path, lines.encode(errors="backslashreplace"))
    except OSError as error:
        remedy = "`joblens doctor` can't show which policies are disabled"
        levels.node.log_once(f"{path} can't be written: {error.strerror}: {remedy}")


def _running(levels: Levels) -> np.ndarray:
    """Runs that have a name and have not ended, shape (n,)."""
    runs = levels.node.runs.living()
    found: np.ndarray = runs[levels.node.runs.state["named"][runs] & ~levels.node.runs.rows["final"][runs]]
    return found


def _unknown(levels: Levels, runs: np.ndarray) -> list[str]:
    """Keys of those that the child does not know, and whose ads are saved."""
    node = levels.node
    ids = node.runs.state["cgroup_id"][runs].tolist()
    keys = [node.key_of(run) for run, cgroup_id in zip(runs.tolist(), ids) if levels.saved_ads.has(cgroup_id)]
    return [key for key in keys if not levels.policy.knows(key) and policy_failures.is_due(levels, key)]


def _due(levels: Levels, runs: np.ndarray, now: float) -> list[str]:
    """Keys of all `runs` when a round begins; before that, of those of which a temporary entry has ended."""
    due = policy_decisions.expire_entries(levels, runs)
    if now >= levels.round.next_at:
        levels.round.next_at = now + levels.node.config.policy_period
        due = runs
    return [levels.node.key_of(run) for run in due.tolist()]


def _send_numbers(levels: Levels) -> None:
    node, round_ = levels.node, levels.round
    chunk: dict[str, int] = {}
    while round_.due and len(chunk) < CHUNK:
        key = round_.due.popleft()
        run = node.run_of(key)
        if run is not None and levels.policy.knows(key):
            chunk[key] = run
    if not chunk:
        return
    now = time.monotonic()
    runs = np.array(list(chunk.values()))
    policy_input.update_suspended(levels, runs, now)
    about = ActivationRequest(
        b"", {}, node.config.default_level, node.config.max_level, expressions=levels.entries.expressions(node.config)
    )
    share = max(CHUNK_SHARE, ROUND_SHARE * len(chunk) / round_.size)
    numbers = policy_input.numbers(levels, runs, now)
    levels.policy.ask_again(list(chunk), numbers.tobytes(), time.time(), about, share)


def _submit_again(levels: Levels, run: int) -> None:
    node = levels.node
    ad = levels.saved_ads.ad(int(node.runs.state["cgroup_id"][run]))
    if ad is None:
        return
    now = time.monotonic()
    policy_input.update_suspended(levels, np.array([run]), now)
    usage = policy_input.numbers_of_one(levels, run, now)
    levels.policy.submit(node.key_of(run), policy_input.request(levels, run, ad, usage))
