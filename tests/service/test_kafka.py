"""The Kafka sink with a real broker: what is delivered, what happens when the broker fails, and what it says of wrong
settings."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition, codec
from kafka.errors import KafkaTimeoutError, MetadataEmptyBrokerList
from kafka.partitioner.default import murmur2
from servers import SECONDS, Kafka, certificate, free_port
from sinks import complaints, deliver, make, record, until

from condor_joblens.common.errors import JobLensError
from condor_joblens.sinks import Record, RecordKind, Sink
from condor_joblens.sinks.kafka import KafkaSink


def read(kafka: Kafka, topic: str) -> list[Any]:
    """All that is in a topic now; a broker that has just come back is given time."""
    for _ in range(10):
        try:
            return _read(kafka, topic)
        except (MetadataEmptyBrokerList, KafkaTimeoutError):
            time.sleep(1)
    return _read(kafka, topic)


def _read(kafka: Kafka, topic: str) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=kafka.plain, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        found: list[Any] = []
        while any(consumer.position(part) < ends[part] for part in parts):
            for records in consumer.poll(timeout_ms=500).values():
                found += records
        return found
    finally:
        consumer.close()


def ids(found: list[Any]) -> list[str]:
    return [json.loads(record.value)["Id"] for record in found]


@pytest.fixture
def secrets(folder: Path) -> dict[str, str]:
    paths = {}
    for user in ("alice", "bob", "carol", "mallory"):
        path = folder / f"{user}.password"
        path.write_text(f"{user}-secret\n")
        path.chmod(0o640)
        paths[user] = str(path)
    return paths


@pytest.fixture
def sink(kafka: Kafka) -> Iterator[Sink]:
    made = make(KafkaSink, SERVERS=kafka.plain, TIMEOUT="4")
    made.start()
    yield made
    made.close(2)


def topic(name: str) -> dict[str, str]:
    kinds = ("SAMPLES", "EVENTS", "JOBS", "HEALTH", "PROFILES")
    return {f"TOPIC_{kind}": f"{name}.{kind.lower()}" for kind in kinds}


def test_each_kind_has_a_topic_and_a_job_stays_in_order(kafka: Kafka, sink: Sink) -> None:
    deliver(sink, [record(0)])  # a broker that is new is slow to make its first topics
    log: list[str] = []
    ordered = make(KafkaSink, log, SERVERS=kafka.plain, PARTITIONS="4", **topic("order"))
    ordered.start()
    batch = [record(number, kind, job=number % 7) for number in range(300) for kind in RecordKind]
    assert deliver(ordered, batch) == []
    ordered.close(5)
    assert sum("it is now" in line for line in log) == 5
    for kind, name in zip(RecordKind, ("samples", "events", "jobs", "health", "profiles")):
        found = read(kafka, f"order.{name}")
        mine = [one for one in batch if one.kind is kind]
        assert sorted(ids(found)) == sorted(one.id for one in mine)
        for job in range(7):
            of_job = [one for one in mine if one.fields()["Run"].startswith(f"ap.example.org#{job}.0#")]
            same = [one for one in found if one.key == of_job[0].key.encode()]
            assert [one.value for one in same] == [one.json for one in of_job]
            # the partition in which every other Kafka client would look for it
            assert {one.partition for one in same} == {(murmur2(of_job[0].key.encode()) & 0x7FFFFFFF) % 4}


CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""As the attributes of a batch have it, the two bytes 21 bytes behind its begin."""


@pytest.mark.parametrize("compression", CODECS)
def test_by_each_compression(kafka: Kafka, compression: str) -> None:
    names = topic(f"packed.{compression}")
    sink = make(KafkaSink, SERVERS=kafka.plain, COMPRESSION=compression, **names)
    assert all(one.ok for one in sink.check())
    sink.start()
    batch = [record(number, more="word " * 20) for number in range(50)]
    assert deliver(sink, batch) == []
    sink.close(5)
    assert [one.value for one in read(kafka, names["TOPIC_EVENTS"])] == [one.json for one in batch]
    (log,) = (kafka.folder / "data" / f"{names['TOPIC_EVENTS']}-0").glob("*.log")
    assert int.from_bytes(log.read_bytes()[21:23], "big") & 7 == CODECS[compression]


@pytest.mark.parametrize("compression, package", [("zstd", "zstandard"), ("lz4", "lz4"), ("snappy", "python-snappy")])
def test_a_compression_whose_package_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, compression: str, package: str
) -> None:
    monkeypatch.setattr(codec, compression, None)
    sink = make(KafkaSink, SERVERS="127.0.0.1:1", COMPRESSION=compression)
    expected = f"JOBLENS_SINK_KAFKA_COMPRESSION = {compression} needs the Python package {package}"
    with pytest.raises(JobLensError, match=expected) as raised:
        sink.start()
    assert "EXTRAS=kafka,compression, or set gzip" in str(raised.value) and "\n" not in str(raised.value)
    assert complaints(sink) == [str(raised.value)]


