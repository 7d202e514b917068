"""What a run's page says of its I/O, most at level io alone: where the time went, files, calls, errors and servers."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

from condor_joblens.cli import units
from condor_joblens.cli.runs import Run
from condor_joblens.cli.terminal import bar, table

MOST_LINES = 8
"""Of each section: what there is less of is in no line."""

ORDINARY = ("EAGAIN", "EINTR", "Other")
"""Errors that programs live with, or that say nothing."""

LEAST_SHARE = 0.005
"""Of the time or of the calls, that is worth a line."""

NAMES = {
    "MemoryMap": "memory map", "Socket": "network", "Pipe": "pipes", "Tty": "terminals", "Xrootdfs": "xrootdfs",
}  # fmt: skip
"""Classes whose names people know otherwise than in small letters."""

STATES = {
    "RunningSeconds": "running",
    "RunQueueSeconds": "no CPU free",
    "Other": "other sleep",
}


FILE_LOCKS = "file locks"
"""What is waited for that is in no class."""


def name_of(member: str) -> str:
    """A class as people call it: `cvmfs`, `network`."""
    return NAMES.get(member, member.lower())


# -- time -----------------------------------------------------------------------------------------------------


def shares(run: Run) -> dict[str, float]:
    """Where the time of its threads went, in seconds by name, greatest first; nothing below level io.

    The two states of sleep are told apart by what was waited for; what is left of them is `other sleep`.
    """
    known = {name: run.number(f"Wait.{name}") or 0.0 for name in ("RunningSeconds", "RunQueueSeconds")}
    asleep = sum(run.number(f"Wait.{name}") or 0.0 for name in ("UninterruptibleSeconds", "SleepSeconds"))
    blocked = {name_of(name): waited.get("BlockedSeconds", 0.0) for name, waited in run.members("Wait").items()}
    blocked[FILE_LOCKS] = run.number("Wait.FileLockSeconds") or 0.0
    found = {STATES[name]: seconds for name, seconds in known.items()} | blocked
    found[STATES["Other"]] = max(0.0, asleep - sum(blocked.values()))
    return dict(sorted(((name, seconds) for name, seconds in found.items() if seconds > 0), key=_least_second))


def _least_second(item: tuple[str, float]) -> float:
    return -item[1]


def time(run: Run, width: int) -> list[str]:
    """The verdict, then a bar for each of the greatest shares."""
    found = shares(run)
    total = sum(found.values())
    if not total:
        return []
    shown = [item for item in found.items() if item[1] >= LEAST_SHARE * total][:MOST_LINES]
    return [
        verdict(run),
        *(f"{_bar(name, part / total, width)}  {units.duration(part)}" for name, part in shown),
    ]


def _bar(name: str, share: float, width: int) -> str:
    return f"{name:<12}{bar(share, 20 if width > 60 else 10)} {units.percent(share, 1):>5}"


def verdict(run: Run) -> str:
    """Where most of the time went, and what failed most often, in a sentence; empty where that is not known."""
    failures = {name: count for name, count in failed(run).items() if name not in ORDINARY}
    name, count = next(iter(failures.items()), ("", 0))
    failure = f"; {units.count(int(count), 'call')} failed with {name}" if name else ""
    most = _most(run)
    return most + failure if most else failure[2:]


def _most(run: Run) -> str:
    found = shares(run)
    total = sum(found.values())
    if not total:
        return ""
    name, most = next(iter(found.items()))
    share = f"{units.percent(most, total)} of its time"
    return {
        STATES["RunningSeconds"]: f"{share} it was running",
        STATES["RunQueueSeconds"]: f"{share} it was ready to run and no CPU was free",
        STATES["Other"]: f"{share} it slept: timers, locks, children",
    }.get(name, f"{share} it waited for {'the ' if name in ('network', 'pipes', 'terminals') else ''}{name}")


def waiting(run: Run) -> str:
    """`62% cvmfs`: what it waits for most, for a narrow column; `-` where it does not wait or that is not known."""
    found = shares(run)
    total = sum(found.values())
    blocked = {name: seconds for name, seconds in found.items() if name not in STATES.values()}
    if not blocked:
        return "-"
    name, most = next(iter(blocked.items()))
    return f"{100 * most / total:.0f}% {name}" if most >= LEAST_SHARE * total else "-"


def wait_share(run: Run) -> float | None:
    """The part of its threads' time that they waited for files, their locks, network or pipes; None below level io."""
    found = shares(run)
    total = sum(found.values())
    blocked = sum(seconds for name, seconds in found.items() if name not in STATES.values())
    return blocked / total if total else None


# -- files, calls, errors -------------------------------------------------------------------------------------


