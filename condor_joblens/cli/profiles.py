"""The profiles that joblensd has kept about jobs of this node, as the commands flame and hot take them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass

from condor_joblens.cli.artifacts import fetched, listed
from condor_joblens.cli.runs import run_dir
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles.pprof import NoProfile, decode
from condor_joblens.profiles.profile import Profile, View, merged, wall
from condor_joblens.shm.artifact_header import Artifact

KINDS = {View.ON_CPU: ("profile",), View.OFF_CPU: ("off_cpu",), View.WALL: ("profile", "off_cpu")}
"""The artifacts that a view is made of."""

_TIMES = 3
"""That the parts of a job are asked for, if they become others meanwhile."""

NO_WAIT_YET = (
    "no wait of job {job} is kept: it needs level profile, and a wait of a millisecond or more that has ended; "
    "`joblens stacks {job}` shows what it waits for now"
)
NOTHING_YET = (
    "no profile of job {job} is kept: it needs level profile (`joblens level {job} profile`, or +JobLensLevel), and "
    "some seconds until the first part of it is whole"
)


@dataclass(frozen=True)
class Span:
    """Which time is meant, in epoch seconds; None: no bound."""

    since: float | None = None
    until: float | None = None

    def has(self, artifact: Artifact) -> bool:
        """Whether a part of the artifact's time is in it."""
        return (self.since is None or artifact.ended > self.since) and (
            self.until is None or artifact.begun < self.until
        )


class Kept:
    """Asks joblensd for the profiles of jobs."""

    def __init__(self, folder: str | None, *, only_here: bool = False) -> None:
        """`folder`: the run folder; None: where the configuration says. `only_here`: of jobs of this node alone."""
        self._path, self._only_here = os.path.join(run_dir(folder), SOCKET), only_here

    def segments(self, job: str, span: Span, view: View = View.ON_CPU) -> list[Artifact]:
        """The headers of what is kept, of a job's last run or of all jobs of a cluster. Raises JobLensError."""
        found = listed(self._path, job, is_cluster=job.isdecimal(), only_here=self._only_here)
        kept = [each for each in found if each.kind in KINDS[view] and span.has(each)]
        return sorted(kept, key=lambda each: (each.begun, each.ended))

    def user(self, jobs: Sequence[str], span: Span, view: View) -> int | None:
        """The id of the user whose jobs they are; None if there are several. Raises JobLensError."""
        users = {each.uid for job in jobs for each in self.segments(job, span, view)}
        return users.pop() if len(users) == 1 else None

    def profile(self, jobs: Sequence[str], span: Span, view: View = View.ON_CPU) -> Profile:
        """All of the jobs' profiles in that time, in one. Raises JobLensError."""
        found = [part for job in jobs for part in self._parts(job, span, view)]
        if view is not View.WALL:
            return merged(found)
        on_cpu, off_cpu = ([part for part in found if part.view is each] for each in (View.ON_CPU, View.OFF_CPU))
        return wall(merged(on_cpu) if on_cpu else None, merged(off_cpu) if off_cpu else None)

    def _parts(self, job: str, span: Span, view: View) -> list[Profile]:
        """Those of one job. joblensd may make one of two meanwhile, so that both have another name: then anew."""
        for left in reversed(range(_TIMES)):
            segments = self.segments(job, span, view)
            if not segments:
                words = NO_WAIT_YET if view is View.OFF_CPU else NOTHING_YET
                raise JobLensError(words.format(job=printable(job)))
            try:
                return [self.segment(job, each) for each in segments]
            except JobLensError:
                names = {each.name for each in self.segments(job, span, view)}
                if not left or names.issuperset(each.name for each in segments):
                    raise
        raise AssertionError("unreachable")

    def segment(self, job: str, artifact: Artifact) -> Profile:
        """One of them. Raises JobLensError."""
        about, content = fetched(self._path, job, artifact.name, is_cluster=job.isdecimal(), only_here=self._only_here)
        try:
            found = decode(content)
        except NoProfile as error:
            raise JobLensError(f"{artifact.name}: {error}") from None
        found.view = View.OFF_CPU if artifact.kind in KINDS[View.OFF_CPU] else View.ON_CPU
        # whose it is says joblensd, and not who has made it
        parts = about.run.split("#")
        found.job, found.node = parts[-3] if len(parts) > 3 else about.run, about.node
        return found


def view_of(options: argparse.Namespace) -> View:
    """What --off-cpu and --wall mean."""
    return View.OFF_CPU if options.off_cpu else View.WALL if options.wall else View.ON_CPU


def span_of(options: argparse.Namespace) -> Span:
    """What --since and --until mean."""
    return Span(options.since, options.until)
