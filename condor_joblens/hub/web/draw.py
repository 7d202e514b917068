"""A process that draws one artifact: what is in it is a job's, and may take long or much memory to read.

The content comes by standard input. A picture or a text goes out, of a bounded size. The kernel bounds memory and CPU.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.profiles import (
    commands_page,
    evidence_page,
    last_events,
    pprof,
    trace_page,
    traced_calls,
    traced_commands,
)
from condor_joblens.profiles.evidence import parse_kept
from condor_joblens.profiles.hottest import sentence
from condor_joblens.profiles.report import report
from condor_joblens.profiles.text import clean

PICTURES = frozenset({"profile", "off_cpu"})
"""Kinds of artifacts that become a picture: SVG. All others become text."""

MOST_BYTES = 4 << 20
"""Of what comes out."""

MOST_UNPACKED = 64 << 20
SECONDS = 30.0
_CPU_SECONDS = 20
_MEMORY = 1 << 30
_MOST_LINE = 400
_MOST_NAME = 100


def drawn(kind: str, content: bytes, job: str = "", node: str = "") -> tuple[str, bytes]:
    """A sentence about it, and the picture or text. Raises JobLensError: it can't be shown.

    job, node: of which it is, for the title of a picture.
    """
    command = [sys.executable, "-m", __name__, kind, printable(job, _MOST_NAME), printable(node, _MOST_NAME)]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=SECONDS, check=False)
    except (subprocess.TimeoutExpired, OSError):
        raise JobLensError("it takes too long to be drawn") from None
    head, _, rest = done.stdout.partition(b"\n")
    if done.returncode != 0 or not head:
        raise JobLensError("it makes no sense, or takes too much to be drawn")
    return head.decode("utf-8", "replace"), rest[:MOST_BYTES]


def main() -> None:
    """Once."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)
    content = sys.stdin.buffer.read()
    try:
        said, shown = _drawn(sys.argv[1], sys.argv[2], sys.argv[3], content)
    except (JobLensError, ValueError, MemoryError, RecursionError):
        sys.exit(1)
    line = " ".join(said.split()) or "nothing is known of it"
    sys.stdout.buffer.write(line.encode("utf-8", "replace") + b"\n" + shown[:MOST_BYTES])


def _drawn(kind: str, job: str, node: str, content: bytes) -> tuple[str, bytes]:
    if kind in PICTURES:
        profile = replace(pprof.decode(content, MOST_UNPACKED), job=job, node=node)
        return sentence(profile), report(profile, MOST_BYTES)
    if kind == "hang":
        looks = parse_kept(content)
        first, (last, evidence) = looks[0], looks[-1]
        lines = [evidence_page.taken(first[0], last), "", *evidence_page.page(evidence)]
        return evidence.sentence, _text(lines)
    if kind == last_events.KIND:
        coverage, events = last_events.decode(content)
        said = f"{len(events)} events before {coverage.death or coverage.cause or 'the end'}"
        return said, _text([_line(each) for each in events])
    if kind == traced_calls.KIND:
        kept = traced_calls.decode(content)
        calls = sum(each.counts["Calls"] for each in kept.functions)
        return f"{calls:,} calls of {len(kept.functions)} functions", _text(_of_trace(kept))
    if kind == traced_commands.KIND:
        of_shells = traced_commands.decode(content)
        return f"{of_shells.counts['Commands']:,} commands of bash", _text(commands_page.table(of_shells))
    text = content.decode("utf-8", "replace").splitlines()
    return (text or [""])[-1][:_MOST_LINE], _text(text)


def _of_trace(kept: traced_calls.TracedCalls) -> list[str]:
    """The sums, and below them the call tree without its title."""
    return [*trace_page.table(kept), "", *trace_page.tree(kept)[1:]]


def _line(event: last_events.Event) -> str:
    when = time.strftime("%H:%M:%S", time.gmtime(event.time))
    words = (event.program, str(event.pid), event.what, event.call, event.about, event.result)
    return f"{when}.{int(event.time % 1 * 1000):03} {' '.join(filter(None, words))}"


def _text(lines: list[str]) -> bytes:
    return "\n".join(clean(line, _MOST_LINE) for line in lines).encode("utf-8", "replace")


if __name__ == "__main__":
    main()
