"""A run as a page of words and bars: what it uses against what it asked for, and what is remarkable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from condor_joblens.cli import io_sections, sparklines, units
from condor_joblens.cli.runs import Run
from condor_joblens.cli.status import against, hang_of
from condor_joblens.cli.terminal import Style, bar
from condor_joblens.model.levels import SITE_DEFAULT

if TYPE_CHECKING:
    import numpy as np

LEAST_GROWTH = 1 << 20
"""Bytes an hour of memory that are worth a word."""

LEAST_WAIT = 60.0
"""Seconds of waiting for a CPU: less is no news, however short the job's own CPU time is."""

LEAST_IDLE = 600.0
"""Seconds without CPU use that are worth a word."""

FULL_SOON = 24.0
"""Hours until memory reaches its limit, beyond which nobody needs to hurry."""

_LABEL = 10
"""Columns of the labels at the left."""


def render(run: Run, now: float, look: Style, hour: np.ndarray | None = None) -> list[str]:
    """The page of a run, looked at at `now` (epoch seconds); `hour`: its points of the last hour, if they are kept."""
    page = [look.paint(look.fit(title(run, now)), "bold"), *look.wrapped(watched(run, now), " " * _LABEL)]
    if run.fact("death"):
        page += [look.paint(line, "red") for line in _paragraph("Death".ljust(_LABEL), "", run.fact("death"), look)]
    if run.fact("first_failure"):
        page += _paragraph("Failure".ljust(_LABEL), "", run.fact("first_failure"), look)
    page += _paragraph("Exits".ljust(_LABEL), "", run.fact("exits"), look)
    page += _lines("Time", io_sections.time, run, look)
    if hour is not None:
        page += _lines("Last hour", lambda run, width: sparklines.lines(hour, run, look), run, look)
    page += _paragraph("CPU".ljust(_LABEL), _cores_gauge(run), sentence(_cpu, run), look)
    page += _paragraph("Memory".ljust(_LABEL), _memory_gauge(run), sentence(_memory, run), look)
    page += _paragraph("I/O".ljust(_LABEL), "", sentence(io, run), look)
    page += _lines("Files", io_sections.files, run, look)
    page += _lines("Asked", io_sections.asked, run, look)
    page += _lines("Calls", io_sections.calls, run, look)
    page += _lines("Errors", io_sections.errors, run, look)
    page += _paragraph("Network".ljust(_LABEL), "", sentence(network, run), look)
    page += _lines("Servers", io_sections.servers, run, look)
    page += _paragraph("Processes".ljust(_LABEL), "", sentence(processes, run), look)
    remarks = [look.wrapped(remark, "! ", "  ") for remark in remarkable(run, now)]
    if remarks:
        page.append("")
    return page + [look.paint(line, "yellow") for remark in remarks for line in remark]


def sentence(section: Callable[[Run], Iterator[str]], run: Run) -> str:
    """What a section has to say of a run, in one line; empty if nothing."""
    return "; ".join(section(run))


def _paragraph(label: str, gauge: str, words: str, look: Style) -> list[str]:
    """An empty line, the gauge on a line of its own, the words below; nothing where there is neither."""
    lines = [look.fit(label + gauge)] if gauge else []
    if words:
        lines += look.wrapped(words, " " * _LABEL if gauge else label, " " * _LABEL)
    return ["", *lines] if lines else []


def _lines(label: str, section: Callable[[Run, int], list[str]], run: Run, look: Style) -> list[str]:
    """What a section of lines has to say, each line cut to the width; nothing where it has nothing."""
    narrower = replace(look, width=look.width - _LABEL)
    lines = [narrower.fit(line) for line in section(run, narrower.width)]
    labels = [label, *[""] * len(lines)]
    return ["", *(label.ljust(_LABEL) + line for label, line in zip(labels, lines))] if lines else []


def title(run: Run, now: float) -> str:
    """`Job 12.0 of alice on slot1_1, running for 3 h 12 min`."""
    where = f" on {run.fact('slot')}" if run.fact("slot") else ""
    ran = units.duration(run.age(now))
    state = f"ended after {ran}" if run.over else f"running for {ran}"
    if run.over and run.facts.get("update_time"):
        state += f", {units.duration(now - run.facts['update_time'])} ago"
    return f"Job {run.fact('job_id') or '?'} of {run.fact('owner') or '?'}{where}, {state}"


def watched(run: Run, now: float) -> str:
    """Who watches it, how closely and why, and how old the numbers are."""
    parts = [f"watched at level {run.fact('level') or '?'}"]
    if run.fact("requested"):
        parts[0] += f" (asked for: {run.fact('requested')})"
    if run.fact("reason") == SITE_DEFAULT:  # a rule that grants requests had none to grant
        parts.append(f"why: {SITE_DEFAULT}")
    elif run.fact("policy"):
        why = f" ({run.fact('reason')})" if run.fact("reason") else ""
        parts.append(f"why: {run.fact('policy')}{why}")
    if run.ending:
        parts.append(run.ending)
    updated = run.facts.get("update_time")
    if updated and not run.over:
        parts.append(f"numbers {units.duration(now - updated)} old")
    return "; ".join(parts)


