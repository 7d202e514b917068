"""What joblensd tells: the rows of all runs to the shared memory, and each run's ad to its starter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from condor_joblens.agent.node import LastAd, Node
from condor_joblens.common.config import Config
from condor_joblens.common.privilege import as_owner
from condor_joblens.jobs.sandbox import Sandbox
from condor_joblens.model.metrics import cut, text
from condor_joblens.publish import updatead
from condor_joblens.publish.classad import usage_ads

ADS_A_ROUND = 50
"""Greatest number of ads written in one round: a thousand jobs that start together take turns."""

SECOND_AD_AFTER = 5.0
"""Seconds from the start of a run to its second ad: its starter looks for the first time after 8, and then rarely."""

LAST_AD_SECONDS = 5.0
"""How often, after the end of its cgroup, is looked whether a starter still lives: it sends its last ad after some tens
of milliseconds, and again when it has transferred the job's files."""


def rows(node: Node) -> None:
    """Publishes all runs whose job is known."""
    runs = node.runs.living()
    runs = runs[node.runs.state["named"][runs]]
    due = runs[node.runs.state["due"][runs]]
    node.runs.rows["sequence"][due] += 1
    node.runs.state["due"][due] = False
    now = time.time()
    node.rows.publish_of(node.runs.rows, runs, now)
    node.ended.publish(now)
    node.events.wake()


def ads(node: Node, between: Callable[[], None]) -> None:
    """Writes the ads that are due, the longest overdue first. `between` two of them runs may end."""
    now = time.monotonic()
    state = node.runs.state
    runs = node.runs.living()
    due = runs[state["named"][runs] & (state["next_ad"][runs] <= now)]
    if len(due) > ADS_A_ROUND:
        due = due[np.argsort(state["next_ad"][due])[:ADS_A_ROUND]]
    for run in due.tolist():
        if run in node.handles:
            publish_ad(node, run)
        between()


def publish_ad(node: Node, run: int) -> None:
    """Puts the run's numbers where its starter looks. What fails costs this ad; the slot ad has them as well."""
    state, handles = node.runs.state, node.handles[run]
    now = time.monotonic()
    config = node.config
    state["next_ad"][run] = now + _pause(config, now - float(state["began"][run]))
    if handles.sandbox is None or not state["named"][run]:
        return
    sandbox = handles.sandbox
    ad = usage_ads(node.runs.rows[run : run + 1])[0]
    with as_owner(sandbox.uid, sandbox.gid):
        outcome = updatead.replace(sandbox.ads, sandbox.uid, sandbox.gid, ad, _temporary(sandbox))
        handles.ad_version = updatead.version(sandbox.ads)
    if outcome is updatead.Outcome.BUSY:
        state["next_ad"][run] = now
    elif outcome not in (updatead.Outcome.DONE, updatead.Outcome.GONE):
        node.say_once(f"{sandbox.path}: {outcome.value}: its job's ad has no JobLensUsage from here")


def _temporary(sandbox: Sandbox) -> str:
    """What the new ad is called until it is whole: a starter may take a file in the job's folder for its output."""
    return updatead.STARTDS_TEMPORARY if sandbox.is_users else updatead.TEMPORARY


def _pause(config: Config, age: float) -> float:
    """Seconds to the next ad of a run of that age."""
    if age < SECOND_AD_AFTER:
        return min(config.ad_period, SECOND_AD_AFTER - age)
    return min(max(config.ad_period, age * config.ad_slowdown), config.ad_max_period)


def repair_ads(node: Node) -> list[int]:
    """Writes again what the startd has put its own file over: it knows older numbers than the job's ad, or none.

    Returns the runs of which it wrote: it may know other facts about their slots.
    """
    found = []
    for watch in node.watches.take():
        if watch in node.last_ads:
            _repair_last_ad(node.last_ads[watch])
        run = node.by_watch.get(watch)
        sandbox = None if run is None else node.handles[run].sandbox
        if run is None or sandbox is None:
            continue
        with as_owner(sandbox.uid, sandbox.gid):
            overwritten = updatead.version(sandbox.ads) != node.handles[run].ad_version
        if overwritten:
            found.append(run)
            publish_ad(node, run)
    return found


def keep_last_ad(node: Node, run: int) -> None:
    """The run's cgroup is gone, and its starter, which looks once more, may find what the startd wrote since."""
    handles, state = node.handles[run], node.runs.state
    if handles.watch is None or handles.sandbox is None or not state["named"][run]:
        return
    ad = usage_ads(node.runs.rows[run : run + 1])[0]
    until = time.monotonic() + LAST_AD_SECONDS
    execute, starter = os.path.dirname(handles.sandbox.path), int(state["starter"][run])
    node.last_ads[handles.watch] = LastAd(execute, starter, ad, handles.ad_version, until)


def _repair_last_ad(last: LastAd) -> None:
    sandbox = Sandbox.open(last.execute, last.starter)
    if sandbox is None:
        return
    with as_owner(sandbox.uid, sandbox.gid):
        if updatead.version(sandbox.ads) != last.version:
            updatead.replace(sandbox.ads, sandbox.uid, sandbox.gid, last.text, _temporary(sandbox))
            last.version = updatead.version(sandbox.ads)
    sandbox.close()


def forget_last_ads(node: Node) -> None:
    """Ends the watch over the folders of jobs whose starter is gone."""
    now = time.monotonic()
    for watch, last in [(watch, last) for watch, last in node.last_ads.items() if last.until < now]:
        if os.path.isdir(f"/proc/{last.starter}"):
            last.until = now + LAST_AD_SECONDS
            continue
        del node.last_ads[watch]
        node.watches.remove(watch)


def set_note(node: Node, run: int) -> None:
    """The row's note from all that there is to say about the run."""
    notes = node.handles[run].notes.values()
    node.runs.rows["note"][run] = cut("; ".join(note for note in notes if note), "note")


def describe(node: Node, run: int) -> str:
    """A run in a line of the log."""
    row = node.runs.rows[run]
    return f"{text(row['slot'])}: run {text(row['run'])}"
