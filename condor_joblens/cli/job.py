"""`joblens job ID`: one job in words and bars."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from condor_joblens.cli import accesspoint, job_mail, job_page, sparklines, units
from condor_joblens.cli.runs import Run, ended, living, run_dir
from condor_joblens.cli.status import LEFT, names
from condor_joblens.cli.terminal import Style, style, table
from condor_joblens.common.errors import JobLensError, UsageError, printable


@dataclass(frozen=True)
class Found:
    """What an ID means: the run to show, the others that it names, the latest first, and what is missing there."""

    run: Run
    others: list[Run]
    note: str = ""
    which: str = ""  # of a cluster: which of its jobs this is, and what tells of all


def run(options: argparse.Namespace) -> int:
    """Shows one job; exit code 0."""
    if options.before_death:
        from condor_joblens.cli import before_death

        return before_death.run(options)
    folder = run_dir(options.run_dir)
    found = find(options.id, folder)
    if options.web:
        from condor_joblens.cli import web

        return web.run(found.run)
    if options.json:
        import json

        record = {"Job": found.run.record(), "Others": [run.record() for run in found.others], "Note": found.note}
        print(json.dumps({name: value for name, value in record.items() if value != ""}, indent=2))
        return 0
    look, now = style(), time.time()
    if options.summary:
        print("\n".join([*_which(found, Style(job_mail.WIDTH)), *job_mail.render(found.run, now)]))
        return 0
    print(
        "\n".join(
            [
                *_which(found, look),
                *job_page.render(found.run, now, look, sparklines.last_hour(folder, found.run)),
                *_others(found, now, look),
            ]
        )
    )
    return 0


def find(identity: str, folder: str) -> Found:
    """The runs that `identity` names: those of this node, else those in the access point's queue or history.

    Raises JobLensError where there is none.
    """
    note, where = "", ", on the access point,"
    jobs: frozenset[str] = frozenset()
    try:
        runs = known(folder)
    except JobLensError as error:
        here, why = [], str(error)
    else:
        here = [run for run in runs if names_run(identity, run)]
        if len(here) > 1 and accesspoint.is_cluster(identity):
            note = f"those of this node; joblens jobs {identity}, on the access point, tells of all"
        why = "no job of that name ran on this node lately"
    if not here:
        try:
            named = accesspoint.find(identity)
        except accesspoint.NoNumbers:
            raise
        except UsageError as error:
            if accesspoint.is_slot(identity):
                raise JobLensError(f"{why}; {error}") from None
            raise
        except JobLensError as error:
            raise JobLensError(f"{why}; {error}") from None
        here, note, jobs, where = named.runs, named.note, named.jobs, ""
    if not here:
        raise JobLensError(
            f"nothing is known of a job {printable(identity)}, on this node or in this access point's queue "
            "or history; `joblens status` lists the jobs of a node, `condor_q` those of an access point"
        )
    *before, last = here
    jobs |= {run.fact("job_id") for run in here}
    which = ""
    if accesspoint.is_cluster(identity) and len(jobs) > 1:
        which = (
            f"{identity} is a cluster: this is its job {last.fact('job_id')}, one of {len(jobs)} that are known here; "
            f"joblens jobs {identity}{where} tells of all"
        )
    return Found(last, before[::-1], note, which)


def known(folder: str) -> list[Run]:
    """All runs that the node knows, the latest last. Raises JobLensError.

    One that ends meanwhile is among those that have ended before it leaves those that live: these are read first.
    """
    lives, over = sorted(living(folder)[0], key=_start), ended(folder)
    last = {run.fact("run"): _update(run) for run in over if run.fact("run")}
    return [*over, *(run for run in lives if last.get(run.fact("run"), -1.0) < _update(run))]


def names_run(identity: str, run: Run) -> bool:
    """Whether `identity` is the run's job id, cluster, GlobalJobId, run or slot (also without @host)."""
    facts = run.facts
    job, slot = str(facts.get("job_id", "")), str(facts.get("slot", ""))
    return identity in (
        job, job.partition(".")[0], facts.get("global_job_id"), facts.get("run"), slot, slot.partition("@")[0]
    )  # fmt: skip


def _start(run: Run) -> float:
    return float(run.facts.get("start_time", 0))


def _update(run: Run) -> float:
    return float(run.facts.get("update_time", 0))


def _which(found: Found, look: Style) -> list[str]:
    return [*look.wrapped(found.which), ""] if found.which else []


def _others(found: Found, now: float, look: Style) -> list[str]:
    note = look.wrapped(found.note) if found.note else []
    if not found.others:
        return ["", *note] if note else []
    headers = ("SLOT", "JOB", "OWNER", "STATE", "TIME", "RUN")
    rows = [
        (*names(run), "ended" if run.over else "runs", units.clock(run.age(now)), run.fact("run"))
        for run in found.others
    ]
    body = table(headers, rows, LEFT + " STATE RUN", look.width)
    title = f"{units.count(len(found.others), 'more run')} of that name, the latest first:"
    return ["", look.paint(title, "bold"), *(look.fit(line) for line in body), *note]
