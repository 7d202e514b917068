"""From real jobs in a real pool to four backends: every record is in each, with equal values, once."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hub_server import Hub, libraries
from servers import Collector, Kafka, OpenSearch, Prometheus, Unavailable, fetched
from sinks import until
from test_hub import asked
from test_kafka import read
from test_opensearch import documents
from test_otlp import Received, Web, received

from condor_joblens.export.sink_input import BRIEF_SECONDS
from condor_joblens.model.metrics import METRICS, MetricKind
from condor_joblens.sinks.otlp_messages import convention
from condor_joblens.sinks.schema import schemas

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pool"))
from harness import CACHE, Pool, started
from network import in_network_of

__all__ = ["Web", "received"]  # fixtures that pytest finds here

JOB = """
executable = /bin/sh
arguments = "-c 'for n in 1 2 3 4 5 6 7 8; do /bin/true; dd if=/dev/zero of=file bs=100k count=$n 2>/dev/null; sleep 1; done; exit 3'"
request_memory = 64M
queue 3
"""  # noqa: E501


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    # from the machine's network: the pool's own leads nowhere. What can't be had is said where it is asked for.
    for server in (Prometheus, Collector, Kafka, OpenSearch):
        with contextlib.suppress(Unavailable):
            fetched(server.name)
    with contextlib.suppress(Unavailable):
        libraries()
    name = os.environ.get("POOL") or "test-service"
    with started(name) as running, in_network_of(int((CACHE / "pools" / name / "pid").read_text())):
        yield running


@pytest.fixture(scope="module")
def collector(pool: Pool, folder: Path, server: Any, received: tuple[str, Received]) -> Iterator[Collector]:
    with server(Collector, folder / "collector", received[0]) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(pool: Pool, folder: Path, server: Any) -> Iterator[Prometheus]:
    with server(Prometheus, folder / "prometheus", "127.0.0.1:9753") as started:
        yield started


def _node(pool: Pool) -> str:
    """As its records have it."""
    return pool.shell("hostname").strip()


@pytest.fixture(scope="module")
def hub(pool: Pool, folder: Path, server: Any) -> Iterator[Hub]:
    with server(Hub, folder / "hub", [_node(pool)]) as started:
        yield started


@pytest.fixture(scope="module")
def told(
    pool: Pool, prometheus: Prometheus, collector: Collector, kafka: Kafka, opensearch: OpenSearch, hub: Hub
) -> Iterator[dict[str, Any]]:
    """What the exporter wrote to a file while three jobs ran and ended: record id -> record."""
    file = pool.root / "var/lib/joblens/records/records.jsonl"
    config = f"""
