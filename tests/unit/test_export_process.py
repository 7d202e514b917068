"""joblens-export as a process: what it delivers, whatever is done to it, to joblensd and to its sinks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from condor_joblens.model.events import EVENT, EventKind
from condor_joblens.model.metrics import empty_rows
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "docs" / "examples" / "joblens_sink_syslog"

# where the tests are run by root, the user joblens could not read their folder
RUN_AS_WE_ARE = """
import os, sys
from condor_joblens.export import __main__ as export
export.service_ids = lambda: None
code = export.main()
os._exit(code)
"""

PLUGIN = """
import ctypes, os, time
from condor_joblens.sinks import *
class Fake(Sink):
    "Appends ids to a file; what else it does is in another one."
    name = "fake"
    def mood(self):
        try:
            return open(os.environ["FAKE"] + "/mood").read().strip()
        except OSError:
            return ""
    def deliver(self, batch):
        mood = self.mood()
        if mood == "raises":
            raise RuntimeError("as was asked for")
        if mood == "blocks":
            time.sleep(3600)
        if mood == "leaks":
            self.kept = getattr(self, "kept", []) + [bytearray(os.urandom(1024) * 1024 * 64)]
        if mood == "gone":
            return not_now(batch, "the backend is gone")
        with open(os.environ["FAKE"] + "/got", "ab") as file:
            file.write(b"".join(record.json + b"\\n" for record in batch))
        return DELIVERED
"""


class Machine:
    """A folder in which joblensd's files are written by the test, and an exporter that reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.macros = {
            "LOG": str(folder),
            "JOBLENS_RUN_DIR": str(folder / "run"),
            "JOBLENS_SPOOL_DIR": str(folder / "spool"),
            "JOBLENS_SINKS": "fake",
            "FULL_HOSTNAME": "node1.example.org",
        }
        self.log = folder / "JobLensExportLog"
        (folder / "run").mkdir()
        (folder / "site" / "fake_sink-1.dist-info").mkdir(parents=True)
        (folder / "site" / "fake_sink.py").write_text(PLUGIN)
        entry = "[condor_joblens.sinks]\nfake = fake_sink:Fake\n"
        (folder / "site" / "fake_sink-1.dist-info" / "entry_points.txt").write_text(entry)
        (folder / "site" / "fake_sink-1.dist-info" / "METADATA").write_text("Name: fake_sink\nVersion: 1\n")
        program = folder / "bin" / "condor_config_val"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\nexec cat {folder}/macros\n")
        program.chmod(0o755)
        self.process: subprocess.Popen[bytes] | None = None
        self.sequence = 0
        self.told = 0
        self.begin()

    def begin(self) -> None:
        """joblensd starts."""
        self.rows = Writer(f"{self.folder}/run/rows", 64, os.getgid())
        self.ended = Writer(f"{self.folder}/run/ended", 64, os.getgid())
        self.events = EventWriter(f"{self.folder}/run/events", 1 << 22, os.getgid())

    def publish(self, runs: int = 5, events: int = 20) -> None:
        """A period of joblensd's."""
        self.sequence += 1
        self.rows.publish(self._rows(runs), time.time())
        found: np.ndarray = np.zeros(events, EVENT)
        found["kind"], found["time"], found["limit"] = EventKind.EXEC, time.time(), -1
        found["run_number"] = np.arange(events) % runs + 1
        found["text"] = [b"program %d" % number for number in range(self.told, self.told + events)]
        self.told += events
        self.events.append(found)
        self.events.wake()

    def _rows(self, runs: int) -> np.ndarray:
        rows = empty_rows(runs)
        rows["run"] = [b"schedd#%d.0#1#1" % number for number in range(runs)]
        rows["run_number"], rows["sequence"] = np.arange(runs) + 1, self.sequence
        rows["cpu_seconds"], rows["process_live"] = self.sequence, 1
        rows["update_time"], rows["start_time"] = int(time.time()), int(time.time()) - 3600
        return rows

    def configure(self, **macros: str) -> None:
        self.macros.update(macros)
        (self.folder / "macros").write_text("".join(f"{name} = {value}\n" for name, value in self.macros.items()))

    def mood(self, mood: str) -> None:
        (self.folder / "mood").write_text(mood)

    def start(self) -> None:
        self.configure()
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": f"{REPOSITORY}:{self.folder}/site",
            "FAKE": str(self.folder),
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen([sys.executable, "-c", RUN_AS_WE_ARE], env=environment)

    def signal(self, number: int) -> int:
        assert self.process
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def got(self) -> list[dict[str, Any]]:
        try:
            content = (self.folder / "got").read_bytes()
        except FileNotFoundError:
            return []
        found = []
        for line in content.split(b"\n")[:-1]:
            # a process that was killed leaves half a line, and the next one begins behind it
            begin = line.rfind(b'{"Type"')
            found.append(json.loads(line[begin:]))
        return found

    def texts(self) -> list[str]:
        return [record["CommandLine"] for record in self.got() if record.get("Kind") == "Exec"]

    def samples(self) -> set[tuple[str, int]]:
        return {(record["Run"], record["Sequence"]) for record in self.got() if record["Type"] == "sample"}

    def lost(self) -> dict[str, int]:
        """What was declared, once each."""
        found: dict[str, tuple[str, int]] = {
            record["Id"]: (record["Cause"], record["Count"]) for record in self.got() if record.get("Kind") == "Loss"
        }
        return {cause: sum(n for c, n in found.values() if c == cause) for cause in {c for c, _ in found.values()}}

    def accounted(self) -> int:
        """Samples that came or were declared as lost, less all that there were up to the last that came."""
        newest: dict[str, int] = {}
        samples = self.samples()
        for run, sequence in samples:
            newest[run] = max(sequence, newest.get(run, 0))
        return len(samples) + self.lost().get("unseen", 0) - sum(newest.values())

    def until(self, condition: Any, publishing: bool = False) -> None:
        deadline = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < deadline, self.log.read_text()
            assert self.process and self.process.poll() is None, self.log.read_text()
            if publishing:
                self.publish()
            time.sleep(0.05)

    def log_has(self, words: str) -> bool:
        return self.log.exists() and words in self.log.read_text()

    def has_everything(self) -> bool:
        return len(set(self.texts())) >= self.told


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    if machine.process and machine.process.poll() is None:
        machine.process.kill()
        machine.process.wait()