@pytest.mark.parametrize("user, mechanism", [("alice", "PLAIN"), ("bob", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-512")])
def test_by_password_over_tls(kafka: Kafka, secrets: dict[str, str], user: str, mechanism: str) -> None:
    names = topic(mechanism)
    sink = make(
        KafkaSink, SERVERS=kafka.sasl, SECURITY="sasl_ssl", AUTHORITY=str(kafka.authority), USER=user,
        PASSWORD_FILE=secrets[user], MECHANISM=mechanism, **names,
    )  # fmt: skip
    sink.start()
    deliver(sink, [record(1), record(2)])  # a broker is slow the first time that it speaks TLS, or checks a password
    sink.close(5)
    assert set(ids(read(kafka, names["TOPIC_EVENTS"]))) == {"event-1", "event-2"}


def reasons_until(sink: Sink, cause: str) -> list[str]:
    """Why nothing is delivered, up to the reason that names the cause: a broker on a busy machine may first be slow."""
    found: list[str] = []

    def is_named() -> bool:
        outcome = sink.deliver([record(3)])
        assert list(outcome.retry) == [0], outcome
        found.append(outcome.reason)
        return cause in outcome.reason

    until(is_named, f"the cause {cause!r}", 120, found)
    return found


def complaints_until(sink: Sink, cause: str) -> list[str]:
    """All complaints of the check that names the cause: see `reasons_until`."""
    found: list[list[str]] = []

    def is_named() -> bool:
        found.append(complaints(sink))
        return any(cause in line for line in found[-1])

    until(is_named, f"the complaint {cause!r}", 120, found)
    return found[-1]


SLOW = ("does not answer within", "does not end the TLS handshake", "says nothing")
"""What is said of a broker that is too slow for a step: it says nothing of a certificate."""


def test_by_client_certificate(kafka: Kafka) -> None:
    ours, key = map(str, kafka.client)
    names = topic("mutual")
    trusted = {"SERVERS": kafka.mutual, "SECURITY": "ssl", "AUTHORITY": str(kafka.authority), **names}
    sink = make(KafkaSink, CERTIFICATE=ours, KEY=key, **trusted)
    sink.start()
    deliver(sink, [record(1), record(2)])
    until(lambda: complaints(sink) == [], "nothing to complain of")
    sink.close(5)
    assert set(ids(read(kafka, names["TOPIC_EVENTS"]))) == {"event-1", "event-2"}
    stranger, strangers_key = map(str, certificate(kafka.folder / "tls", "stranger"))
    for shown in ({}, {"CERTIFICATE": stranger, "KEY": strangers_key}):
        sink = make(KafkaSink, **trusted, **shown)
        sink.start()
        *before, _ = reasons_until(sink, "client certificate")
        sink.close(1)
        assert all(any(words in one for words in SLOW) for one in before), before
        assert complaints_until(sink, "client certificate")
    assert set(ids(read(kafka, names["TOPIC_EVENTS"]))) == {"event-1", "event-2"}


def refused(sink: Sink, batch: list[Record]) -> dict[str, str]:
    """Id -> why the broker does not take it. All others are delivered, if need be again on a busy machine."""
    found: dict[str, str] = {}
    left, said = list(batch), list[str]()

    def is_done() -> bool:
        outcome = sink.deliver(left)
        found.update({left[place].id: why for place, why in outcome.refused.items()})
        left[:] = [left[place] for place in outcome.retry]
        said.append(outcome.reason)
        return not left

    until(is_done, "the whole batch", 120, said)
    return found


def test_what_is_too_long_is_refused_alone(sink: Sink) -> None:
    found = refused(sink, [record(1), record(2, more="x" * 10_000_000), record(3)])
    assert list(found) == ["event-2"] and "MessageSizeTooLarge" in found["event-2"]


def test_what_the_broker_finds_too_long_is_refused_alone(kafka: Kafka, sink: Sink) -> None:
    from kafka import KafkaAdminClient

    deliver(sink, [record(0)])
    admin = KafkaAdminClient(bootstrap_servers=kafka.plain)
    small = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "2000"}}
    admin.create_topics({"small": small}, wait_for_metadata=True)
    admin.close()
    limited = make(KafkaSink, SERVERS=kafka.plain, COMPRESSION="none", TOPIC_EVENTS="small")
    limited.start()
    batch = [record(number, more="x" * (3000 if number == 5 else 300)) for number in range(12)]
    found = refused(limited, batch)
    limited.close(2)
    assert list(found) == ["event-5"], found
    assert set(ids(read(kafka, "small"))) == {one.id for one in batch if one is not batch[5]}


# Faults of the broker


def flood(sink: Sink, stop: threading.Event, sent: list[Record], reasons: list[str]) -> None:
    """Hands in batch after batch, in its own thread as the exporter does."""
    while not stop.is_set():
        batch = [record(len(sent) + number, job=number % 5) for number in range(200)]
        deliver(sink, batch, SECONDS, reasons)  # as long as the broker may take to be there again
        sent += batch
        time.sleep(0.05)  # others want the CPU as well


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_broker_that_is_killed_or_freezes_under_load_loses_nothing(kafka: Kafka, fault: str) -> None:
    names = topic(fault)
    sink = make(KafkaSink, SERVERS=kafka.plain, TIMEOUT="2", PARTITIONS="2", **names)
    sink.start()
    sent: list[Record] = []
    reasons: list[str] = []
    stop = threading.Event()
    thread = threading.Thread(target=flood, args=(sink, stop, sent, reasons))
    thread.start()
    try:
        until(lambda: len(sent) >= 1000, "the first thousand", SECONDS, reasons)
        if fault == "killed":
            kafka.kill()
        else:
            kafka.freeze()
        until(lambda: reasons, "somebody to notice", SECONDS)
        if fault == "killed":
            kafka.start()
        else:
            kafka.thaw()
        before = len(sent)
        until(lambda: len(sent) >= before + 1000, "a thousand more", SECONDS, reasons)
    finally:
        stop.set()
        thread.join(SECONDS)
    sink.close(5)
    found = ids(read(kafka, names["TOPIC_EVENTS"]))
    assert set(found) == {one.id for one in sent}
    assert len(set(found)) == len(sent)
    assert all(reasons)


def test_with_the_broker_gone_a_batch_comes_back_in_time_and_threads_do_not_pile_up(kafka: Kafka, sink: Sink) -> None:
    deliver(sink, [record(1)])
    kafka.kill()
    try:
        counts = []
        for _ in range(3):
            outcome = sink.deliver([record(2)])
            assert list(outcome.retry) == [0] and "refused" in outcome.reason.lower(), outcome
            counts.append(threading.active_count())
        assert counts[-1] <= counts[0]
    finally:
        kafka.start()
    assert isinstance(deliver(sink, [record(2)]), list)


# Wrong settings, each named by its own cause


class Web(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Not a word."""


@pytest.fixture
def web(serve: Any) -> str:
    return str(serve(Web)).removeprefix("http://")


def wrong(case: str, kafka: Kafka, secrets: dict[str, str], web: str) -> dict[str, str]:
    right = {
        "SERVERS": kafka.sasl, "SECURITY": "sasl_ssl", "AUTHORITY": str(kafka.authority), "MECHANISM": "PLAIN",
        "USER": "alice", "PASSWORD_FILE": secrets["alice"],
    }  # fmt: skip
    changes = {
        "name": {"SERVERS": "no-such-host.invalid:9092"},
        "port": {"SERVERS": f"127.0.0.1:{free_port()}"},
        "http": {"SERVERS": web, "SECURITY": "plaintext"},
        "http over tls": {"SERVERS": web},
        "tls at a plain port": {"SERVERS": kafka.plain},
        "plain at a tls port": {"SECURITY": "plaintext"},
        "authority": {"AUTHORITY": ""},
        "password": {"PASSWORD_FILE": secrets["mallory"]},
        "scram password": {"USER": "bob", "MECHANISM": "SCRAM-SHA-512", "PASSWORD_FILE": secrets["mallory"]},
        "mechanism at a plain port": {"SERVERS": kafka.plain, "SECURITY": "sasl_plaintext"},
        "topic": {"USER": "carol", "PASSWORD_FILE": secrets["carol"], "TOPIC_EVENTS": "never-made"},
    }
    return {**right, **changes[case]}


CAUSES = {
    "name": "does not resolve",
    "port": "nothing listens there",
    "http": "answers in HTTP",
    "http over tls": "does not speak TLS",
    "tls at a plain port": "does not speak TLS",
    "plain at a tls port": "wants TLS",
    "authority": "certificate that is not trusted",
    "password": "the user alice",
    "scram password": "the user bob",
    "mechanism at a plain port": "wants no password at this port",
    "topic": "does not let",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CAUSES)
def test_a_wrong_setting_is_named_by_its_cause(case: str, kafka: Kafka, secrets: dict[str, str], web: str) -> None:
    settings = wrong(case, kafka, secrets, web)
    sink = make(KafkaSink, **settings)
    sink.start()
    said = reasons_until(sink, CAUSES[case])
    sink.close(1)
    said += complaints_until(make(KafkaSink, **settings), "may not create it" if case == "topic" else CAUSES[case])
    assert "secret" not in "".join(said)


def test_what_is_right_is_said_to_be(kafka: Kafka) -> None:
    found = list(make(KafkaSink, SERVERS=kafka.plain, TOPIC_EVENTS="not-yet").check())
    assert all(one.ok for one in found), found
    assert any("not-yet yet: it will be made" in one.text for one in found)
