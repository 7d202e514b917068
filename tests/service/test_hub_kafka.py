"""The hub takes records from a real broker: once each, whatever is killed, whoever writes to the topics."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exporter import Exporter, Node
from hub_server import Hub, ask
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from servers import Kafka
from sinks import deliver, make, runs, until
from test_hub import asked

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.ingest.kafka import connect
from condor_joblens.hub.ingest.kafka_settings import read_settings
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.kafka import KafkaSink

GROUP = "hub-of-tests"


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any, kafka: Kafka) -> Iterator[Hub]:
    text = f"[kafka]\nservers = {kafka.plain}\ngroup = {GROUP}\nnodes = node1, *.example.org\n"
    with server(Hub, folder / "hub", nodes=("node2",), kafka=text) as started:
        yield started


@pytest.fixture(scope="module")
def sink(kafka: Kafka) -> Iterator[Any]:
    made = make(KafkaSink, SERVERS=kafka.plain, PARTITIONS="3")
    made.start()
    deliver(made, records("0", 1, 1))  # from here on the topic is there, however often a broker that is new was asked
    yield made
    made.close(2)


def records(name: str, count: int, sequence: int, node: str = "node1") -> list[Record]:
    """One of each of `count` runs of the cluster `name`, of now."""
    rows = runs(count, sequence)
    for number in range(count):
        rows["global_job_id"][number] = f"ap.example.org#{name}.{number}#1700000000"
        rows["run"][number] = f"ap.example.org#{name}.{number}#1700000000#1"
    rows["update_time"] = int(time.time())
    return RowEncoder(node).records(rows, RecordKind.SAMPLE)


def told(job: str, node: str, moment: float, sequence: int) -> Record:
    """A record of one run that a topic's writer made: as the exporter's, with another job, node and time."""
    (made,) = records("x", 1, sequence, node)
    run = f"{job}#1"
    fields = json.loads(made.json) | {"GlobalJobId": job, "Run": run, "Time": moment, "UpdateTime": int(moment)}
    fields["Id"] = f"{run}/{fields['RunNumber']}/{fields['Sequence']}"
    return Record(RecordKind.SAMPLE, fields["Id"], job, moment, json.dumps(fields).encode(), frozenset())


def kept(hub: Hub, name: str) -> dict[str, Any]:
    (found,) = asked(
        hub,
        "SELECT count() AS n, uniqExact(Id) AS ids FROM samples FINAL WHERE GlobalJobId LIKE {like:String}",
        like=f"ap.example.org#{name}.%",
    )
    return found


def all_taken(kafka: Kafka) -> bool:
    """Whether the group has committed all that the topics have."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.plain, group_id=GROUP, enable_auto_commit=False)
    try:
        topics = [topic for topic in consumer.topics() if topic.startswith("joblens.")]
        parts = [TopicPartition(topic, part) for topic in topics for part in consumer.partitions_for_topic(topic)]
        ends = consumer.end_offsets(parts)
        return all((consumer.committed(part) or 0) >= ends[part] for part in parts)
    finally:
        consumer.close()


@pytest.mark.usefixtures("sink")
def test_what_an_exporter_sends_is_kept_once_though_the_consumer_is_killed(hub: Hub, kafka: Kafka, place: Path) -> None:
    """A real exporter, and kill -9 of what takes its records, again and again in the middle."""
    node = Node(place / "node", 200)
    with Exporter(place, node, JOBLENS_SINKS="kafka", JOBLENS_SINK_KAFKA_SERVERS=kafka.plain) as exporter:

        def comes() -> bool:
            node.publish()
            return length(kafka, "joblens.samples") > 200

        until(comes, "the first samples")
        kills = 0
        for _ in range(12):
            node.publish()
            node.happen(500)
            kills += hub.kill_one("kafka")
            time.sleep(0.5)
        exporter.stop()
    assert kills > 1
    until(lambda: all_taken(kafka), "all of it to be taken", 180)
    for topic, table, least in (("joblens.samples", "samples", 400), ("joblens.events", "events", 5000)):
        # of other tests' nodes there can be runs of the same names
        sent = {(record["Node"], record["Id"]) for record in map(json.loads, values_of(kafka, topic))}
        found = [(row["Node"], row["Id"]) for row in hub.ask(f"SELECT Node, Id FROM {table} FINAL")]
        assert len(sent) >= least and len(found) == len(set(found)) and set(found) == sent, table


def length(kafka: Kafka, topic: str) -> int:
    """Records that are there."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.plain, enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        return sum(consumer.end_offsets(parts).values())
    finally:
        consumer.close()


def values_of(kafka: Kafka, topic: str) -> list[bytes]:
    """All that a topic has."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.plain, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(parts)
        ends, found = consumer.end_offsets(parts), []
        while any(consumer.position(part) < ends[part] for part in parts):
            for polled in consumer.poll(timeout_ms=500).values():
                found += [record.value for record in polled]
        return found
    finally:
        consumer.close()


def test_while_the_store_is_gone_records_wait(hub: Hub, kafka: Kafka, sink: Any) -> None:
    """The store is killed while batches come; each record is there in the end, once."""
    kills = 0
    for sequence in range(1, 13):
        assert deliver(sink, records("9002", 50, sequence)) == []
        if sequence % 3 == 0:
            kills += hub.kill_one("store")
    until(hub.answers, "the hub")
    until(lambda: all_taken(kafka), "all of it to be taken", 180)
    assert kills and kept(hub, "9002") == {"n": 600, "ids": 600}


