"""`joblens stacks ID`: where each thread of a running job of this node is, function by function; equal ones once."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
from typing import Optional

from condor_joblens.cli.evidence import ask
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.source_lines import lacking, lines_of, place, without_lines
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import SOCKET
from condor_joblens.profiles.evidence import Evidence
from condor_joblens.profiles.evidence_page import endings, named, others, since, without_interpreter
from condor_joblens.profiles.thread import Frame, Thread


def run(options: argparse.Namespace) -> int:
    """Asks joblensd, and prints; exit code 0."""
    # lines are read in the files of this node, by processes of this node
    evidence = ask(os.path.join(run_dir(options.run_dir), SOCKET), options.id, only_here=options.has_lines)
    without, why = add_lines(evidence) if options.has_lines else ([], "")
    if options.json:
        print(json.dumps({**evidence.record(), **({"WithoutLines": without} if options.has_lines else {})}, indent=2))
    else:
        look = style()
        notes = look.wrapped(lacking(without, why)) if without else []
        print("\n".join([*page(evidence, look), *notes]))
    return 0


def add_lines(evidence: Evidence) -> tuple[list[str], str]:
    """Gives native frames their sources and lines; the names of files of which none are known, and why if none can be.

    The stacks are of this moment: they are shown if no line can be read, too.
    """
    frames = {frame for thread in evidence.threads for frame in thread.frames if frame.file and not frame.is_python}
    places = {place(frame) for frame in frames}
    try:
        lines, without = lines_of(places, _user_of(evidence))
    except JobLensError as error:
        return without_lines(path for path, _, _ in places), str(error)

    def changed(frame: Frame) -> Frame:
        line = None if frame.is_python else lines.get(place(frame))
        return dataclasses.replace(frame, file=line[0], line=line[1]) if line else frame

    for thread in evidence.threads:
        thread.frames = tuple(map(changed, thread.frames))
    return without, ""


def _user_of(evidence: Evidence) -> Optional[int]:
    """Whose process it is, as whom root has its files read: as the kernel says it.

    One that may not be dumped seems to be root's: another one of the job is asked then.
    """
    found: Optional[int] = None
    for pid in dict.fromkeys(thread.pid for thread in evidence.threads):
        with contextlib.suppress(OSError):
            found = found or os.stat(f"/proc/{pid}").st_uid
    return found


def page(evidence: Evidence, look: Style) -> list[str]:
    """The lines for a person: the stacks that most threads have first."""
    found: dict[tuple[object, ...], list[Thread]] = {}
    for thread in evidence.threads:
        found.setdefault((thread.pid, thread.state, thread.kernel, thread.frames), []).append(thread)
    lines = []
    for group in sorted(found.values(), key=len, reverse=True):
        thread = group[0]
        call = f" in {thread.call}" if thread.call else ""
        lines.append(
            look.paint(look.fit(f"{named(group)}, process {thread.pid}: {thread.state}{since(group)}{call}"), "bold")
        )
        lines += [look.fit(f"    {frame.function}  [kernel]") for frame in thread.kernel]
        lines += [look.fit(f"    {described(frame)}") for frame in without_interpreter(thread.frames)]
        lines += [f"    {line}" for line in others(group)]
        lines.append(f"    {ending(thread)}" if ending(thread) else "")
    return lines + endings(evidence)


def described(frame: Frame) -> str:
    """`Tree::Fill(int)  libTree.so`, `load  fit.py:42`."""
    file = frame.file.rpartition("/")[2]
    guess = "  (guessed)" if frame.is_guessed else ""
    if frame.line or frame.is_python:
        return f"{frame.function if frame.is_python else frame.name}  {frame.source}{guess}"
    return f"{frame.name}  {file}{guess}" if frame.function else f"{frame.name}{guess}"


def ending(thread: Thread) -> str:
    """Why there is no more of the stack; empty if it is whole."""
    if thread.is_whole:
        return ""
    if thread.cause == "runs":
        return "(it runs: only a thread that waits can be looked at)"
    if thread.state == "Z":
        return "(it has ended)"
    if thread.refused:
        return f"(its callers can't be read: {thread.refused})"
    return "(its callers are unknown)" if thread.frames else "(its stack can't be read)"
