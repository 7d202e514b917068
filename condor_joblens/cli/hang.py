"""`joblens hang ID`: why a running job of this node stands still: one sentence, then each thread and its wait.

With --all it asks for every job of the node, and puts those together that wait for the same.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from condor_joblens.cli.evidence import Evidence, Frame, Thread, ask, kept
from condor_joblens.cli.runs import Run, living, run_dir
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import SOCKET

MOST_GROUPS = 100
MOST_FRAMES = 8
MOST_JOBS = 10
_COMMON = {"file lock", "file", "page", "network", "pipe"}
"""Causes whose object can be the same for several jobs."""

_STARTERS = {"_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3", "__clone3"}
"""Functions in which every stack begins."""

_ENTRIES = {"do_syscall_64", "entry_SYSCALL_64_after_hwframe", "el0_svc", "el0t_64_sync", "el0t_64_sync_handler"}
"""The same in the kernel."""


def run(options: argparse.Namespace) -> int:
    """Asks joblensd, and prints; exit code 0."""
    if bool(options.id) == options.all:
        raise JobLensError("say which job: ID, or --all for every job of this node")
    folder = run_dir(options.run_dir)
    if options.all:
        return run_all(folder, options.json)
    path, looks = os.path.join(folder, SOCKET), []
    if options.kept:
        looks = kept(path, options.id)
    else:
        try:
            looks = [(0.0, ask(path, options.id))]
        except JobLensError as error:
            try:
                looks = kept(path, options.id)
            except JobLensError:
                raise error from None
    if options.json:
        print(json.dumps(record(looks), indent=2))
    else:
        print("\n".join([*heading(looks), *page(looks[-1][1], style())]))
    return 0


def record(looks: Sequence[tuple[float, Evidence]]) -> dict[str, Any]:
    """The last look in JSON; if it was kept, with the times of all."""
    times = [began for began, _ in looks if began]
    return {**looks[-1][1].record(), **({"KeptTimes": times} if times else {})}


def heading(looks: Sequence[tuple[float, Evidence]]) -> list[str]:
    """When looks that were kept have been taken; nothing for one of now."""
    began, last = looks[0][0], looks[-1][0]
    if not last:
        return []
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last))
    return [f"as it was at {when}, and the same {last - began:.0f} s before:", ""]


def run_all(folder: str, as_json: bool) -> int:
    """The same for all jobs of the node, one after another."""
    found: list[tuple[Run, Evidence]] = []
    refused: list[tuple[Run, str]] = []
    for each in living(folder)[0]:
        try:
            found.append((each, ask(os.path.join(folder, SOCKET), each.fact("run") or each.fact("slot"))))
        except JobLensError as error:
            refused.append((each, str(error)))
    still = {each.fact("run") for each in living(folder)[0]} if refused else set()
    ended = [each for each, _ in refused if each.fact("run") not in still]  # while others were asked
    refused = [(each, why) for each, why in refused if each.fact("run") in still]
    if as_json:
        records = [{"Run": each.fact("run"), **evidence.record()} for each, evidence in found]
        print(json.dumps([*records, *({"Run": each.fact("run"), "Error": why} for each, why in refused)], indent=2))
    else:
        look = style()
        lines = [*page_of_all(found), *(f"{named_job(each)}: {why}" for each, why in refused)]
        if ended:
            lines.append(f"ended meanwhile: {' '.join(map(named_job, ended))}")
        print("\n".join(look.fit(line) for line in lines or ["no job runs on this node"]))
    return 0


def page_of_all(found: Sequence[tuple[Run, Evidence]]) -> list[str]:
    """Jobs that wait for the same in one paragraph, those first that are most."""
    alike: dict[tuple[str, str], list[tuple[Run, Evidence]]] = {}
    for each, evidence in found:
        alike.setdefault((evidence.cause, awaited(evidence)), []).append((each, evidence))
    lines = []
    for (cause, what), jobs in sorted(alike.items(), key=lambda group: -len(group[1])):
        count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
        lines.append(f"{count}: {cause}{f': {what}' if what else ''}")
        if len(jobs) == 1:
            lines.append(f"    {jobs[0][1].sentence}")
        some = " ".join(named_job(each) for each, _ in jobs[:MOST_JOBS])
        lines.append(f"    {some}{' ..' if len(jobs) > MOST_JOBS else ''}")
    return lines


def awaited(evidence: Evidence) -> str:
    """The thing that the job waits for, without what is this job's alone; empty if no thread alone tells."""
    thread = next((each for each in evidence.threads if each.tid == evidence.tid), None)
    return thread.object if thread is not None and evidence.cause in _COMMON else ""