def _cores_gauge(run: Run) -> str:
    used = run.number("Cpu.AverageCores" if run.over else "Cpu.RecentCores")
    when = "over its whole life" if run.over else "in the last seconds"
    if used is None:
        return ""
    if not run.request_cpus:
        return f"{units.cores(used)} cores {when}"
    requested = f"{units.amount(run.request_cpus)} {'core' if run.request_cpus == 1 else 'cores'}"
    return _gauge(f"{units.cores(used)} of {requested}", used, run.request_cpus, when)


def _memory_gauge(run: Run) -> str:
    used, when = run.memory_peak if run.over else (run.memory, "now")
    peak = run.number("Memory.CgroupPeakBytes")
    if run.over and peak is not None:
        used, when = peak, "at its peak"
    if used is None:
        return ""
    if not run.request_memory:
        return f"{units.memory(used)} {when}"
    return _gauge(against(used, run.request_memory, " of "), used, run.request_memory, when)


def _gauge(words: str, used: float, requested: float, when: str) -> str:
    return f"{words:<20}{bar(used / requested)} {units.percent(used, requested)} {when}"


def _cpu(run: Run) -> Iterator[str]:
    total, system = run.number("Cpu.Seconds"), run.number("Cpu.SystemSeconds")
    if total is not None:
        kernel = f", {units.percent(system, total)} of it in the kernel" if total and system is not None else ""
        yield f"{units.duration(total)} of CPU time{kernel}"
    average = run.number("Cpu.AverageCores")
    if average is not None and not run.over:
        yield f"{units.cores(average)} cores on average"
    waited = run.number("Cpu.RunQueueSeconds")
    if waited is not None:
        yield f"its threads waited {units.duration(waited)} for a CPU"


def _memory(run: Run) -> Iterator[str]:
    anonymous, files = run.number("Memory.AnonBytes"), run.number("Memory.FileBytes")
    if anonymous is not None and files is not None and not run.over:
        yield f"{units.memory(anonymous)} heap and stacks, {units.memory(files)} mapped files and shared"
    for name, words in (
        ("Memory.CgroupBytes", "with page cache {}"),
        ("Memory.CgroupPeakBytes", "at most {} with page cache"),
        ("Memory.LargestProcessPeakBytes", "largest process {}"),
        ("Memory.SwapBytes", "{} swapped out"),
    ):
        size = run.number(name)
        # the present is over for an ended run, and swap is worth a word where there is some
        if size and not (run.over and name in ("Memory.CgroupBytes", "Memory.SwapBytes")):
            yield words.format(units.memory(size))
    growth = run.number("Memory.GrowthBytesPerHour") or 0.0
    uncertainty = run.number("Memory.GrowthErrorBytesPerHour") or 0.0
    if growth > 3 * uncertainty and growth > LEAST_GROWTH and not run.over:
        yield f"grows by {units.memory(growth)} an hour, give or take {units.memory(uncertainty)}"
    faults = run.number("Memory.MajorFaults")
    if faults:
        yield units.count(int(faults), "page fault") + " read from storage"


def io(run: Run) -> Iterator[str]:
    """What it read and wrote, in parts of a sentence."""
    for verb, size, calls in (
        ("read", run.number("Io.CallReadBytes"), run.number("Io.ReadCalls")),
        ("wrote", run.number("Io.CallWriteBytes"), run.number("Io.WriteCalls")),
    ):
        if size is not None:
            often = f" in {units.count(int(calls), 'call')}" if calls is not None else ""
            yield f"{verb} {units.volume(size)}{often}"
    fetched, dirtied = run.number("Io.StorageReadBytes"), run.number("Io.StorageWriteBytes")
    if fetched is not None and dirtied is not None:
        yield f"from storage {units.volume(fetched)}, to storage {units.volume(dirtied)}"


def network(run: Run) -> Iterator[str]:
    """What it sent and received over TCP, and what failed."""
    sent, received = run.number("Tcp.SentBytes"), run.number("Tcp.ReceivedBytes")
    if sent is not None and received is not None:
        yield f"TCP sent {units.volume(sent)}, received {units.volume(received)}"
    for name, words in (
        ("Tcp.Connected", "{} made"), ("Tcp.Accepted", "{} accepted"),
        ("Tcp.Failed", "{} failed"), ("Tcp.Open", "{} open"),
    ):  # fmt: skip
        number = run.number(name)
        if number and not (run.over and name == "Tcp.Open"):
            yield words.format(units.count(int(number), "connection")) + (_causes(run) if name == "Tcp.Failed" else "")
    again, trip = run.number("Tcp.Retransmits"), run.number("Tcp.RttSeconds")
    if again:
        yield units.count(int(again), "segment") + " sent again"
    if trip:
        yield f"round trip {units.latency(trip)}"
    queries, answers = run.number("Udp.DnsQueries"), run.number("Udp.DnsAnswers")
    if queries and answers is not None:
        yield f"{units.count(int(queries), 'DNS query', 'DNS queries')}, {answers:,.0f} answered"