JOBLENS_SINKS = prometheus, file, kafka, opensearch, otlp, hub
JOBLENS_SINK_KAFKA_SERVERS = {kafka.plain}
JOBLENS_SINK_OPENSEARCH_URL = {opensearch.url}
JOBLENS_SINK_OTLP_URL = {collector.url}
JOBLENS_SINK_HUB_URL = {hub.url}
JOBLENS_SINK_HUB_TOKEN_FILE = /etc/joblens/hub.token
"""
    token = hub.tokens[_node(pool)]
    pool.run("install", "-m", "640", "-g", "joblens", "/dev/stdin", "/etc/joblens/hub.token", input=token)
    with pool.config(config):
        until(lambda: "page is at" in pool.log("JobLensExportLog"), "the exporter")
        until(lambda: file.exists(), "the file of records")
        since = time.time()
        cluster = pool.submit(JOB)
        pool.wait_running(cluster)
        assert hub.kill_one("store") and hub.kill_one("ingest"), "kill -9, while records come"
        pool.wait_ended(cluster)

        until(lambda: is_whole(of_cluster(file, cluster, since)), "all records of three jobs", 120)
        yield of_cluster(file, cluster, since)


def of_cluster(file: Path, cluster: int, since: float) -> dict[str, Any]:
    """Of its runs whose last numbers are there all records, and the losses since then."""
    whole = file.read_text().rpartition("\n")[0]  # the last line may be half there
    records = [json.loads(line) for line in whole.splitlines()]
    jobs = [record for record in records if record["Type"] == "job"]
    mine = {record["Run"] for record in jobs if record["JobId"].startswith(f"{cluster}.")}
    records = [record for record in records if record["Time"] >= since - 1]
    return {record["Id"]: record for record in records if record.get("Run") in mine or record.get("Kind") == "Loss"}


def is_whole(records: dict[str, Any]) -> bool:
    """Whether all that comes of three runs is there: what was lost of them is told of behind their last records."""
    kinds = [(record["Type"], record.get("Kind")) for record in records.values()]
    ended = min(len({record["Run"] for record in of(records, "job").values()}), kinds.count(("event", "RunEnd")))
    return ended == 3 and holes(records)[0] <= unseen(records)


def holes(records: dict[str, Any]) -> tuple[int, int]:
    """How many samples are missing between others of their runs; and how many if those at begins and ends count too.

    These are superseded by the next, which is no loss unless it takes long.
    """
    inner = edges = 0
    for run, end in {record["Run"]: record for record in of(records, "job").values()}.items():
        mine = [record for record in of(records, "sample").values() if record["Run"] == run]
        mine.sort(key=lambda record: int(record["Sequence"]))
        first, last = mine[0], mine[-1]
        inner += last["Sequence"] - first["Sequence"] + 1 - len(mine)
        if first["UpdateTime"] - first["StartTime"] > BRIEF_SECONDS:
            edges += first["Sequence"] - 1
        if end["UpdateTime"] - last["UpdateTime"] > BRIEF_SECONDS:
            edges += end["Sequence"] - last["Sequence"] - 1
    return inner, inner + edges


def unseen(records: dict[str, Any]) -> int:
    """How many samples were declared lost, as a round of a busy machine went by unseen."""
    return sum(record["Count"] for record in records.values() if record.get("Cause") == "unseen")


def of(told: dict[str, Any], *kinds: str) -> dict[str, Any]:
    """Of these kinds, without the losses: those are each sink's own."""
    return {n: record for n, record in told.items() if record["Type"] in kinds and record.get("Kind") != "Loss"}


def test_there_are_samples_of_each_job_its_last_numbers_and_its_events(told: dict[str, Any]) -> None:
    runs = {record["Run"] for record in of(told, "job").values()}
    assert len(runs) == 3
    for run in runs:
        mine = [record for record in told.values() if record.get("Run") == run]
        sequences = sorted(record["Sequence"] for record in mine if record["Type"] == "sample")
        assert len(sequences) >= 5 and len(set(sequences)) == len(sequences)
        kinds = [record["Kind"] for record in mine if record["Type"] == "event"]
        assert kinds.count("RunStart") == 1 and kinds.count("RunEnd") == 1
        assert kinds.count("Exec") >= 16 and kinds.count("Exit") >= 16
        (end,) = [record for record in mine if record.get("Kind") == "RunEnd"]
        assert end["ExitCode"] == 3
    least, most = holes(told)
    # on a machine that is too busy, a round can go by unseen: never in silence, sometimes told of twice
    assert least <= unseen(told) <= 2 * most


def test_every_record_fits_the_published_schema(told: dict[str, Any]) -> None:
    checks = {kind.value: jsonschema.Draft202012Validator(schema) for kind, schema in schemas().items()}
    for record in told.values():
        checks[record["Type"]].validate(record)


def test_kafka_has_each_record_once(told: dict[str, Any], kafka: Kafka, pool: Pool) -> None:
    for kind, topic in (("sample", "samples"), ("event", "events"), ("job", "jobs")):
        wanted = of(told, kind)
        found = until(lambda t=topic, w=wanted: _whole(kafka, pool, f"joblens.{t}", w), f"all of joblens.{topic}")
        assert {name: found[name] for name in wanted} == wanted


def _whole(kafka: Kafka, pool: Pool, topic: str, wanted: dict[str, Any]) -> dict[str, Any] | None:
    records = read(kafka, topic)
    # what a busy broker does not confirm in time comes again: never in silence, and as it was
    has_failed = "the sink kafka does not work for now" in pool.log("JobLensExportLog")
    found: dict[str, Any] = {}
    for record in records:
        value = json.loads(record.value)
        assert has_failed or value["Id"] not in found
        assert record.key.decode() == value.get("GlobalJobId", value["Node"])
        assert found.setdefault(value["Id"], value) == value
    return found if set(wanted) <= set(found) else None


