"""Each run's JobLensUsage, in the `.update.ad` from which its starter takes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.common.config import Config
from condor_joblens.common.structs import taken
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.jobs.update_ad_watches import Watches
from condor_joblens.model.metrics import cut_words, text
from condor_joblens.owner_files.operations import OwnerFiles
from condor_joblens.publish.classad import usage_ads
from condor_joblens.publish.node_key import with_key
from condor_joblens.publish.updatead import Version, WriteResult

ADS_A_ROUND = 50
"""Greatest number of ads written in one round: a thousand jobs that start together take turns."""

TOGETHER = 4
"""Ads that are written in one exchange while jobs run. The end of another job waits for no more than these."""

SECOND_AD_AFTER = 5.0
"""Seconds from the start of a run to its second ad: its starter looks for the first time after 8, and then rarely."""

FINAL_AD_SECONDS = 5.0
"""Seconds between two checks, after the end of a cgroup, whether the starter still lives. It sends its last ad after
some tens of milliseconds, and again when it has transferred the job's files."""


@dataclass
class UpdateAd:
    """What joblensd knows of the `.update.ad` of one run."""

    watch: int | None = None  # on the folder of the file
    version: Version = None  # of the file as joblensd left it


@dataclass
class FinalAd:
    """The last ad of a run that has ended, for as long as its starter may read it.

    By name: an open folder would keep its file system from being unmounted.
    """

    execute: str
    starter: int
    text: str
    version: Version  # of .update.ad as joblensd left it
    until: float  # CLOCK_MONOTONIC