def named_job(run: Run) -> str:
    """`12.0`, or its slot if nobody knows the job."""
    return run.fact("job_id") or run.fact("slot")


def page(evidence: Evidence, look: Style) -> list[str]:
    """The lines for a person."""
    lines = [look.paint(line, "bold") for line in look.wrapped(evidence.sentence)]
    lines += [f"cause: {evidence.cause}", ""]
    found = groups(evidence.threads)
    shown = None
    for group in found[:MOST_GROUPS]:
        if group[0].pid != shown:
            shown = group[0].pid
            first = next((each for each in evidence.threads if each.tid == shown), group[0])
            lines.append(look.fit(f"process {shown} ({first.name}), child of {first.parent}"))
        lines += [look.fit(line) for line in group_lines(group)]
    if len(found) > MOST_GROUPS:
        lines.append(f"and {sum(map(len, found[MOST_GROUPS:]))} threads that wait for other things")
    return lines + endings(evidence)


def endings(evidence: Evidence) -> list[str]:
    """What is missing, in words."""
    lines = []
    if evidence.left_out:
        lines.append(f"and {evidence.left_out} threads that were not looked at")
    if not evidence.is_whole:
        lines.append("this is not all: a file or a process of the job did not answer in time")
    return lines


def groups(threads: Sequence[Thread]) -> list[list[Thread]]:
    """Threads of a process that do the same at the same place, the longest wait of each process first."""
    found: dict[tuple[object, ...], list[Thread]] = {}
    for thread in threads:
        key = (thread.pid, thread.state, thread.cause, thread.call, thread.object, thread.holder)
        found.setdefault((*key, tuple(frame.name for frame in thread.frames)), []).append(thread)
    order = {pid: place for place, pid in enumerate(dict.fromkeys(thread.pid for thread in threads))}
    return sorted(found.values(), key=lambda group: (order[group[0].pid], -max(each.waited for each in group)))


def group_lines(group: Sequence[Thread]) -> list[str]:
    """One wait, and where in the program it is."""
    thread = group[0]
    what = thread.cause if not thread.object else f"{thread.cause}: {thread.object}"
    held = f"; {thread.holder}" if thread.holder else ""
    where = f" in {thread.call}" if thread.call else ""
    lines = [f"  {named(group)}  {thread.state}{since(group)}{where}  {what}{held}"]
    kernel = [frame.function for frame in thread.kernel if frame.function not in _ENTRIES]
    if kernel:
        lines.append(f"      kernel  {' < '.join(kernel[:MOST_FRAMES])}")
    frames = [shown(frame) for frame in without_interpreter(own(thread.frames))]
    if frames:
        more = " < ..." if len(frames) > MOST_FRAMES or not thread.is_whole else ""
        lines.append(f"      at      {' < '.join(frames[:MOST_FRAMES])}{more}")
    return lines


def named(group: Sequence[Thread]) -> str:
    """`thread 12 (a.out)`, or `50 threads (12, 13, 14 ...)`."""
    if len(group) == 1:
        return f"thread {group[0].tid} ({group[0].name})"
    some = ", ".join(str(thread.tid) for thread in group[:3])
    return f"{len(group)} threads ({some}{' ...' if len(group) > 3 else ''})"


def since(group: Iterable[Thread]) -> str:
    """` 12 s`, of the one that has waited for the longest time; empty for threads that run."""
    waited = max(thread.waited for thread in group)
    return f" {waited:.1f} s" if waited else ""


def own(frames: Sequence[Frame]) -> list[Frame]:
    """The frames without those in which every program begins."""
    end = len(frames)
    while end > 1 and (frames[end - 1].function in _STARTERS or _is_of_libc(frames[end - 1])):
        end -= 1
    return list(frames[:end])


def without_interpreter(frames: Sequence[Frame]) -> list[Frame]:
    """Of a thread that runs Python, the frames without those of CPython's own C; all if their order is a guess."""
    if not any(frame.is_python for frame in frames) or any(frame.is_guessed for frame in frames):
        return list(frames)
    return [frame for frame in frames if frame.is_python or not _is_of_python(frame)]


def shown(frame: Frame) -> str:
    """The frame's name; with a question mark if it is guessed."""
    return f"{frame.name}?" if frame.is_guessed else frame.name


def _is_of_python(frame: Frame) -> bool:
    return frame.file.rpartition("/")[2].startswith(("python", "libpython"))


def _is_of_libc(frame: Frame) -> bool:
    return not frame.function and frame.file.rpartition("/")[2].startswith(("libc.so", "libc-"))