def everything_once(machine: Machine) -> None:
    texts = machine.texts()
    assert texts == [f"program {number}" for number in range(machine.told)]


def test_samples_and_events_come_once_each_with_their_runs(machine: Machine) -> None:
    machine.start()
    for _ in range(30):
        machine.publish()
        time.sleep(0.03)
    machine.until(machine.has_everything)
    machine.until(lambda: ("schedd#4.0#1#1", machine.sequence) in machine.samples())
    everything_once(machine)
    records = machine.got()
    assert len({record["Id"] for record in records}) == len(records)
    execs = [record for record in records if record.get("Kind") == "Exec"]
    assert all(record["Run"] == f"schedd#{record['RunNumber'] - 1}.0#1#1" for record in execs)
    missing = 5 * machine.sequence - len(machine.samples())
    assert sum(machine.lost().values()) <= missing, "samples that were replaced before they were seen are declared"
    assert machine.signal(signal.SIGTERM) == 0


def test_what_is_in_neither_sample_nor_loss_does_not_exist(machine: Machine) -> None:
    """Rows that are published faster than anybody reads them."""
    machine.start()
    machine.publish()
    machine.until(lambda: len(machine.samples()) == 5)
    for _ in range(500):
        machine.publish(events=1)
    machine.until(machine.has_everything)
    last = machine.sequence
    # a loss is told with the records that come behind it
    machine.until(lambda: ("schedd#4.0#1#1", last) < max(machine.samples()), publishing=True)
    machine.until(lambda: machine.accounted() == 0, publishing=True)