class JobAds:
    """Writes the ads of all runs, and writes those again that the startd has overwritten."""

    def __init__(self, node: Node, watches: Watches) -> None:
        self._node = node
        self.watches = watches
        self.node_key = ""
        """By which answers to commands from afar are signed; empty: there are none."""
        self.before: Callable[[list[int]], None] = lambda runs: None
        """Called with runs whose ads are about to be written because they are due."""
        self.startd_wrote: set[int] = set()
        """Runs whose `.update.ad` the startd has put there anew: its slot's facts may have changed."""
        self._ads: dict[int, UpdateAd] = {}  # by run
        self._run_of_watch: dict[int, int] = {}
        self._final: dict[int, FinalAd] = {}  # by watch

    def watch(self, run: int) -> None:
        """The run's sandbox is known: from now on joblensd hears of each new `.update.ad` in it."""
        sandbox = self._node.handles[run].sandbox
        if sandbox is None:
            return
        watch = self.watches.add(sandbox.ads)
        self._of(run).watch = watch
        if watch is not None:
            self._run_of_watch[watch] = run
            # after a checkpoint the job is in the same folder again, which has the same watch
            self._final.pop(watch, None)

    def forget(self, run: int) -> None:
        """The run has ended."""
        self.startd_wrote.discard(run)
        watch = self._ads.pop(run, UpdateAd()).watch
        if watch is not None and self._run_of_watch.get(watch) == run:
            del self._run_of_watch[watch]
            if watch not in self._final:
                self.watches.remove(watch)

    def publish_due(self, between: Callable[[], None]) -> None:
        """Writes the ads that are due, the longest overdue first. `between` a few of them and the next runs may end."""
        now = time.monotonic()
        state = self._node.runs.state
        runs = self._node.runs.living()
        due = runs[state["named"][runs] & (state["next_ad"][runs] <= now)]
        if len(due) > ADS_A_ROUND:
            due = due[np.argsort(state["next_ad"][due])[:ADS_A_ROUND]]
        for first in range(0, len(due), TOGETHER):
            few = [run for run in due[first : first + TOGETHER].tolist() if run in self._node.handles]
            # what fails is not due in each round
            state["next_ad"][few] = now + self._node.config.ad_period
            self.before(few)
            self.publish_together(few)
            between()

    def publish_soon(self, run: int) -> None:
        """The run's ad is due in this round."""
        self._node.runs.state["next_ad"][run] = 0

    def publish(self, run: int) -> None:
        """Puts the run's numbers into its `.update.ad`. A failure costs this ad only; the slot ad has them as well."""
        self._publish([run])

    def publish_together(self, runs: list[int]) -> None:
        """The same for runs that end together, in one exchange; if that raises, each on its own. Never raises."""
        runs = [run for run in runs if not self._node.guard.leaves_out(run, "ad")]
        try:
            self._publish(runs)
        except Exception:
            for run in runs:
                self._node.guard(run, "ad", self.publish, run)

    def _publish(self, runs: list[int]) -> None:
        node, now = self._node, time.monotonic()
        state, sandboxes = node.runs.state, {}
        for run in runs:
            state["next_ad"][run] = now + _pause(node.config, now - float(state["began"][run]))
            sandbox = node.handles[run].sandbox
            if sandbox is not None and state["named"][run]:
                sandboxes[run] = sandbox
        if not sandboxes:
            return
        ads = self._texts(list(sandboxes))
        writes = [sandbox.usage_write(ad) for sandbox, ad in zip(sandboxes.values(), ads)]
        for (run, sandbox), written in zip(sandboxes.items(), node.files.write_ads(writes)):
            ad = self._of(run)
            # inotify tells of it as well, but too late: by then this is our file
            if written.replaced not in (None, ad.version):
                self.startd_wrote.add(run)
            ad.version = written.version
            if written.result is WriteResult.BUSY:
                state["next_ad"][run] = now
            elif written.result not in (WriteResult.DONE, WriteResult.GONE):
                why = written.result.value
                node.log_once(f"{sandbox.path}: {why}: its job's ad gets no JobLensUsage from this node")

    def _texts(self, runs: list[int]) -> list[str]:
        return with_key(usage_ads(self._rows(runs)), self.node_key)

    def _rows(self, runs: list[int]) -> np.ndarray:
        """The rows of `runs`, as their own jobs' ads show them."""
        rows = taken(self._node.runs.rows, runs)
        for place, run in enumerate(runs):
            if own_name := self._node.handles[run].own_name:
                rows["run"][place] = own_name
        declare_left(rows)
        return rows

    def lease(self, runs: list[int]) -> None:
        """The runs' ads are about to be published for the last time: their starters wait for that, if they look now."""
        for run in runs:
            if not self._node.guard.leaves_out(run, "ad"):
                self._node.guard(run, "lease", self._lease, run)

    def _lease(self, run: int) -> None:
        sandbox = self._node.handles[run].sandbox
        if sandbox is not None and self._node.runs.state["named"][run]:
            self._node.files.lease_ads([sandbox.ads])

    def restore_overwritten(self) -> None:
        """Writes the ads again that the startd has overwritten: its file has older numbers, or none."""
        runs = []
        for watch in self.watches.take():
            if watch in self._final:
                self._guarded_restore(self._final[watch])
            run = self._run_of_watch.get(watch)
            if run is not None and not self._node.guard.leaves_out(run, "ad"):
                runs.append(run)
        try:
            found = self._overwritten(runs)
        except Exception:
            found = [run for run in runs if self._node.guard(run, "ad", self._overwritten, [run])]
        self.startd_wrote.update(found)  # also if ours can't be written
        self.publish_together(found)

    def _guarded_restore(self, final: FinalAd) -> None:
        try:
            _restore_final(self._node.files, final)
        except Exception as error:
            self._node.failures.log("last ad", f"{final.execute}: the last ad of a run is not written again", error)

    def _overwritten(self, runs: list[int]) -> list[int]:
        """Those of `runs` whose ad is not the one that joblensd has left."""
        ads = {run: sandbox.ads for run in runs if (sandbox := self._node.handles[run].sandbox) is not None}
        versions = self._node.files.versions(list(ads.values()))
        return [run for run, version in zip(ads, versions) if version != self._of(run).version]

    def keep_final(self, run: int) -> None:
        """The run's cgroup is gone. Its starter reads once more, and the startd may overwrite the ad until then."""
        node, ad = self._node, self._of(run)
        sandbox, state = node.handles[run].sandbox, node.runs.state
        if ad.watch is None or sandbox is None or not state["named"][run]:
            return
        text = self._texts([run])[0]
        until = time.monotonic() + FINAL_AD_SECONDS
        execute, starter = os.path.dirname(sandbox.path), int(state["starter"][run])
        self._final[ad.watch] = FinalAd(execute, starter, text, ad.version, until)

    def expire_final(self) -> None:
        """Stops watching the folders of jobs whose starter is gone."""
        now = time.monotonic()
        for watch, final in [(watch, final) for watch, final in self._final.items() if final.until < now]:
            if os.path.isdir(f"/proc/{final.starter}"):
                final.until = now + FINAL_AD_SECONDS
                continue
            del self._final[watch]
            self.watches.remove(watch)

    def _of(self, run: int) -> UpdateAd:
        return self._ads.setdefault(run, UpdateAd())


def declare_left(rows: np.ndarray) -> None:
    """Makes those of `rows` say so of which processes live on after the job's first one.

    The starter kills them, and may read the ad before they have ended: then nothing in it tells of it.
    """
    for place in np.flatnonzero(rows["final"] & (rows["process_live"] > 0)).tolist():
        count = int(rows["process_live"][place])
        left, they = ("a process", "it") if count == 1 else (f"{count} processes", "they")
        note = f"{left} of the job lived on after its first one: what {they} did then is missing"
        known = text(bytes(rows["note"][place]))
        rows["complete"][place] = False
        rows["note"][place] = cut_words(f"{note}; {known}" if known else note, "note")


def _pause(config: Config, age: float) -> float:
    """Seconds to the next ad of a run of that age."""
    if age < SECOND_AD_AFTER:
        return min(config.ad_period, SECOND_AD_AFTER - age)
    return min(max(config.ad_period, age * config.ad_slowdown), config.ad_max_period)


def _restore_final(files: OwnerFiles, final: FinalAd) -> None:
    sandbox = JobSandbox.open(files, final.execute, final.starter)
    if sandbox is None:
        return
    try:
        if files.versions([sandbox.ads]) != [final.version]:
            (written,) = files.write_ads([sandbox.usage_write(final.text)])
            final.version = written.version
    finally:
        sandbox.close()
