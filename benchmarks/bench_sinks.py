#!/usr/bin/env python3
"""What joblens-export costs with four real backends, how soon an event is in Kafka, and how many go there.

Kafka, OpenSearch, an OpenTelemetry collector and scrapes once a second, as in tests/service; joblensd is played: rows
of so many runs with every metric once a second, and events.

    bench_sinks.py [--seconds N] [PART ...]   # all parts unless said

Parts are page, bytes, stored, sinks, latency, cost, thousand and throughput.

A part takes about twenty seconds beside the starting of servers (--seconds 60: as long as is asked for throughput),
and leaves a file of its own in benchmarks/results.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests" / "service")]

import job_sizes  # noqa: E402
import numpy as np  # noqa: E402
from exporter import Exporter, Node, account, of_topic, ticks_of  # noqa: E402
from kafka import KafkaConsumer  # noqa: E402
from results import Section, verdict  # noqa: E402
from servers import Collector, Kafka, OpenSearch, free_port  # noqa: E402
from sinks import deliver, make, runs  # noqa: E402
from test_kafka import read  # noqa: E402

from condor_joblens.export.records import RowEncoder  # noqa: E402
from condor_joblens.model.metrics import METRICS  # noqa: E402
from condor_joblens.sinks import RecordKind, Sink  # noqa: E402
from condor_joblens.sinks.kafka import KafkaSink  # noqa: E402
from condor_joblens.sinks.opensearch import OpenSearchSink  # noqa: E402
from condor_joblens.sinks.otlp import OtlpSink  # noqa: E402
from condor_joblens.sinks.prometheus_page import Page  # noqa: E402

REAL = (
    "Kafka, OpenSearch, an OpenTelemetry collector and one scrape per second, all on the exporter's machine. "
    "CPU is user and system time of joblens-export alone."
)
EXPLANATIONS = {
    "page": "Made in this process; CPU time.",
    "bytes": "200 jobs that read from CVMFS, write locally and have one peer. What was never counted is 0; other "
    "numbers are random. Compressed together with those of all jobs.",
    "stored": "The same jobs, a sample a second for 30 s, in a real Kafka and a real OpenSearch, without replicas.",
    "sinks": "Sinks in this process, a round at a time into real servers; CPU time of this process, without theirs.",
}


class Swallow(http.server.BaseHTTPRequestHandler):
    """Behind the collector: takes all and keeps nothing."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Not a word."""


@contextlib.contextmanager
def scraped(address: str) -> Any:
    """Somebody scrapes the page once a second, as Prometheus does."""
    stop = threading.Event()

    def scrape() -> None:
        while not stop.wait(1):
            request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept-Encoding": "gzip"})
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def backends(folder: Path) -> Iterator[tuple[Kafka, OpenSearch, Collector]]:
    """All three, and a process behind the collector."""
    behind = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Swallow)
    swallowing = multiprocessing.get_context("fork").Process(target=behind.serve_forever, daemon=True)
    swallowing.start()
    onward = f"http://127.0.0.1:{behind.server_address[1]}"
    behind.socket.close()
    try:
        with (
            Kafka(folder / "kafka") as kafka,
            OpenSearch(folder / "opensearch") as opensearch,
            Collector(folder / "collector", onward) as collector,
        ):
            yield kafka, opensearch, collector
    finally:
        swallowing.terminate()
        swallowing.join()


def cost(section: Section, folder: Path, jobs: int, seconds: float, target: float) -> None:
    """CPU and memory of the exporter, with all four sinks at work."""
    address = f"127.0.0.1:{free_port()}"
    node = Node(folder / "run", jobs)
    with backends(folder) as (kafka, opensearch, collector):
        macros = {
            "JOBLENS_SINKS": "prometheus, kafka, opensearch, otlp",
            "JOBLENS_SINK_PROMETHEUS_ADDRESS": address,
            "JOBLENS_SINK_KAFKA_SERVERS": kafka.plain,
            "JOBLENS_SINK_OPENSEARCH_URL": opensearch.url,
            "JOBLENS_SINK_OTLP_URL": collector.url,
        }
        with Exporter(folder / "exporter", node, **macros) as exporter, scraped(address):
            node.live(10, 0)  # templates, connections, indices
            before, begun, rounds = exporter.cpu_seconds(), time.monotonic(), node.rounds
            node.live(seconds, 0)
            spent = exporter.cpu_seconds() - before
            share = spent / (time.monotonic() - begun)
            what = f"{jobs} runs × {len(METRICS)} metrics at 1 Hz, four sinks: CPU"
            section.add(what, 100 * share, "% of a core", target)
            section.add(f"… a round of {jobs} runs", 1000 * spent / (node.rounds - rounds), "ms of CPU")
            most = 120 if jobs == 200 else None
            section.add(f"… resident memory, {jobs} runs", exporter.resident_bytes() / 1e6, "MB", most)
            section.add(f"… the most it ever had, {jobs} runs", exporter.resident_bytes("VmHWM") / 1e6, "MB")
            exporter.stop()
            found = _found(kafka, node)
            section.add(f"… samples not seen, and so declared, {jobs} runs", found["declared"], "records")
            section.add(f"… samples lost, {jobs} runs", found["missing"] - found["declared"], "records", 0)