def test_killed_at_random_moments_it_loses_no_event_and_declares_every_sample(machine: Machine) -> None:
    """`JOBLENS_KILLS` times; the backend fails now and then."""
    random.seed(7)
    machine.start()
    machine.publish()
    machine.until(lambda: len(machine.samples()) == 5)
    for kill in range(int(os.environ.get("JOBLENS_KILLS", "8"))):
        machine.mood(random.choice(["", "", "gone", "raises"]))
        end = time.monotonic() + random.uniform(0.05, 1.0)
        while time.monotonic() < end:
            machine.publish()
            time.sleep(0.02)
        machine.signal(signal.SIGKILL)
        if kill % 3 == 2:
            machine.begin()  # joblensd was killed too: its successor goes on with the numbers
        machine.start()
    machine.mood("")
    machine.publish()
    machine.until(machine.has_everything)
    machine.until(lambda: machine.accounted() >= 0, publishing=True)
    assert sorted(set(machine.texts()), key=lambda text: int(text.split()[1])) == [
        f"program {number}" for number in range(machine.told)
    ]
    assert set(machine.lost()) <= {"unseen"}


def test_each_sink_gets_the_metrics_and_as_many_samples_as_it_asks_for(machine: Machine) -> None:
    file = machine.folder / "records.jsonl"
    machine.configure(JOBLENS_SINKS="fake, file", JOBLENS_SINK_FILE_PATH=str(file))
    machine.configure(JOBLENS_SINK_FILE_METRICS="Cpu.*", JOBLENS_SINK_FILE_PERIOD="3600")
    machine.start()
    for _ in range(5):
        machine.publish()
        machine.until(machine.has_everything)
        machine.until(lambda: ("schedd#4.0#1#1", machine.sequence) in machine.samples())
    assert all("Process" in record for record in machine.got() if record["Type"] == "sample")
    machine.until(lambda: file.exists() and f"program {machine.told - 1}" in file.read_text())
    written = [json.loads(line) for line in file.read_text().splitlines()]
    samples = [record for record in written if record["Type"] == "sample"]
    assert len({record["Run"] for record in samples}) == len(samples) == 5, "one of each run, an hour long"
    assert all("Cpu" in record and "Process" not in record for record in samples)
    assert not [record for record in written if record.get("Kind") == "Loss"]


def test_a_joblensd_that_comes_and_goes_is_followed(machine: Machine) -> None:
    machine.start()
    machine.publish()
    machine.until(lambda: len(machine.samples()) == 5)
    for _ in range(3):
        os.unlink(machine.folder / "run" / "rows")
        machine.begin()
        machine.publish()
        machine.until(machine.has_everything)
        machine.until(lambda: ("schedd#4.0#1#1", machine.sequence) in machine.samples())
    everything_once(machine)
    assert machine.lost() == {}


def test_events_that_were_overwritten_while_nobody_read_are_declared(machine: Machine) -> None:
    machine.start()
    machine.publish()
    machine.until(machine.has_everything)
    machine.signal(signal.SIGKILL)
    for _ in range(40):
        machine.publish(events=1000)
    machine.start()
    machine.until(lambda: len(set(machine.texts())) + machine.lost().get("overrun", 0) >= machine.told, publishing=True)
    assert machine.lost()["overrun"] > 20_000


@pytest.mark.parametrize("mood", ["raises", "blocks", "gone"])
def test_a_sick_sink_costs_the_others_nothing_and_loses_nothing(machine: Machine, mood: str) -> None:
    machine.configure(JOBLENS_SINKS="fake, file", JOBLENS_SINK_FILE_PATH=f"{machine.folder}/records.jsonl")
    machine.mood(mood)
    machine.start()
    for _ in range(20):
        machine.publish()
        time.sleep(0.02)
    records = machine.folder / "records.jsonl"
    machine.until(lambda: records.exists() and f"program {machine.told - 1}" in records.read_text())
    assert not (machine.folder / "got").exists()
    machine.until(lambda: list((machine.folder / "spool" / "fake").glob("*.spool")))
    began = time.monotonic()
    machine.signal(signal.SIGTERM)
    assert time.monotonic() - began < 30
    machine.mood("")
    machine.start()
    machine.until(machine.has_everything)
    assert set(machine.lost()) <= {"unseen"}
    assert not list((machine.folder / "spool" / "file").glob("*.spool")), "a healthy sink's spool is not touched"