def files(run: Run, width: int) -> list[str]:
    """A table with a line for each class of file systems in use."""
    found = sorted(run.members("Fs").items(), key=lambda item: -_traffic(item[1]))
    if not found:
        return []
    rows = [
        (
            name_of(member), _number(numbers.get("Opens")), _number(numbers.get("FailedOpens")),
            _volume(numbers.get("ReadBytes")), _number(numbers.get("ReadCalls")),
            _volume(numbers.get("WriteBytes")), _number(numbers.get("WriteCalls")),
        )
        for member, numbers in found[:MOST_LINES]
    ]  # fmt: skip
    headers = ("ON", "OPENED", "FAILED", "READ", "CALLS", "WRITTEN", "CALLS")
    return table(headers, rows, "ON", width, "CALLS OPENED")


def _traffic(numbers: Mapping[str, float]) -> float:
    return sum(value / 65536 if name.endswith("Bytes") else value for name, value in numbers.items())


def calls(run: Run, width: int) -> list[str]:
    """A bar for each class of system calls."""
    found = {member: numbers.get("Calls", 0.0) for member, numbers in run.members("Syscall").items()}
    total = sum(found.values())
    lines = []
    for member, count in sorted(found.items(), key=_least_second)[:MOST_LINES]:
        if count < LEAST_SHARE * total or not total:
            continue
        numbers = run.members("Syscall")[member]
        words = [f"{count:,.0f}"]
        if numbers.get("Errors"):
            words.append(f"{numbers['Errors']:,.0f} failed")
        if numbers.get("Bytes"):
            words.append(units.volume(numbers["Bytes"]))
        lines.append(f"{_bar(name_of(member), count / total, width)}  {', '.join(words)}")
    return lines


def failed(run: Run) -> dict[str, float]:
    """Failed calls by the name of their error, the most frequent first."""
    found = {path.partition(".")[2]: count for path, count in run.numbers.items() if path.startswith("Errors.")}
    return dict(sorted(((name, count) for name, count in found.items() if count > 0), key=_least_second))


def errors(run: Run, width: int) -> list[str]:
    """A line for each of the most frequent errors."""
    found = failed(run)
    lines = []
    for name, count in list(found.items())[:MOST_LINES]:
        number = getattr(errno, name, None)
        meaning = f": {os.strerror(number).lower()}" if number is not None else ""
        words = f"failed with {name}{meaning}" if name != "Other" else "failed otherwise"
        lines.append(f"{units.count(int(count), 'call')} {words}")
    rest = list(found.values())[MOST_LINES:]
    if rest:
        lines.append(f"{units.count(int(sum(rest)), 'call')} failed with {units.count(len(rest), 'other error')}")
    return lines


# -- servers --------------------------------------------------------------------------------------------------


def servers(run: Run, width: int) -> list[str]:
    """A table of the remote endpoints with most bytes, and of all the others."""
    rows = [
        (
            place_of(endpoint), _volume(endpoint.get("ReceivedBytes")), _volume(endpoint.get("SentBytes")),
            _number(endpoint.get("Connections")), _number(endpoint.get("Failed")),
            units.latency(endpoint["RttSeconds"]) if endpoint.get("RttSeconds") else "-",
        )
        for endpoint in _the_greatest(run.endpoints)
        if "Address" in endpoint or any(endpoint.values())
    ]  # fmt: skip
    if not rows:
        return []
    headers = ("WHERE", "RECEIVED", "SENT", "CONNECTIONS", "FAILED", "ROUND TRIP")
    return table(headers, rows, "WHERE", width, "SENT FAILED CONNECTIONS")


def asked(run: Run, width: int) -> list[str]:
    """A table of the file servers and FUSE mounts of which it asked most, and of all the others; at every level."""
    rows = [
        (
            str(server.get("Name") or "all others"), _number(server.get("Requests")),
            _volume(server.get("ReceivedBytes")), _volume(server.get("SentBytes")), _number(server.get("Errors")),
            units.duration(server.get("Seconds", 0.0)),
        )
        for server in run.servers
        if server.get("Name") or server.get("Requests")
    ]  # fmt: skip
    if not rows:
        return []
    headers = ("SERVER", "REQUESTS", "RECEIVED", "SENT", "ERRORS", "ANSWERS TOOK")
    return table(headers, rows, "SERVER", width, "SENT ERRORS")


def _the_greatest(endpoints: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many as have a line; in the last one what all the others have."""
    if len(endpoints) <= MOST_LINES:
        return endpoints
    others = endpoints[MOST_LINES - 1 :]
    columns = ("ReceivedBytes", "SentBytes", "Connections", "Failed")
    return [*endpoints[: MOST_LINES - 1], {name: sum(each.get(name, 0) for each in others) for name in columns}]


def place_of(endpoint: Mapping[str, Any]) -> str:
    """`xrootd-cern (192.0.2.7:1094)`, `192.0.2.7:1094`, `all others`."""
    if "Address" not in endpoint:
        return "all others"
    address = str(endpoint["Address"])
    port = endpoint.get("Port")
    if port:
        address = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return f"{endpoint['Name']} ({address})" if endpoint.get("Name") else address


def _number(value: float | None) -> str:
    return f"{value:,.0f}" if value else "-"


def _volume(value: float | None) -> str:
    return units.volume(value) if value else "-"