def _found(kafka: Kafka, node: Node) -> Any:
    samples = of_topic(read(kafka, "joblens.samples"))
    # what was published before the sinks were there is not theirs
    node.before = min(record["Sequence"] for record in samples) - 1
    return account(samples + of_topic(read(kafka, "joblens.events")), node)


def sinks(section: Section, folder: Path, seconds: float) -> None:
    """What a round of 200 runs costs in each client alone: its threads and all, without the exporter around it."""
    encoder, rows = RowEncoder("node1"), runs(200)
    section.add("records of 200 runs", _least(lambda: encoder.records(rows, RecordKind.SAMPLE)), "ms of CPU")
    with backends(folder) as (kafka, opensearch, collector):
        for kind, more in (
            *((KafkaSink, {"SERVERS": kafka.plain, "COMPRESSION": codec}) for codec in ("gzip", "zstd")),
            (OpenSearchSink, {"URL": opensearch.url}),
            *((OtlpSink, {"URL": collector.url, "COMPRESSION": codec}) for codec in ("gzip", "none")),
        ):
            sink = make(kind, **more)
            sink.start()
            deliver(sink, encoder.records(rows, RecordKind.SAMPLE))
            what = f"{kind.name}, compression {more.get('COMPRESSION', 'none')}: 200 records"
            section.add(what, _each(sink, encoder, rows, seconds), "ms of CPU")
            sink.close(2)


def _least(work: Callable[[], object]) -> float:
    took = []
    for _ in range(20):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return 1000 * min(took)


