"""`joblens trace ID --source`: the lines of the job's scripts beside the calls, and the time, that they took."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import Optional

from condor_joblens.cli.artifacts import fetched, listed
from condor_joblens.cli.child_output import messages
from condor_joblens.cli.kept_trace import NOTHING
from condor_joblens.cli.profiles import Kept, Span
from condor_joblens.cli.runs import run_dir
from condor_joblens.cli.source_lines import asked_of, lacking, with_lines
from condor_joblens.cli.terminal import Style, style
from condor_joblens.common.errors import JobLensError, UsageError, printable
from condor_joblens.control import SOCKET
from condor_joblens.control.child_output import CONTENT
from condor_joblens.profiles import annotated, trace_page, traced_calls
from condor_joblens.profiles.annotated import Line, Source
from condor_joblens.profiles.profile import Profile, View
from condor_joblens.profiles.text import clean

MOST_FILES = 3
"""Files that a person is shown, unless --script names one."""

MOST_BYTES = 1 << 20
_READER = "condor_joblens.profiling.source_text"
_HEAD = f"{'CALLS':>9} {'TOTAL':>9} {'CPU':>8} {'LEFT':>6}  {'LINE':>5}"
_GAP = f"{'...':>43}"


def run(options: argparse.Namespace) -> int:
    """Prints them, the file with most time first; exit code 0."""
    if options.spec is not None or options.follow or options.tree or options.format:
        raise UsageError("--source is of what is kept of a job: leave out SPEC, --follow, --tree and --format")
    path = os.path.join(run_dir(options.run_dir), SOCKET)
    kept = listed(path, options.id)
    traces = [fetched(path, options.id, each.name)[1] for each in kept if each.kind == traced_calls.KIND]
    profile, remarks, uid = _profile(options)
    uid = next((each.uid for each in kept if each.uid is not None), uid)
    try:
        found = annotated.sources(map(traced_calls.decode, traces), profile)
    except ValueError as error:
        raise JobLensError(f"the trace of job {printable(options.id)}: {printable(str(error))}") from None
    if not found:
        raise JobLensError(NOTHING.format(job=printable(options.id)))
    if options.script:
        name = os.path.basename(options.script)
        found = [each for each in found if os.path.basename(each.path) == name]
        if not found:
            raise JobLensError(f"no line of a file {printable(name)} is known: leave --script out to see which are")
    found = found[: annotated.MOST_FILES if options.json else MOST_FILES]
    _read(found, path, options.id, options.script, uid)
    if options.json:
        print(json.dumps({"Files": [annotated.record(each) for each in found], "Remarks": remarks}, indent=2))
        return 0
    look = style()
    print("\n\n".join("\n".join(page(each, look)) for each in found))
    for remark in remarks:
        print("\n".join(["", *look.wrapped(remark)]))
    return 0


def _profile(options: argparse.Namespace) -> tuple[Optional[Profile], list[str], Optional[int]]:
    """What is kept of where it was on the CPU, if anything is; what is to be known of it; and the job's user."""
    kept, span = Kept(options.run_dir), Span()
    try:
        uid = kept.user([options.id], span, View.ON_CPU)
        profile, without = with_lines(kept.profile([options.id], span), uid)
    except JobLensError as error:
        return None, [f"No time on the CPU: {error}."], None
    return profile, [lacking(without)] if without else [], uid


# -- the text --------------------------------------------------------------------------------------------------


def _read(found: Sequence[Source], path: str, job: str, script: Optional[str], uid: Optional[int]) -> None:
    """The owner's child of a running job reads what is in its folder; else a process of the same user reads it here."""
    if script:
        found[0].text = _own(script)
    others = [each for each in found if each.text is None]
    for each in others:
        each.text = _of_job(path, job, each.path)
    others = [each for each in others if each.text is None]
    if others:
        try:
            texts = asked_of(_READER, {"paths": [each.path for each in others]}, uid)["texts"]
            for each, (text, why) in zip(others, texts):
                each.text, each.why = None if text is None else str(text).splitlines(), printable(str(why), 200)
        except (JobLensError, KeyError, TypeError, ValueError) as error:
            for each in others:
                each.why = printable(str(error), 200)
    for each in found:
        if each.text is not None and not annotated.fits(each):
            each.text, each.why = None, "it is not the file that ran: functions begin at other lines"


def _own(script: str) -> list[str]:
    """A file of whoever asks. Raises JobLensError."""
    try:
        with open(script, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise JobLensError(f"{printable(script)}: {error.strerror}") from None


def _of_job(path: str, job: str, file: str) -> Optional[list[str]]:
    """A file in the folder of a running job, as the job sees it; None if it is none, or the job is over."""
    content = bytearray()
    try:
        for kind, said in messages(path, "cat", {"job": job, "file": file}):
            content += said if kind == CONTENT else b""
            if len(content) > MOST_BYTES:
                return None
    except JobLensError:
        return None
    return content.decode("utf-8", "replace").splitlines()


# -- the page --------------------------------------------------------------------------------------------------


def page(source: Source, look: Style) -> list[str]:
    """The lines for a person; between those that are not beside each other stand dots."""
    title = printable(source.path, 200) + (f" ({source.why})" if source.why else "")
    lines = [look.paint(look.fit(title), "bold"), look.paint(_HEAD, "dim")]
    before = 0
    for number in annotated.shown(source):
        if before and number != before + 1 and source.text is not None:
            lines.append(look.paint(_GAP, "dim"))
        text = source.functions.get(number, "") if source.text is None else source.text[number - 1].expandtabs()
        lines.append(look.fit(f"{_numbers(source.lines.get(number))}  {number:>5}  {clean(text, 300)}").rstrip())
        before = number
    return lines


def _numbers(line: Optional[Line]) -> str:
    if line is None:
        return " " * 35
    took = trace_page.duration(line.seconds) if line.seconds else ""
    cpu = trace_page.duration(line.cpu) if line.cpu else ""
    left = f"{line.left or ''}" + ("!" * min(line.raised, 1))
    return f"{line.calls or '':>9} {took:>9} {cpu:>8} {left:>6}"
