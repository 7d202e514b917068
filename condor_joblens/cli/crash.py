"""`joblens crash ID`: where processes of a job of this node were when signals killed them, function by function.

And the tracebacks of exceptions that ended its Pythons.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from condor_joblens.cli.artifacts import UNCONFIRMED, fetched, listed, of_run
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common import redact
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import SOCKET
from condor_joblens.profiles import crash
from condor_joblens.profiles.crash import Crash
from condor_joblens.profiles.profile import Frame, Kind
from condor_joblens.shm.artifact_header import Artifact

KIND, TRACEBACK = "crash", "traceback"

NOTHING = (
    "no crash of job {job} is kept: it needs level profile (`joblens level {job} profile`, or +JobLensLevel) before a "
    "signal kills a process of it, and a process that was on a CPU before. Tracebacks of Python need level trace and "
    '+JobLensTrace = "python:raises" in its submit file'
)
_LONGEST = 300


def run(options: argparse.Namespace) -> int:
    """Prints what is kept, the oldest first; exit code 0."""
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    kept = [each for each in listed(path, options.id) if each.kind in (KIND, TRACEBACK)]
    if not kept:
        raise JobLensError(NOTHING.format(job=printable(options.id)))
    found = [_one(path, options.id, each) for each in kept]
    if options.json:
        print(json.dumps([record(*each) for each in found], indent=2))
    else:
        print("\n\n".join("\n".join(page(each, style(), about)) for about, each in found))
    return 0


def _one(path: str, job: str, artifact: Artifact) -> tuple[Artifact, Crash | str]:
    """A crash, or the text of a traceback."""
    about, content = fetched(path, job, artifact.name)
    if about.kind == TRACEBACK:
        return about, "\n".join(map(redact.printable, content.decode("utf-8", "replace").splitlines()))
    try:
        return about, crash.decode(content)
    except ValueError as error:
        raise JobLensError(f"{artifact.name}: {printable(str(error))}") from None


def record(about: Artifact, found: Crash | str) -> dict[str, Any]:
    """A crash, or a traceback, in JSON; whose it is says joblensd."""
    if isinstance(found, str):
        return {**of_run(about), "Artifact": about.name, "Time": about.begun, "Traceback": found}
    return {**of_run(about), "Artifact": about.name, **crash.record(found)}


def page(found: Crash | str, look: Style, about: Artifact | None = None) -> list[str]:
    """The lines for a person: of a crash the innermost function first, of a traceback last, as Python has it.

    `about` says of a traceback when it came.
    """
    if isinstance(found, str):
        process, *lines = found.split("\n")
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about.begun)) if about else ""
        whose = f" ({UNCONFIRMED})" if about and about.claimed_run else ""
        return [look.paint(f"An exception ended a Python: {process.lower()}, {when}{whose}", "bold"), *lines]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.time))
    thread = f", thread {found.thread}" if found.thread else ""
    lines = [look.paint(look.fit(printable(f"{found.signal}, process {found.pid}{thread}, {when}", _LONGEST)), "bold")]
    if found.exception:
        text = f": {printable(found.text, _LONGEST)}" if found.text else ""
        lines.append(look.fit(f"    uncaught {printable(found.exception, _LONGEST)}{text}"))
    lines += [look.fit(f"    {described(frame)}") for frame in found.frames]
    if not found.is_ours:
        lines.append("    (it had other credentials than the job, or may not be dumped: it was not looked at)")
    elif not found.frames:
        lines.append("    (its stack can't be read)")
    elif not found.is_whole:
        lines.append("    (its callers are unknown)")
    if found.is_guessed:
        lines.append("    (part of it is a guess: by frame pointers, or because what was called is no code)")
    return lines


def described(frame: Frame) -> str:
    """`Tree::Fill(int)  libTree.so`, `load  fit.py:42`."""
    name, library = printable(frame.function, _LONGEST), printable(frame.library, _LONGEST)
    if frame.kind is Kind.PYTHON:
        return f"{name}  {library}:{frame.line}" if frame.line else f"{name}  {library}"
    return f"{name}  {library}" if frame.file and not name.startswith(library) else name