def test_what_anybody_writes_to_a_topic_stops_nobody(hub: Hub, kafka: Kafka, sink: Any) -> None:
    """Garbage, bombs, a node with a token, names that no node has, and rows that the store can't take."""
    producer = KafkaProducer(bootstrap_servers=kafka.plain, compression_type="gzip", max_request_size=1 << 28)
    (good,) = records("9003", 1, 1)
    odd = good.json.replace(b'"Cpu":{', b'"Cpu":{"Seconds":"odd","No":{', 1) + b"}"
    others = [records("9003", 1, 2, "node2")[0].json, records("9003", 1, 3, "elsewhere.net")[0].json]
    hostile = [b"\xff garbage", b"[" * 100_000, bytes(40 << 20), *others, odd]
    for value in hostile:
        producer.send("joblens.samples", value, b"key").get(timeout=60)
    producer.send("joblens.events", good.json, b"key").get(timeout=60)
    producer.close()
    assert deliver(sink, records("9003", 5, 4)) == []
    until(lambda: all_taken(kafka), "all of it to be taken", 180)
    assert kept(hub, "9003") == {"n": 5, "ids": 5}
    until(lambda: "records were refused" in hub.log.read_text(), "a word of what was refused", 180)


def test_what_the_queue_contradicts_is_kept_apart_and_said(hub: Hub, kafka: Kafka, sink: Any) -> None:
    """One job runs where its record says, one does not, one has moved since the queue was asked, one is in no queue."""
    begin = int(time.time()) - 3600

    def queue(**hosts: str) -> None:
        lines = (f'"ap#{job[1:]}.0#5" "slot1_1@{host}" {begin}\n' for job, host in hosts.items())
        (hub.folder / "queue.new").write_text("".join(lines))
        (hub.folder / "queue.new").rename(hub.folder / "queue")

    def nodes(table: str, where: str = "1") -> set[tuple[str, str]]:
        rows = hub.ask(f"SELECT GlobalJobId, Node FROM {table} FINAL WHERE GlobalJobId LIKE 'ap#910%' AND {where}")
        return {(row["GlobalJobId"], row["Node"]) for row in rows}

    queue(j9101="node1", j9102="node1", j9103="ep3.example.org")
    assert hub.kill_one("kafka")  # it asks the queue before it takes anything
    until(lambda: hub.kill_one("kafka"), "it to be started again")  # in the middle of that, perhaps
    earlier, apart = time.time() - 600, {("ap#9102.0#5", "ep2.example.org")}
    sent = [told("ap#9101.0#5", "node1", earlier, 1), told("ap#9102.0#5", "ep2.example.org", earlier, 2)]
    assert deliver(sink, sent) == []
    until(lambda: nodes("doubted", "Judged = 2") == apart, "what contradicts", 180)
    (hub.folder / "queue").unlink()  # it can't be asked again until there is a new one
    now = time.time()
    sent = [told("ap#9103.0#5", "node1", now - 30, 3), told("ap#9104.0#5", "node1", now - 30, 4)]
    assert deliver(sink, sent) == []
    until(lambda: all_taken(kafka), "all of it to be taken", 180)
    assert nodes("doubted", "Judged = 0") >= {("ap#9103.0#5", "node1")}
    queue(j9101="node1", j9102="node1", j9103="node1")
    right = {("ap#9101.0#5", "node1"), ("ap#9103.0#5", "node1"), ("ap#9104.0#5", "node1")}
    until(lambda: nodes("samples") == right, "the one that has moved", 300)
    assert nodes("doubted", "Judged = 2") == apart and nodes("latest") == right
    until(lambda: "warning: 1 records from Kafka contradict the queue" in hub.log.read_text(), "the warning", 180)
    hub.people.write_text("[adam]\nrole = administrator\nlogin = remote:adam\n")
    assert "1 records of the last day name nodes where the queue does not have these jobs" in ask(hub, "adam", "/")[2]


def connected(file: Path) -> Any:
    """A consumer by these settings. A broker that speaks TLS for the first time may take longer than one try lasts."""
    settings = read_settings(str(file))

    def found() -> Any:
        with contextlib.suppress(KafkaError):
            return connect(settings)
        return None

    return until(found, "a connection")


@pytest.mark.parametrize("how", ["password", "certificate"])
def test_brokers_that_want_to_know_who_asks_are_told(kafka: Kafka, sink: Any, folder: Path, how: str) -> None:
    assert deliver(sink, records("9004", 5, 1)) == []
    password, file = folder / "password", folder / f"by-{how}"
    password.write_text("alice-secret\n")
    as_whom = {
        "password": [f"servers = {kafka.sasl}", "security = sasl_ssl", "mechanism = PLAIN", "user = alice",
                     f"password_file = {password}"],
        "certificate": [f"servers = {kafka.mutual}", "security = ssl", f"certificate = {kafka.client[0]}",
                        f"key = {kafka.client[1]}"],
    }[how]  # fmt: skip
    file.write_text("\n".join(["[kafka]", f"authority = {kafka.authority}", f"group = by-{how}", *as_whom]))
    consumer = connected(file)
    try:
        until(lambda: consumer.poll(timeout_ms=500), "records")
    finally:
        consumer.close()