def _causes(run: Run) -> str:
    """` (3 refused, 1 without an answer)`; nothing where the causes are not known."""
    known = (("Refused", "refused"), ("TimedOut", "without an answer"), ("Unreachable", "unreachable"))
    causes = [f"{number:,.0f} {words}" for name, words in known if (number := run.number(f"Tcp.{name}"))]
    return f" ({', '.join(causes)})" if causes else ""


def processes(run: Run) -> Iterator[str]:
    """Processes and threads: alive, created, ended."""
    live, threads = run.number("Process.Live"), run.number("Process.Threads")
    if live is not None and not run.over:
        alive = f"{live:,.0f} live"
        if threads is not None:
            alive += f" with {units.count(int(threads), 'thread')}"
        running, stuck = run.number("Process.Runnable"), run.number("Process.Uninterruptible")
        if running is not None and stuck is not None:
            alive += f" ({running:.0f} want a CPU, {stuck:.0f} wait for storage)"
        yield alive
    for name, words in (
        ("Process.Forked", "{} created"), ("Process.Executed", "{} started a program"),
        ("Process.Exited", "{} ended"), ("Process.Failed", "{} of them with an exit code other than 0"),
        ("Process.Signalled", "{} ended by a signal"), ("Process.CoreDumps", "{} dumped core"),
    ):  # fmt: skip
        number = run.number(name)
        if number:
            yield words.format(f"{number:,.0f}")


def remarkable(run: Run, now: float) -> Iterator[str]:
    """What its owner should know, a sentence each: too much or too little asked for, waiting, losses."""
    if run.fact("progress"):
        yield f"it says of itself: {run.fact('progress')}"
    if run.fact("peek_values"):
        yield f"its variables hold: {run.fact('peek_values')}"
    if run.fact("note"):
        yield run.fact("note")
    if run.over and not run.facts.get("final"):
        yield "its final numbers did not arrive: these were taken before its end"
    if run.facts.get("complete") is False:
        lost = int(run.facts.get("lost", 0))
        why = f": {units.count(lost, 'event')} lost on this node" if lost else ""
        yield f"these numbers are not complete{why}"
    if run.fact("uncounted"):
        yield f"not counted: {run.fact('uncounted')}"
    if run.facts.get("shortened"):
        yield "the job's ad has no room for everything: `joblens job` on its node shows the rest"
    yield from _about_hang(run)
    yield from _about_idleness(run)
    yield from _about_cores(run, now)
    yield from _about_memory(run)
    waiting = run.number("Process.Uninterruptible")
    if waiting and not run.over:
        stuck = units.count(int(waiting), "thread")
        yield f"{stuck} in uninterruptible sleep: mostly that is storage which does not answer"


def _about_hang(run: Run) -> Iterator[str]:
    if run.number("Hang.Suspected") and not run.over:
        command = "hot" if run.fact("hang_cause") == "busy" else "hang"
        yield f"it {hang_of(run)}; `joblens {command}` on its node says more"


def _about_idleness(run: Run) -> Iterator[str]:
    idle = run.number("Cpu.IdleSeconds") or 0.0
    if idle >= LEAST_IDLE and not run.over:
        wait = io_sections.waiting(run)
        why = f"; of its time until now {wait.replace('%', ' %')}" if wait != "-" else ""
        more = "" if run.number("Hang.Suspected") else "; `joblens hang` on its node says why"
        yield f"it has done next to nothing for {units.duration(idle)}{why}{more}"


def _about_cores(run: Run, now: float) -> Iterator[str]:
    requested, average = run.request_cpus, run.number("Cpu.AverageCores")
    if not requested or average is None or run.age(now) < 60:
        return  # a job that has just begun says nothing yet about what it needs
    if average > 1.1 * requested:
        yield f"it uses {units.cores(average)} cores on average and asked for only {units.amount(requested)}"
    elif average < 0.5 * requested:
        yield f"it uses {units.cores(average)} cores on average and asked for {units.amount(requested)}"
    waited, total = run.number("Cpu.RunQueueSeconds"), run.number("Cpu.Seconds")
    if waited is not None and total is not None and waited > max(LEAST_WAIT, 0.2 * total):
        yield f"its threads waited {units.duration(waited)} for a CPU, against {units.duration(total)} on one"


def _about_memory(run: Run) -> Iterator[str]:
    hours = run.number("Memory.HoursToLimit")
    if hours is not None and hours <= FULL_SOON and not run.over:
        yield f"its memory grows, and reaches its limit in {units.duration(3600 * hours)} if it goes on like that"
    kills = run.number("Memory.OomKills")
    if kills:
        yield f"the kernel killed {units.count(int(kills), 'process', 'processes')} for want of memory"
    requested = run.request_memory
    most = max(run.memory or 0.0, run.memory_peak[0] or 0.0)
    if requested and most > requested:
        yield f"it used more memory than it asked for: {units.memory(most)}, {units.memory(requested)} asked for"
    elif requested and most > 0.9 * requested:
        yield f"it came close to the memory it asked for: {units.memory(most)} of {units.memory(requested)}"
