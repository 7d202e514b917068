"""A job with a time line: a Python that is traced, an xrdcp that fails, files, connections, and what it used."""

from __future__ import annotations

from typing import Any

from traced_samples import function

from condor_joblens.profiles import traced_calls
from condor_joblens.profiles.last_events import Event
from condor_joblens.profiles.timeline import Curve, Life, Material

BEGUN = 1_764_140_581.25
"""When its first process began."""

HOSTILE = "</title><script>alert(1)</script>&\"'\x1b[2J\n\u202e"


def trace() -> traced_calls.TracedCalls:
    """Calls of the Python, one of which raises."""
    calls: list[list[Any]] = [[BEGUN + 0.2, 71, 71, 0, None, "returned", 9.3, None, 0]]
    for number in range(30):
        at = BEGUN + 0.3 + number * 0.3
        calls.append([at, 71, 71, 1, [f"run = {number}"], "returned", 0.2, str(number), 1])
        calls.append([at + 0.05, 71, 71, 2, None, "returned", 0.1, None, 2])
    calls.append([BEGUN + 9.4, 71, 71, 1, None, "raised", None, "OSError: no such file", 1])
    calls.append([BEGUN + 9.35, 71, 71, 1, None, "unwound", None, None, 1])
    for number in range(5):
        calls.append([BEGUN + 1.0 + number, 71, 75, 2, None, "returned", 0.6, None, 0])
    functions = [function("main (fit.py:3)"), function("fit (fit.py:12)", Calls=5000), function("load (fit.py:40)")]
    told = {"Begun": BEGUN, "Ended": BEGUN + 10, "Notes": [], "Functions": functions, "Tree": [], "Folded": 0}
    return traced_calls.decode(traced_calls.encode(told, calls))


def events() -> list[Event]:
    """What the flight recorder has: files, a child, connections, and how it ended."""
    found = [
        Event(BEGUN + 0.01, 71, "python3", "exec", about="python3 fit.py --run 7"),
        *(Event(BEGUN + 0.1 + number * 0.2, 71, "python3", "open", "", "descriptor 5", f"/data/events{number}.root")
          for number in range(40)),
        *(Event(BEGUN + 0.15 + number * 1.5, 71, "python3", "failed", "openat", "ENOENT", f"/usr/lib/none{number}")
          for number in range(6)),
        Event(BEGUN + 5.0, 71, "python3", "fork", "", "process 80"),
        Event(BEGUN + 5.02, 80, "xrdcp", "exec", about="xrdcp root://se.example.org//store/out.root out.root"),
        Event(BEGUN + 5.2, 80, "xrdcp", "connect", about="192.0.2.7:1094"),
        Event(BEGUN + 7.4, 80, "xrdcp", "refused", "", "ECONNREFUSED", "192.0.2.8:1094"),
        Event(BEGUN + 7.5, 80, "xrdcp", "exit", result="status 54"),
        Event(BEGUN + 9.6, 71, "python3", "raised", about="OSError: no such file"),
        Event(BEGUN + 9.7, 71, "python3", "exit", result="status 1"),
    ]  # fmt: skip
    return sorted(found, key=lambda each: each.time)


def material() -> Material:
    """All of it."""
    curves = [
        Curve("CPU", "cores", [(BEGUN + second, 0.5 + 0.4 * (second % 4)) for second in range(1, 10)]),
        Curve("Memory", "GiB", [(BEGUN + second, 0.2 * second) for second in range(1, 10)]),
        Curve(
            "I/O by calls", "MB/s", [(BEGUN + second, 40.0 if second in (3, 4, 8) else 2.0) for second in range(1, 10)]
        ),
    ]
    lives = [Life(71, BEGUN, BEGUN + 9.7, "python3", 0, "status 1")]
    return Material("12.0", "node01", events(), lives, [trace()], curves, ["No sockets: none was opened."])
