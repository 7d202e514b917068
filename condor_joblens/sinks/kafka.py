"""Records to Kafka: a topic for each kind, keyed by GlobalJobId, so that what happens to a job stays in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import (
    DeliveryResult,
    Diagnosis,
    Record,
    RecordKind,
    Sink,
    SinkContext,
    SinkKnob,
    macro_of,
    not_now,
    parsers,
    secret,
    tls,
)
from condor_joblens.sinks.kafka_confined import ConfinedProducer
from condor_joblens.sinks.kafka_diagnosis import examine, overheard
from condor_joblens.sinks.kafka_producer import (
    COMPRESSIONS,
    FORBIDDEN,
    MECHANISMS,
    SECURITIES,
    RefusedByBroker,
    Settings,
    read_settings,
    why,
)


def _topic(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value) or value in (".", ".."):
        raise ValueError("a topic: letters, digits, . _ and -")
    return value


def _optional_topic(value: str) -> str:
    return _topic(value) if value else ""


class KafkaSink(Sink):
    """Delivered is what all replicas in sync have confirmed."""

    name = "kafka"
    knobs = (
        SinkKnob("SERVERS", None, parsers.servers(9092), "HOST:PORT, ...", "some brokers of the cluster"),
        SinkKnob("SECURITY", "plaintext", parsers.choice(*SECURITIES), "word", "how brokers are spoken to"),
        SinkKnob("MECHANISM", "SCRAM-SHA-512", parsers.choice(*MECHANISMS), "word", "how the password is shown (SASL)"),
        SinkKnob("USER", "", parsers.text, "name", "whom to log in as (SASL)"),
        SinkKnob("PASSWORD_FILE", "", secret.path, "file", "where that user's password stands"),
        *tls.client_knobs("brokers"),
        SinkKnob(
            "COMPRESSION",
            "gzip",
            parsers.choice(*COMPRESSIONS),
            "word",
            "of batches: none, gzip; lz4, zstd and snappy where their Python packages are (EXTRAS=kafka,compression)",
        ),
        SinkKnob("TOPIC_SAMPLES", "joblens.samples", _topic, "topic", "where a run's numbers go"),
        SinkKnob("TOPIC_EVENTS", "joblens.events", _topic, "topic", "where events go"),
        SinkKnob("TOPIC_JOBS", "joblens.jobs", _topic, "topic", "where a run's last numbers go"),
        SinkKnob("TOPIC_HEALTH", "joblens.health", _topic, "topic", "where the exporter's own health goes"),
        SinkKnob(
            "TOPIC_PROFILES",
            "",
            _optional_topic,
            "topic",
            "where profiles of jobs at level profile go, with names of their functions and files; empty: nowhere",
        ),
        SinkKnob(
            "PARTITIONS",
            "-1",
            parsers.integer(-1, 10000),
            "partitions",
            "of a topic that is not there and has to be made; -1: as the cluster makes them",
        ),
        SinkKnob("TIMEOUT", "10", parsers.integer(2, 25), "seconds", "how long a record may take to be confirmed"),
    )

    @classmethod
    def wanted(cls, settings: Mapping[str, Any]) -> frozenset[RecordKind]:
        """Profiles too, if they have a topic."""
        return cls.takes | ({RecordKind.PROFILE} if settings["topic_profiles"] else set())

    def __init__(self, settings: Mapping[str, Any], context: SinkContext) -> None:
        super().__init__(settings, context)
        topics = {
            RecordKind.SAMPLE: settings["topic_samples"],
            RecordKind.EVENT: settings["topic_events"],
            RecordKind.JOB: settings["topic_jobs"],
            RecordKind.HEALTH: settings["topic_health"],
            RecordKind.PROFILE: settings["topic_profiles"],
        }
        self._topics = {kind: topics[kind] for kind in self.wanted(settings)}
        self._producer: ConfinedProducer | None = None

    def start(self) -> None:
        """Reads password and certificates; the brokers are looked for with the first batch."""
        settings = read_settings(self.settings)
        settings.tls()
        settings.check_compression()
        self._producer = ConfinedProducer(self.settings, set(self._topics.values()), self.context.log)

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """In order; what follows something that was not confirmed is not tried."""
        assert self._producer is not None
        try:
            results = self._producer.send(
                [(self._topics[record.kind], record.key.encode(), record.json) for record in batch]
            )
        except JobLensError as error:
            return not_now(batch, str(error))
        refused = {position: str(error) for position, error in enumerate(results) if isinstance(error, RefusedByBroker)}
        retry = [position for position, error in enumerate(results) if error and position not in refused]
        return DeliveryResult(retry, refused, str(results[retry[0]]) if retry else "")

    @property
    def child_pid(self) -> int:
        """The process in which Kafka's client runs; 0 if there is none."""
        return self._producer.pid if self._producer else 0

    def close(self, seconds: float) -> None:
        """Ends the connections."""
        if self._producer is not None:
            self._producer.close(seconds)

    def check(self) -> Iterator[Diagnosis]:
        """Files, then the way to each broker, then the user, then each topic."""
        try:
            settings = read_settings(self.settings)
            encryption = settings.tls()
            settings.check_compression()
        except JobLensError as error:
            yield Diagnosis.of(error)
            return
        reached = False
        for address in settings.brokers:
            try:
                examine(address, encryption, settings.sasl)
                reached = True
                yield Diagnosis(True, f"the broker {address} answers")
            except JobLensError as error:
                yield Diagnosis.of(error)
        if reached:
            yield from self._check_topics(settings)

    def _check_topics(self, settings: Settings) -> Iterator[Diagnosis]:
        with overheard() as said:
            try:
                admin = KafkaAdminClient(**settings.client())
            except (kafka_errors.KafkaError, OSError) as error:
                reason = why(settings, said) or f"the brokers can't be used: {printable(str(error), 200)}"
                yield Diagnosis(False, reason, f"correct {macro_of(self.name, 'USER')} and _PASSWORD_FILE")
                return
        try:
            known = set(admin.list_topics())
            for topic in sorted({*self._topics.values()}):
                yield _check_topic(admin, topic, topic in known, settings)
        except kafka_errors.KafkaError as error:
            yield Diagnosis(False, f"the brokers don't list their topics: {printable(str(error), 200)}")
        finally:
            admin.close()


def _check_topic(admin: KafkaAdminClient, topic: str, known: bool, settings: Settings) -> Diagnosis:
    if known:
        return Diagnosis(True, f"the topic {topic} is there")
    options = {topic: {"num_partitions": settings.partitions, "replication_factor": -1}}
    try:
        admin.create_topics(options, timeout_ms=5000, validate_only=True)
    except kafka_errors.KafkaError as error:
        denied = isinstance(error, FORBIDDEN)
        reason = "we may not create it" if denied else f"it can't be made: {printable(str(error), 200)}"
        return Diagnosis(False, f"there is no topic {topic}, and {reason}", "create it, or allow its creation")
    return Diagnosis(True, f"there is no topic {topic} yet: it will be made")
