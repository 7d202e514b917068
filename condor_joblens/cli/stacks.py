"""`joblens stacks ID`: where each thread of a running job of this node is, function by function; equal ones once."""

from __future__ import annotations

import argparse
import json
import os

from condor_joblens.cli.evidence import ask
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import Style, style
from condor_joblens.control import SOCKET
from condor_joblens.profiles.evidence import Evidence, Frame, Thread
from condor_joblens.profiles.evidence_page import endings, named, since, without_interpreter


def run(options: argparse.Namespace) -> int:
    """Asks joblensd, and prints; exit code 0."""
    evidence = ask(os.path.join(run_dir(options.run_dir), SOCKET), options.id)
    if options.json:
        print(json.dumps(evidence.record(), indent=2))
    else:
        print("\n".join(page(evidence, style())))
    return 0


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
        lines.append(f"    {ending(thread)}" if ending(thread) else "")
    return lines + endings(evidence)


def described(frame: Frame) -> str:
    """`Tree::Fill(int)  libTree.so`, `load  fit.py:42`."""
    file = frame.file.rpartition("/")[2]
    guess = "  (guessed)" if frame.is_guessed else ""
    if frame.is_python:
        return f"{frame.function}  {frame.source}{guess}"
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
