"""`joblens job ID --summary`: a run in as many lines as a mail about the end of a job has room for."""

from __future__ import annotations

import time
from collections.abc import Iterator

from condor_joblens.cli import io_sections, job_page, units
from condor_joblens.cli.runs import Run
from condor_joblens.cli.status import against
from condor_joblens.cli.terminal import Style

WIDTH = 76
"""Columns, so that an answer can quote it within 80."""

MOST_WAITS = 4
MOST_REMARKS = 6
_LABEL = 11


def render(run: Run, now: float) -> list[str]:
    """The summary of a run, looked at at `now` (epoch seconds): plain text, a line or two for each subject."""
    look = Style(WIDTH)
    page = look.wrapped(job_page.title(run, now))
    for label, words in _paragraphs(run):
        page += look.wrapped(words, label.ljust(_LABEL), " " * _LABEL)
    remarks = list(job_page.remarkable(run, now))
    for remark in remarks[:MOST_REMARKS]:
        page += look.wrapped(remark, "! ", "  ")
    where = f", on {run.fact('slot').rpartition('@')[2]}" if "@" in run.fact("slot") else ""
    return [*page, *look.wrapped(f"joblens job {run.fact('job_id')} has more{where}")]


def _paragraphs(run: Run) -> Iterator[tuple[str, str]]:
    parts = (
        ("Ended", _ended(run)), ("Death", run.fact("death")),
        ("Failure", run.fact("first_failure")), ("Exits", run.fact("exits")), ("CPU", _cpu(run)),
        ("Memory", _memory(run)), ("I/O", job_page.sentence(job_page.io, run)), ("Time", _time(run)),
        ("Network", job_page.sentence(job_page.network, run)),
        ("Processes", job_page.sentence(job_page.processes, run)),
    )  # fmt: skip
    return ((label, words) for label, words in parts if words)


def _ended(run: Run) -> str:
    ended = run.facts.get("update_time")
    if not run.over or not ended:
        return run.ending
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ended))
    return f"{at}: {run.ending}" if run.ending else at


def _cpu(run: Run) -> str:
    used, total = run.number("Cpu.AverageCores"), run.number("Cpu.Seconds")
    if used is None or total is None:
        return ""
    of = ""
    if run.request_cpus:
        cores = "core" if run.request_cpus == 1 else "cores"
        of = f" of {units.amount(run.request_cpus)} {cores} ({units.percent(used, run.request_cpus)})"
    return f"{units.cores(used)}{of} on average; {units.duration(total)} of CPU time"


def _memory(run: Run) -> str:
    peak = run.number("Memory.CgroupPeakBytes")
    where = "at the peak, page cache included"
    if peak is None:
        peak, where = run.memory_peak
    if peak is None:
        return ""
    requested = run.request_memory
    if not requested:
        return f"{units.memory(peak)} {where}"
    return f"{against(peak, requested, ' of ')} ({units.percent(peak, requested)}) {where}"


def _time(run: Run) -> str:
    shares = io_sections.shares(run)
    total = sum(shares.values())
    greatest = list(shares.items())[:MOST_WAITS]
    return ", ".join(
        f"{name} {units.percent(part, total)}" for name, part in greatest if part >= io_sections.LEAST_SHARE * total
    )
