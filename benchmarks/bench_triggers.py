#!/usr/bin/env python3
"""What triggers cost: 100,000 events a second, all of kinds that handlers want, in joblensd and in their child.

Of the programs one in ten is a shell, which the filter of a shipped trigger lets pass, so that Lua looks at it. Beside
them stands what it costs if handlers have no filter, and are asked about each of the events. And how long it takes from
an event to what is done about it. The node is that of the unit tests; the child is joblensd's own, confined as it is
there.

    bench_triggers.py [--seconds 10]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks"), str(CHECKOUT / "tests" / "unit")]

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from results import Section, verdict  # noqa: E402
from trigger_node import TriggerNode  # noqa: E402

from condor_joblens.common import readiness  # noqa: E402
from condor_joblens.model.events import EVENT, EventKind  # noqa: E402
from condor_joblens.tracer.process_ring import EVENTS_AT_A_TIME  # noqa: E402

SHIPPED = [(path.name, path.read_text()) for path in sorted((CHECKOUT / "lua_policies" / "triggers").glob("*.lua"))]
RATE, RUNS, LATENCIES = 100_000, 100, 300
LINGER = 0.02
EACH = "00-each.lua", 'for _, kind in ipairs {"exec", "exit"} do on(kind, function(event, run) end) end'
ANSWERS = "90-answer.lua", 'on("oom", function(event, run) run:send("now") end)'


def main() -> int:
    """Measures all of it; exit code 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    about = (
        f"{RATE} starts and ends of programs a second, of {RUNS} runs, and the triggers that ship. Of the programs one "
        "in ten is a shell, at which a trigger looks. What no filter lets pass does not reach the child. Beside it "
        "stand two handlers without a filter, which are asked about each event."
    )
    section = Section("triggers", "Triggers", about)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        node = TriggerNode(Path(folder), patch)
        runs = [node.made.begin(f"{number}.0") for number in range(RUNS)]
        node.load(EACH)
        throughput(node, runs, options.seconds, section, "no filter: ", None)
        node.load(*SHIPPED, ANSWERS)
        throughput(node, runs, options.seconds, section, "", 20)
        latency(node, section)
        node.triggers.stop()
    section.write()
    return verdict(section.missed)


def batch(node: TriggerNode, runs: list[int]) -> np.ndarray:
    """One batch as the kernel's ring gives it."""
    events: np.ndarray = np.zeros(EVENTS_AT_A_TIME, EVENT)
    events["kind"] = np.where(np.arange(EVENTS_AT_A_TIME) % 2, EventKind.EXEC, EventKind.EXIT)
    events["program"], events["text"], events["time"] = b"python3", b"python3 -m analysis --step 17", time.time()
    shells = slice(1, None, 20)  # of the programs that start one in ten
    events["program"][shells], events["text"][shells] = b"sh", b"sh -c python3 -m analysis --step 17"
    numbers = node.made.node.runs.rows["run_number"][runs]
    events["run_number"] = numbers[np.random.default_rng(1).integers(0, len(runs), EVENTS_AT_A_TIME)]
    return events


def throughput(
    node: TriggerNode, runs: list[int], seconds: float, section: Section, whose: str, target: float | None
) -> None:
    """CPU time at a fixed rate; batches come as joblensd reads them."""
    events, heard = batch(node, runs), node.triggers.heard
    child, own, began = node.client.cpu_seconds(), time.process_time(), time.monotonic()
    fed, lost = 0, node.client.lost
    while (now := time.monotonic()) < began + seconds:
        while fed < (now - began) * RATE:
            heard(events)
            fed += len(events)
        readiness.readable([node.client.fileno()], LINGER)
        node.triggers.receive()
    node.settle()
    took = time.monotonic() - began
    child, own = node.client.cpu_seconds() - child, time.process_time() - own
    section.add(f"{whose}events a second", fed / took, "")
    missed = (node.client.lost - lost) / fed * 100
    section.add(f"{whose}of which triggers were not asked about", missed, "%", None if target is None else 0)
    section.add(f"{whose}joblensd", own / took * 100, "% of a core")
    section.add(f"{whose}the child", child / took * 100, "% of a core")
    section.add(f"{whose}both", (child + own) / took * 100, "% of a core", target)


def latency(node: TriggerNode, section: Section) -> None:
    """From the batch that has the event to the event that a handler sends; a run each, for each has a limit."""
    seconds = []
    for number in range(LATENCIES):
        run = node.made.begin(f"{1000 + number}.0") if number < 100 else number % 100
        node.events.clear()
        began = time.monotonic()
        node.happen(run, EventKind.OOM)
        node.until(lambda: node.sent() or not node.client._batches)
        if node.sent():
            seconds.append(time.monotonic() - began)
        time.sleep(0.03)  # the node's limit on events
    cuts = statistics.quantiles(seconds, n=100)
    section.add("from the batch to the action: p50", cuts[49] * 1e3, "ms")
    section.add("from the event to the action, with joblensd's wait of 20 ms: p99", cuts[98] * 1e3 + 20, "ms", 50)


if __name__ == "__main__":
    sys.exit(main())
