"""joblens-export as a process of its own, beside a node whose joblensd is played by the test or benchmark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sinks import runs, until

from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import ArtifactLimits, ArtifactWriter
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer

# where the tests are run by root, the user joblens could not read their folder
AS_WE_ARE = """
import os, sys
from condor_joblens.export import __main__ as export
export.service_ids = lambda: None
code = export.main()
sys.stderr.flush()
os._exit(code)
"""


class Node:
    """What joblensd does for its readers: rows once a period, events as they come, of so many runs."""

    def __init__(self, folder: Path, jobs: int, ring_bytes: int = 64 << 20) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.jobs = jobs
        self._rows = runs(jobs)
        self._writer = Writer(f"{folder}/rows", jobs + 8, os.getgid())
        self._events = EventWriter(f"{folder}/events", ring_bytes, os.getgid())
        self.events = 0
        self.rounds = 0
        self.before = 0  # rounds that no exporter could see: its sinks were not yet there

    def publish(self) -> None:
        """All runs' numbers, anew."""
        now = time.time()
        self.rounds += 1
        self._rows["sequence"] = self.rounds
        self._rows["update_time"] = int(now)
        self._rows["cpu_seconds"] += 1
        self._writer.publish(self._rows, now)

    def happen(self, count: int) -> None:
        """So many events, in the runs in turn."""
        events = np.zeros(count, EVENT)
        numbers = np.arange(self.events, self.events + count)
        events["time"], events["kind"] = time.time(), EventKind.EXEC
        events["run_number"] = numbers % len(self._rows) + 1
        events["pid"], events["parent_pid"] = numbers % 4_000_000 + 1, 1
        events["program"], events["text"] = b"python3", b"python3 analysis.py --input file.root"
        self.events += count
        self._events.append(events)

    def keep_profile(self, artifact: Artifact, content: bytes) -> str:
        """An artifact of a run, and the event that tells of it; its name."""
        store = ArtifactWriter(f"{self.folder}/artifacts", ArtifactLimits(4 << 20, 1 << 30, 1e9))
        kept = store.add(artifact, [content])
        event = np.zeros(1, EVENT)
        event["time"], event["kind"], event["text"] = time.time(), EventKind.ARTIFACT, kept.name.encode()
        event["run_number"], event["value"] = kept.run_number, kept.length
        self.events += 1
        self._events.append(event)
        return kept.name

    def live(self, seconds: float, events_a_second: int, period: float = 1.0) -> None:
        """Goes on for so long: rows once a period, and so many events a second in fiftieths."""
        end, next_rows, done, begun = time.monotonic() + seconds, 0.0, 0, time.monotonic()
        while (now := time.monotonic()) < end:
            if now >= next_rows:
                self.publish()
                next_rows = now + period
            due = int((now - begun) * events_a_second) - done
            if due > 0:
                self.happen(due)
                done += due
            time.sleep(0.02)


class Exporter:
    """The process. Its configuration is what `macros` say; the rest of HTCondor is not there."""

    program = AS_WE_ARE

    def __init__(self, folder: Path, node: Node, **macros: str) -> None:
        self.folder = folder
        self.log = folder / "JobLensExportLog"
        self.spool = folder / "spool"
        program = folder / "bin" / "condor_config_val"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nexec cat {folder}/macros\n")
        program.chmod(0o755)
        self.spool.mkdir()
        (folder / "site").mkdir()  # for plug-ins
        self.macros = {
            "LOG": str(folder), "JOBLENS_RUN_DIR": str(node.folder), "JOBLENS_SPOOL_DIR": str(self.spool),
            "FULL_HOSTNAME": "node1.example.org", **macros,
        }  # fmt: skip
        lines = "".join(f"{name} = {value}\n" for name, value in self.macros.items())
        (folder / "macros").write_text(lines)
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Exporter:
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.process and self.process.poll() is None:
            self.kill()

    def start(self) -> None:
        """Runs it; it is up when its sinks are."""
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "FOLDER": str(self.folder),
            "PYTHONPATH": f"{os.getcwd()}:{self.folder}/site",
        }  # fmt: skip
        with (self.folder / "stderr").open("ab") as errors:
            self.process = subprocess.Popen([sys.executable, "-c", self.program], env=environment, stderr=errors)

    def kill(self) -> None:
        """As a crash does."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """In order: what is not delivered in time is in the spool."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=40) == 0, self.said()

    def said(self) -> str:
        """Its log, and what it said on standard error."""
        log = self.log.read_text() if self.log.exists() else ""
        return log + (self.folder / "stderr").read_text()

    def until_said(self, words: str, times: int = 1) -> None:
        """Waits for words in the log, until they are there so many times."""
        until(lambda: self.said().count(words) >= times, f"{words!r} in\n{self.said()}")

    def cpu_seconds(self) -> float:
        """User and system time so far, of its children too: Kafka's client is one."""
        assert self.process
        return ticks_of(self.process.pid) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self, which: str = "VmRSS") -> int:
        """Memory now, or the most so far (VmHWM)."""
        assert self.process
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(which):
                return int(line.split()[1]) * 1024
        raise AssertionError(which)


def ticks_of(pid: int) -> int:
    """User and system time of a process and its living children, in ticks of the clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = [
        child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return int(fields[11]) + int(fields[12]) + sum(ticks_of(int(child)) for child in children)


class Account:
    """What has arrived of a node's events and samples, once each, and what was declared as lost."""

    def __init__(self) -> None:
        self.events: set[int] = set()
        self.samples: set[tuple[str, int]] = set()
        self.losses: dict[str, tuple[str, int]] = {}  # id -> cause, count

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Further records, in any order and number."""
        for record in records:
            if record["Type"] == "sample":
                self.samples.add((record["Run"], record["Sequence"]))
            elif record.get("Kind") == "Loss":
                self.losses[record["Id"]] = record["Cause"], record["Count"]
            elif record["Type"] == "event":
                self.events.add(record["Sequence"])

    def of(self, node: Node) -> dict[str, Any]:
        """The balance: {"missing": ..., "declared": ...}, of what the sink could know of."""
        samples = sum(sequence > node.before for _, sequence in self.samples)
        wanted = node.events + (node.rounds - node.before) * node.jobs
        return {
            "events": len(self.events),
            "samples": samples,
            "missing": wanted - len(self.events) - samples,
            "declared": sum(count for _, count in self.losses.values()),
            "causes": sorted({cause for cause, _ in self.losses.values()}),
        }


def account(records: Iterable[dict[str, Any]], node: Node) -> dict[str, Any]:
    """The balance of these records alone."""
    found = Account()
    found.add(records)
    return found.of(node)


def of_topic(found: list[Any]) -> list[dict[str, Any]]:
    """The records of Kafka as dictionaries."""
    return [json.loads(one.value) for one in found]