def _each(sink: Sink, encoder: RowEncoder, rows: Any, seconds: float) -> float:
    """The median; for Kafka, whose client is a process of its own, the mean of both processes."""
    took = []
    child = getattr(sink, "child_pid", 0)
    ticks = ticks_of(child) if child else 0
    end = time.monotonic() + seconds / 5
    while time.monotonic() < end:
        rows["sequence"] += 1
        rows["cpu_seconds"] += 1
        batch = encoder.records(rows, RecordKind.SAMPLE)
        begun = time.process_time()  # of all threads: kafka-python has some
        deliver(sink, batch)
        time.sleep(0.02)
        took.append(time.process_time() - begun)
    if child:
        return 1000 * (sum(took) + (ticks_of(child) - ticks) / os.sysconf("SC_CLK_TCK")) / len(took)
    return 1000 * sorted(took)[len(took) // 2]


def latency(section: Section, folder: Path, seconds: float) -> None:
    """From an event's own time to the record in a consumer's hands, beside 200 runs and 200 events a second."""
    node = Node(folder / "run", 200)
    with Kafka(folder / "kafka") as kafka:
        macros = {"JOBLENS_SINKS": "kafka", "JOBLENS_SINK_KAFKA_SERVERS": kafka.plain}
        with Exporter(folder / "exporter", node, **macros) as exporter:
            node.live(3, 100)
            consumer = KafkaConsumer("joblens.events", bootstrap_servers=kafka.plain, fetch_max_wait_ms=5000)
            consumer.poll(2000)
            took: list[float] = []
            stop = threading.Event()

            def listen() -> None:
                while not stop.is_set():
                    for records in consumer.poll(200).values():
                        now = time.time()
                        for record in records:
                            took.append(now - json.loads(record.value)["Time"])

            thread = threading.Thread(target=listen)
            thread.start()
            node.live(seconds, 200)
            stop.set()
            thread.join()
            consumer.close()
            exporter.stop()
    took.sort()
    for name, part, target in (("p50", 0.5, 30), ("p99", 0.99, 100)):
        section.add(f"event to record readable from Kafka, {name}", 1000 * took[int(part * len(took))], "ms", target)


def throughput(section: Section, folder: Path, seconds: float, rate: int) -> None:
    """Many events a second into Kafka: none is lost."""
    node = Node(folder / "run", 200)
    with Kafka(folder / "kafka") as kafka:
        macros = {"JOBLENS_SINKS": "kafka", "JOBLENS_SINK_KAFKA_SERVERS": kafka.plain}
        with Exporter(folder / "exporter", node, **macros) as exporter:
            node.live(2, 100)
            before, begun, at = exporter.cpu_seconds(), time.monotonic(), node.events
            node.live(seconds, rate)
            sent = (node.events - at) / (time.monotonic() - begun)
            section.add("events a second into Kafka: offered", sent, "events/s")
            share = (exporter.cpu_seconds() - before) / (time.monotonic() - begun)
            section.add("… CPU of the exporter", 100 * share, "% of a core")
            lag = time.monotonic()
            deadline = lag + 120
            while (found := account(of_topic(read(kafka, "joblens.events")), node))["events"] < node.events:
                if time.monotonic() > deadline or found["declared"]:
                    break
                time.sleep(1)
            section.add("… until the last was there", time.monotonic() - lag, "s")
            section.add("… events lost", node.events - found["events"], "events", 0)
            exporter.stop()


def page(section: Section) -> None:
    """A scrape of 1000 runs: made anew, compressed as Prometheus asks for it."""
    for what, rows in (("level basic", _basic(runs(1000))), ("every metric", runs(1000))):
        made = Page(lambda rows=rows: (rows, time.time()))
        made.text()
        took = []
        for _ in range(5):
            begun = time.process_time()
            text = made.text(compressed=True)
            took.append(time.process_time() - begun)
        note = f"{len(text) / 1e6:.1f} MB gzip"
        section.add(f"scrape of 1000 runs, {what}: CPU", 1000 * sorted(took)[2], "ms", 150, note)


def sizes(section: Section) -> None:
    """What one job is on the page and in a record, made in this process."""
    for level in ("basic", "io"):
        for what, value in job_sizes.sizes(level == "io").items():
            section.add(f"{level}: {what}", value, "series" if "series" in what else "bytes")


def stored(section: Section, folder: Path, rounds: int = 30) -> None:
    """What a sample takes on the disks of a real Kafka and a real OpenSearch, both without replicas."""
    with Kafka(folder / "kafka") as kafka, OpenSearch(folder / "opensearch") as opensearch:
        for level in ("basic", "io"):
            rows, random = job_sizes.plain_jobs(job_sizes.JOBS, level == "io"), np.random.default_rng(2)
            encoder = RowEncoder("node1.example.org")
            topic = f"joblens.{level}"
            sinks = [
                make(KafkaSink, SERVERS=kafka.plain, TOPIC_SAMPLES=topic),
                make(OpenSearchSink, URL=opensearch.url, INDEX=level, DEAD_LETTERS=""),
            ]
            for sink in sinks:
                sink.start()
            for _ in range(rounds):
                batch = encoder.records(rows, RecordKind.SAMPLE)
                for sink in sinks:
                    deliver(sink, batch)
                rows = job_sizes.later(rows, 1, random)
            for sink in sinks:
                sink.close(10)
            samples = rounds * job_sizes.JOBS
            log = sum(path.stat().st_size for path in (folder / "kafka/data").glob(f"{topic}-*/*.log"))
            section.add(f"{level}: a sample in Kafka, gzip", log / samples, "bytes")
            section.add(f"{level}: a sample in OpenSearch", _index_bytes(opensearch, level, samples), "bytes")


def _index_bytes(opensearch: OpenSearch, prefix: str, samples: int) -> float:
    """A document's part of the index, in one segment, as an index of an earlier day can be."""
    index = f"{opensearch.url}/{prefix}-samples-*"
    for path in ("_refresh", "_forcemerge?max_num_segments=1", "_flush"):
        urllib.request.urlopen(urllib.request.Request(f"{index}/{path}", b""), timeout=120).close()
    with urllib.request.urlopen(f"{index}/_stats/store,docs", timeout=60) as answer:
        found = json.loads(answer.read())["_all"]["primaries"]
    if found["docs"]["count"] != samples:
        raise RuntimeError(f"{found['docs']['count']} of {samples} samples are there")
    return float(found["store"]["size_in_bytes"]) / samples


def _basic(rows: Any) -> Any:
    for metric in METRICS:
        if metric.level.name != "BASIC":
            rows[metric.column] = -1
    return rows


def main() -> int:
    """Measures; 1 where a target is missed."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=20)
    arguments.add_argument("parts", nargs="*", metavar="PART")
    given = arguments.parse_args()
    os.chdir(CHECKOUT)
    seconds = given.seconds
    parts: dict[str, tuple[str, Callable[[Section, Path], None]]] = {
        "page": ("the Prometheus page", lambda section, folder: page(section)),
        "bytes": ("series and bytes of a job", lambda section, folder: sizes(section)),
        "stored": ("bytes of a sample on disk", lambda section, folder: stored(section, folder)),
        "sinks": ("each sink's client", lambda section, folder: sinks(section, folder, seconds)),
        "latency": ("how soon an event is in Kafka", lambda section, folder: latency(section, folder, seconds)),
        "cost": ("200 runs, four sinks", lambda section, folder: cost(section, folder, 200, seconds, 5)),
        "thousand": ("1000 runs, four sinks", lambda section, folder: cost(section, folder, 1000, seconds, 20)),
        "throughput": ("many events", lambda section, folder: throughput(section, folder, seconds, 20_000)),
    }
    if not set(given.parts) <= set(parts):
        arguments.error(f"parts are {', '.join(parts)}")
    missed = []
    for name, (title, measure) in parts.items():
        if given.parts and name not in given.parts:
            continue
        section = Section(f"sinks_{name}", f"joblens-export with real backends: {title}", EXPLANATIONS.get(name, REAL))
        with tempfile.TemporaryDirectory() as path:
            measure(section, Path(path))
        section.write()
        missed += section.missed
    return verdict(missed)


if __name__ == "__main__":
    sys.exit(main())