def test_opensearch_has_each_record_once(told: dict[str, Any], opensearch: OpenSearch) -> None:
    wanted = of(told, "sample", "event", "job")
    found = until(
        lambda: set(wanted) <= set(documents(opensearch, "joblens-*")) and documents(opensearch, "joblens-*"),
        "all documents",
    )
    assert {name: found[name] for name in wanted} == wanted


def test_the_hub_has_each_record_once_though_it_was_killed(told: dict[str, Any], hub: Hub) -> None:
    """Its store and what takes records were ended by kill -9 meanwhile: what was not confirmed came again."""
    for kind, table in (("sample", "samples"), ("job", "jobs"), ("event", "events")):
        wanted = of(told, kind)

        def kept(table: str = table, wanted: dict[str, Any] = wanted) -> dict[str, Any] | None:
            rows = {row["Id"]: row for row in asked(hub, f"SELECT * FROM {table} FINAL")}
            return rows if set(wanted) <= set(rows) else None

        found = until(kept, f"all of {table}", 300)  # a sink that was refused waits a while
        (counted,) = asked(hub, f"SELECT count() AS n, uniqExact(Id) AS ids FROM {table} FINAL")
        assert counted["n"] == counted["ids"]
        for name, record in wanted.items():
            if kind == "event":
                assert json.loads(found[name]["Whole"]) == record
            else:
                assert found[name]["Sequence"] == record["Sequence"]
                assert found[name]["Cpu"]["Seconds"] == record["Cpu"]["Seconds"]


def test_the_collector_has_each_number_and_each_event_once(
    told: dict[str, Any], received: tuple[str, Received]
) -> None:
    events = of(told, "event")
    until(lambda: set(events) <= set(received[1].events()), "all events")
    wanted: dict[tuple[Any, ...], Any] = {}
    for record in of(told, "sample", "job").values():
        nanoseconds = record["UpdateTime"] * 10**9 + record["Sequence"]
        for metric in METRICS:
            name, _, labels = convention(metric)
            value: Any = record
            for part in metric.path.split("."):
                value = value.get(part) if value is not None else None
            assert wanted.setdefault((record["Run"], nanoseconds, name, tuple(sorted(labels.items()))), value) == value
    known = {point for point, value in wanted.items() if value is not None}
    until(lambda: known <= received[1].points().keys(), "all numbers")
    points = received[1].points()
    assert {point: points.get(point) for point in wanted} == wanted


def test_prometheus_has_seen_nothing_but_what_was_told(told: dict[str, Any], prometheus: Prometheus) -> None:
    samples: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for record in of(told, "sample", "job").values():
        mine = samples.setdefault(record["JobId"], {})
        for metric in METRICS:
            if metric.kind is MetricKind.COUNTER and metric.label is None:
                value = record.get(metric.group, {}).get(metric.name)
                if value is not None:
                    mine.setdefault(metric.family + "_total", []).append((record["Sequence"], value))
    seen = 0
    for name in {name for values in samples.values() for name in values}:
        query = urllib.parse.urlencode({"query": f"{name}[1h]"})
        with urllib.request.urlopen(f"{prometheus.url}/api/v1/query?{query}", timeout=20) as answer:
            for series in json.loads(answer.read())["data"]["result"]:
                known = samples[series["metric"]["job_id"]][name]
                for _, value in series["values"]:
                    assert was_told(float(value), known), (name, value, known)
                    seen += 1
    assert seen > 100


def was_told(value: float, known: list[tuple[int, float]]) -> bool:
    """Whether a record of the run has this value of a counter, or it can be of a round that went by unseen.

    known: sequences and values. A round that is missing lies between two that are there, or before the first.
    """
    rounds = sorted([(0, 0.0), *known])
    between = [(least, most) for (before, least), (after, most) in zip(rounds, rounds[1:]) if after > before + 1]
    exact = [(one, one) for _, one in known]
    return any(least - 1e-6 < value < most + 1e-6 for least, most in [*exact, *between])