def test_a_sink_that_leaks_makes_it_start_anew_and_loses_nothing(machine: Machine) -> None:
    machine.configure(JOBLENS_EXPORT_MAX_BYTES=str(1 << 28))
    machine.mood("leaks")
    machine.start()
    assert machine.process
    deadline = time.monotonic() + 60
    while machine.process.poll() is None:
        assert time.monotonic() < deadline
        machine.publish()
        time.sleep(0.1)
    assert machine.process.returncode == 1 and machine.log_has("a sink leaks; it starts anew")
    machine.mood("")
    machine.start()
    machine.until(machine.has_everything)


def test_a_reload_loses_nothing(machine: Machine) -> None:
    machine.start()
    machine.publish()
    machine.until(machine.has_everything)
    for number in range(12):
        machine.publish()
        time.sleep(0.05)
        if number % 3 == 2:
            # every spool is closed and opened again
            machine.configure(JOBLENS_SPOOL_SECONDS=str(1000 + number))
            assert machine.process
            machine.process.send_signal(signal.SIGHUP)
    machine.until(machine.has_everything)
    everything_once(machine)


def test_a_mistake_in_the_configuration_costs_a_line_and_that_sink_alone(machine: Machine) -> None:
    machine.configure(
        JOBLENS_SINKS="fake, kafak, file",
        JOBLENS_SINK_FILE_BYTES="many",
        JOBLENS_SINK_FILE_PAHT="/tmp/x",
        JOBLENS_SINK_KAFAK_SERVERS="host",
        JOBLENS_SINK_FILE_PATH=f"{machine.folder}/records.jsonl",
    )
    machine.start()
    machine.publish()
    machine.until(machine.has_everything)
    log = machine.log.read_text()
    assert "there is no sink kafak: did you mean kafka?" in log
    assert "JOBLENS_SINK_FILE_BYTES = many is not a whole number" in log
    assert (
        "JOBLENS_SINK_FILE_PAHT is no knob of the sink file and has no effect: did you mean JOBLENS_SINK_FILE_PATH"
        in log
    )
    assert "JOBLENS_SINK_KAFAK_SERVERS is of no sink" in log


def test_a_clock_that_jumps_changes_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.start()
    real = time.time
    for jump in (0, 3600, -3600, 7200, 0):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        machine.publish()
        # of samples that follow each other faster than it looks, it declares those in between as unseen
        machine.until(lambda: ("schedd#4.0#1#1", machine.sequence) in machine.samples())
    machine.until(machine.has_everything)
    everything_once(machine)
    assert machine.lost() == {}


def test_the_example_plug_in_of_the_documentation_is_installed_and_used(machine: Machine, tmp_path: Path) -> None:
    import socket

    source = tmp_path / "source"
    subprocess.run(["cp", "-r", str(EXAMPLE), str(source)], check=True)
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation",
            "--no-deps", "--no-index", "--target", str(machine.folder / "site"), str(source),
        ],
        check=True, timeout=120,
    )  # fmt: skip
    log = tmp_path / "log.socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as logger:
        logger.bind(str(log))
        logger.settimeout(60)
        machine.configure(JOBLENS_SINKS="syslog", JOBLENS_SINK_SYSLOG_SOCKET=str(log))
        rows = machine._rows(1)
        rows["sequence"], rows["cpu_seconds"], rows["final"] = 1, 2.5, True
        machine.ended.publish(rows, time.time())
        machine.start()
        assert logger.recv(1000) == b"<13>joblens: schedd#0.0#1#1 used 2.5 s of CPU"
    machine.signal(signal.SIGTERM)
