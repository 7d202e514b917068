"""What the way out of a node costs: the ring, the exporter, and joblensd's part of it, whatever the sinks do.

bench_export.py [SECONDS]        # a phase: 15 s unless said otherwise
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import Section

from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.metrics import METRICS, empty_rows
from condor_joblens.shm.ring import EventReader, EventWriter
from condor_joblens.shm.writer import Writer

REPOSITORY = Path(__file__).resolve().parents[1]
TICK = 0.02  # seconds between two batches of events, as they come from the kernel on a busy node

SINK = '''
import json, os, time
import numpy as np
from condor_joblens.sinks import *

class Null(Sink):
    """Takes everything, and notes how old events were."""

    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.ages, self.count = [], {kind: 0 for kind in RecordKind}

    def deliver(self, batch):
        now = time.time()
        for record in batch:
            self.count[record.kind] += 1
        self.ages.append((now - batch[0].time, now - batch[-1].time) if batch[0].kind is RecordKind.EVENT else None)
        return DELIVERED

    def close(self, seconds):
        ages = [age for pair in self.ages if pair for age in pair]
        told = {"ages": ages, "count": {kind.value: number for kind, number in self.count.items()}}
        with open(os.environ["NULL"] + "/" + self.name, "w") as file:
            json.dump(told, file)

class Hung(Null):
    def deliver(self, batch):
        time.sleep(10000)

Null1, Null2, Null3, Null4 = (type(f"Null{n}", (Null,), {"name": f"null{n}"}) for n in range(1, 5))
Hung.name = "hung"
'''

RUN = """
import os, resource, sys
from condor_joblens.export import __main__ as export
export.service_ids = lambda: None
code = export.main()
os._exit(code)
"""


class Node:
    """joblensd's half, played by this process, and a real exporter."""

    def __init__(self, jobs: int, sinks: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bench_export", dir="/dev/shm"))
        site = self.folder / "site"
        (site / "null_sink-1.dist-info").mkdir(parents=True)
        (site / "null_sink.py").write_text(SINK)
        names = "".join(f"null{n} = null_sink:Null{n}\n" for n in range(1, 5)) + "hung = null_sink:Hung\n"
        (site / "null_sink-1.dist-info" / "entry_points.txt").write_text(f"[condor_joblens.sinks]\n{names}")
        (site / "null_sink-1.dist-info" / "METADATA").write_text("Name: null_sink\nVersion: 1\n")
        program = self.folder / "bin" / "condor_config_val"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nexec cat {self.folder}/macros\n")
        program.chmod(0o755)
        macros = {
            "LOG": self.folder, "JOBLENS_RUN_DIR": self.folder, "JOBLENS_SPOOL_DIR": self.folder / "spool",
            "JOBLENS_SINKS": sinks or "prometheus", "JOBLENS_SINK_PROMETHEUS_ADDRESS": "127.0.0.1:0",
            "JOBLENS_SINK_FILE_PATH": self.folder / "records.jsonl", "FULL_HOSTNAME": "node1.example.org",
        }  # fmt: skip
        (self.folder / "macros").write_text("".join(f"{name} = {value}\n" for name, value in macros.items()))
        self.rows = Writer(str(self.folder / "rows"), max(jobs, 16), os.getgid())
        self.events = EventWriter(str(self.folder / "events"), 50 << 20, os.getgid())
        self.row = self._row(jobs)
        self.told = self.published = 0
        self.process: subprocess.Popen[bytes] | None = None
        if sinks:
            environment = {
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "NULL": str(self.folder),
                "PYTHONPATH": f"{REPOSITORY}:{site}", "OPENBLAS_NUM_THREADS": "1",
            }  # fmt: skip
            self.process = subprocess.Popen([sys.executable, "-c", RUN], env=environment)
            time.sleep(1.5)

    def _row(self, jobs: int) -> np.ndarray:
        rows = empty_rows(jobs)
        for place, metric in enumerate(METRICS):
            rows[metric.column] = np.arange(jobs) * 7919 + place * 0.123456
        rows["run"] = [b"schedd.example.org#%d.0#1700000000#1" % number for number in range(jobs)]
        rows["global_job_id"] = [b"schedd.example.org#%d.0#1700000000" % number for number in range(jobs)]
        rows["job_id"] = [b"%d.0" % number for number in range(jobs)]
        rows["run_number"] = np.arange(jobs) + 1
        rows["owner"], rows["slot"], rows["start_time"] = b"alice", b"slot1_1", 1_700_000_000
        return rows

    def play(self, seconds: float, events_a_second: int) -> float:
        """Rows once a second, events as they come. Returns the CPU seconds that this took here, a second."""
        batch: np.ndarray = np.zeros(max(1, int(events_a_second * TICK)), EVENT)
        batch["kind"], batch["limit"], batch["pid"] = EventKind.EXEC, -1, 4711
        batch["program"], batch["text"] = b"python3", b"/usr/bin/python3 -m analysis --input x"
        batch["run_number"] = np.arange(len(batch)) % len(self.row) + 1
        began, used = time.monotonic(), _cpu(resource.RUSAGE_SELF)
        next_rows = began
        tick = 0
        while (now := time.monotonic()) < began + seconds:
            if now >= next_rows:
                next_rows += 1.0
                self.published += 1
                self.row["sequence"], self.row["update_time"] = self.published, int(time.time())
                self.rows.publish(self.row, time.time())
                self.events.wake()
            if events_a_second:
                batch["time"] = time.time()
                self.events.append(batch)
                self.told += len(batch)
            tick += 1
            time.sleep(max(0.0, began + tick * TICK - time.monotonic()))
        return (_cpu(resource.RUSAGE_SELF) - used) / seconds

    def exporter_cpu(self) -> float:
        assert self.process
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def exporter_bytes(self) -> int:
        """Resident, the pages of the shared memory that it has looked at not counted: they are joblensd's."""
        assert self.process
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Rss"))
        return sum(int(found[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))

    def stop(self) -> dict[str, object]:
        """What the first sink noted."""
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        told = self.folder / "null1"
        found = json.loads(told.read_text()) if told.exists() else {}
        subprocess.run(["rm", "-rf", str(self.folder)], check=True)
        return found


def _cpu(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def ring(section: Section) -> None:
    """How fast events go in and out, in C and memory alone."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        writer = EventWriter(f"{folder}/events", 64 << 20, os.getgid())
        reader = EventReader(f"{folder}/events")
        for size in (1, 100, 10_000):
            batch: np.ndarray = np.zeros(size, EVENT)
            times = max(1, 200_000 // size)
            began = _cpu(resource.RUSAGE_SELF)
            for _ in range(times):
                writer.append(batch)
            cost = (_cpu(resource.RUSAGE_SELF) - began) / times / size
            section.add(f"append an event, {size} at a time", cost * 1e9, "ns")
        began = _cpu(resource.RUSAGE_SELF)
        count = 0
        while len(found := reader.read()):
            count += len(found)
        section.add("read an event", (_cpu(resource.RUSAGE_SELF) - began) / count * 1e9, "ns")
        section.add(
            "a ring of 52 MiB holds 5,000 events/s for", writer.capacity / 5000 * 52 / 64, "s", note="≥ 30 wanted"
        )


def load(section: Section, jobs: int, events: int, sinks: str, seconds: float, target: float | None) -> None:
    """The exporter's CPU, memory and delay under a load."""
    node = Node(jobs, sinks)
    node.play(3, events)
    before, began, told = node.exporter_cpu(), time.monotonic(), node.told
    node.play(seconds, events)
    passed = time.monotonic() - began
    cpu = (node.exporter_cpu() - before) / passed
    resident = node.exporter_bytes()
    rate = (node.told - told) / passed
    time.sleep(1.0)
    found = node.stop()
    what = f"{jobs} jobs at 1 Hz, {rate:.0f} events/s, sinks {sinks}"
    section.add(f"exporter: {what}", cpu * 100, "% of a core", target)
    section.add(f"exporter's memory: {what}", resident / 1e6, "MB", 120 if jobs == 200 else None)
    if events:
        ages = np.array(found["ages"]) * 1000
        section.add(f"event to sink, median: {what}", float(np.percentile(ages, 50)), "ms", 30)
        section.add(f"event to sink, 99 %: {what}", float(np.percentile(ages, 99)), "ms", 100)
        count = found["count"]
        assert isinstance(count, dict)
        section.add(f"events that did not come: {what}", float(node.told - count["event"]), "", 0)


def writers_cost(section: Section, seconds: float) -> None:
    """joblensd's part with no exporter, with four sinks, and with one that hangs: in turns, the median of three."""
    found: dict[str, list[float]] = {"": [], "null1, null2, null3, null4": [], "hung": []}
    for _ in range(3):
        for sinks, costs in found.items():
            node = Node(200, sinks)
            costs.append(node.play(seconds / 2, 1000) * 100)
            node.stop()
    for sinks, costs in found.items():
        who = sinks or "no exporter"
        spread = f"{min(costs):.3g} to {max(costs):.3g}"
        section.add(
            f"publishing 200 rows and 1000 events/s: {who}", float(np.median(costs)), "% of a core", note=spread
        )


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
    section = Section(
        "export", "Out of the node",
        "A stand-in for joblensd writes rows with every metric of level io once per second. They go through the real "
        "shared memory and the real exporter into sinks that drop them. The cost of a backend's client comes on top.",
    )  # fmt: skip
    four = "null1, null2, null3, null4"
    ring(section)
    load(section, 200, 0, four, seconds, 5)
    load(section, 1000, 0, four, seconds, 20)
    load(section, 200, 0, "file", seconds, 5)
    load(section, 200, 5000, "null1", seconds, None)
    load(section, 200, 20000, "null1", seconds, None)
    writers_cost(section, seconds)
    section.write()
    return 1 if section.missed else 0


if __name__ == "__main__":
    sys.exit(main())
