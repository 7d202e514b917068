#!/usr/bin/env python3
"""What it costs joblens-eventlog to follow a schedd's event log, without the hub: steps a second of a core.

The log is generated, as HTCondor 25 writes it with JobAdInformation events; CPU is this process's. The sink packs each
post, as it would for the hub, and drops it.

    bench_eventlog.py               100,000 steps, in half a minute
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "benchmarks")]

from results import Section, verdict  # noqa: E402

from condor_joblens.common.compression import gzipped_pieces  # noqa: E402
from condor_joblens.eventlog.reader import Reader  # noqa: E402
from condor_joblens.sinks import DELIVERED, DeliveryResult, Record  # noqa: E402

STEPS = 100_000
LIFE: tuple[tuple[int, dict[str, Any]], ...] = (
    (0, {}), (40, {"Type": 1}), (40, {"Type": 2}), (40, {"Type": 3}),
    (1, {"SlotName": "slot1_1@ep1.example.org", "ExecuteProps": {"Cpus": 1, "Memory": 128, "Disk": 1048576}}),
    (40, {"Type": 4}), (40, {"Type": 5}), (40, {"Type": 6}),
    (5, {"ReturnValue": 0, "TerminatedNormally": True, "RunRemoteUsage": "Usr 0 00:00:00, Sys 0 00:00:00"}),
    (12, {"HoldReason": "via condor_hold (by user alice)", "HoldReasonCode": 1, "HoldReasonSubCode": 0}),
)  # fmt: skip


class Nowhere:
    """Takes all, and counts it."""

    steps = packed = 0

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """As the sink `hub` packs it."""
        self.packed += len(gzipped_pieces(piece for record in batch for piece in (record.json, b"\n")))
        self.steps += len(batch)
        return DELIVERED


def main() -> int:
    """Measures it; exit code 1 if a target is missed."""
    about = f"{STEPS} steps of jobs' lives in a log of HTCondor's own form, without the hub and its TLS."
    section = Section("eventlog", "Event logs of access points", about)
    with tempfile.TemporaryDirectory(prefix="joblens-bench-") as folder:
        log, hub = Path(folder) / "EventLog", Nowhere()
        with open(log, "w", encoding="ascii") as file:
            for number in range(STEPS // len(LIFE)):
                file.write(life(number))
        reader = Reader(str(log), f"{folder}/cursor", "ap1.example.org", hub, print)
        begin = cpu()
        while not reader.step():
            pass
        seconds = cpu() - begin
        assert hub.steps == STEPS, hub.steps
        section.add("steps a second of a core", STEPS / seconds, "", is_least=True, target=5000)
        section.add("bytes of the log for a step", log.stat().st_size / STEPS, "B")
        section.add("bytes of a post for a step", hub.packed / STEPS, "B")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        section.add("its memory, at most", memory / (1 << 20), "MiB")
    section.write()
    return verdict(section.missed)


def life(number: int) -> str:
    """A job's events: each step has HTCondor's own, and the one with the job's attributes."""
    said = []
    for place, (trigger, more) in enumerate(LIFE):
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(1795745128 + 10 * number + place)) + ".752Z"
        plain = {"Proc": number % 1000, "Cluster": 7 + number // 1000, "Subproc": 0, "EventTime": when, **more}
        own = {"Cmd": "/home/alice/analysis/fit.py", "User": "alice@example.org", "Owner": "alice"}
        name = f"ap1.example.org#{plain['Cluster']}.{plain['Proc']}#1795745128"
        said.append({**plain, "EventTypeNumber": trigger})
        said.append({**plain, **own, "GlobalJobId": name, "EventTypeNumber": 28, "TriggerEventTypeNumber": trigger})
    return "".join(json.dumps(one, indent=2) + "\n" for one in said)


def cpu() -> float:
    """Seconds, of this process."""
    return time.process_time()


if __name__ == "__main__":
    sys.exit(main())
