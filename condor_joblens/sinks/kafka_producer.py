"""A Kafka producer that says for every record what became of it, in bounded time and memory.

What kafka-python does not do by itself, and is done here:
- its buffer has no bound: no more than _IN_FLIGHT bytes are handed to it before they are confirmed;
- it does not recover from a broker that froze: after a timeout a new one is made;
- it hides why it can't connect: see kafka_diagnosis;
- its constructor, `send` to an unknown topic and `close` can block for long: all have deadlines here.
"""

from __future__ import annotations

import contextlib
import functools
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer, codec
from kafka import errors as kafka_errors
from kafka.partitioner.default import murmur2
from kafka.record import default_records

from condor_joblens.common.compression import gzipped
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import macro_of, secret, tls
from condor_joblens.sinks.kafka_diagnosis import examine, overheard, refusal, silence

SECURITIES = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
COMPRESSIONS = ("none", "gzip", "lz4", "zstd", "snappy")
_PACKAGES = {"lz4": "lz4", "zstd": "zstandard", "snappy": "python-snappy"}

# kafka-python's own is at the greatest effort, which takes six times as long as the least and can't be set
default_records.gzip_encode = gzipped

_IN_FLIGHT = 4 << 20  # bytes
_BATCH = 256 << 10  # bytes of a batch: well below the 1 MB that a broker takes unless set
_BOOTSTRAP_SECONDS = 3.0
_METADATA_SECONDS = 5.0
_EXAMINE_SECONDS = 10.0  # for the way to all brokers; one takes some seconds if it does not answer
_REFUSALS = (kafka_errors.MessageSizeTooLargeError, kafka_errors.InvalidRecordError, kafka_errors.InvalidTimestampError)
"""What is wrong with the record itself: sending it again is no use."""

FORBIDDEN = (kafka_errors.TopicAuthorizationFailedError, kafka_errors.ClusterAuthorizationFailedError)
"""What a broker says to whom it does not let do something."""


@dataclass(frozen=True)
class Settings:
    """How to reach a cluster, and as whom."""

    brokers: tuple[str, ...]
    security: str = "plaintext"
    mechanism: str = "PLAIN"
    user: str = ""
    password: str = ""
    tls: Callable[[], ssl.SSLContext | None] = lambda: None  # for a new connection; None: a plain one
    compression: str = "none"
    partitions: int = -1  # of topics that we have to make; -1: as the cluster does by itself
    timeout_seconds: float = 10.0  # for a record to be confirmed

    @property
    def sasl(self) -> str:
        """The SASL mechanism in use, empty for none."""
        return self.mechanism if self.security.startswith("sasl") else ""

    def check_compression(self) -> None:
        """Raises JobLensError where the package of the compression is not there."""
        package = _PACKAGES.get(self.compression)
        if package and not getattr(codec, f"has_{self.compression}")():
            raise JobLensError(
                f"{macro_of('kafka', 'COMPRESSION')} = {self.compression} needs the Python package {package}, which is "
                "not installed: make install EXTRAS=kafka,compression, or set gzip"
            )

    def client(self) -> dict[str, Any]:
        """The options that all clients of kafka-python have in common. Raises JobLensError."""
        options: dict[str, Any] = {
            "bootstrap_servers": list(self.brokers),
            "client_id": "joblens",
            "security_protocol": self.security.upper(),
            "ssl_context": self.tls(),
            "bootstrap_timeout_ms": int(_BOOTSTRAP_SECONDS * 1000),
            "request_timeout_ms": int(self.timeout_seconds * 500),
            "reconnect_backoff_max_ms": 1000,
        }
        if self.sasl:
            options.update(sasl_mechanism=self.sasl, sasl_plain_username=self.user, sasl_plain_password=self.password)
        return options


def read_settings(given: Mapping[str, Any]) -> Settings:
    """By the sink's knobs; the password is read from its file. Raises JobLensError."""
    sasl = given["security"].startswith("sasl")
    macro = macro_of("kafka")
    if sasl and not (given["user"] and given["password_file"]):
        needs = f"{macro}USER and {macro}PASSWORD_FILE"
        raise JobLensError(f"{macro}SECURITY = {given['security']} needs {needs}")
    plain = "" if given["security"].endswith("ssl") else f"SECURITY = {given['security']}"
    return Settings(
        brokers=tuple(given["servers"]),
        security=given["security"],
        mechanism=given["mechanism"],
        user=given["user"],
        password=secret.read(given["password_file"]) if sasl else "",
        tls=functools.partial(tls.client, "kafka", given, plain),
        compression=given["compression"],
        partitions=given["partitions"],
        timeout_seconds=given["timeout"],
    )


class _KafkaProducer(KafkaProducer):  # type: ignore[misc]  # it has no types
    def flush(self, timeout: float | None = None) -> None:
        """As it was, but what can't be flushed does not keep `close` from ending the threads."""
        with contextlib.suppress(kafka_errors.KafkaError):
            super().flush(timeout)


Message = tuple[str, bytes, bytes]
"""Topic, key, value."""


class RefusedByBroker(Exception):
    """The broker does not take this record, now or later."""


class Producer:
    """Sends, and waits for the confirmation of all replicas. For one thread; connects when it first has to."""

    def __init__(self, settings: Settings, topics: Iterable[str], log: Callable[[str], None]) -> None:
        self._settings, self._topics, self._log = settings, tuple(topics), log
        self._producer: _KafkaProducer | None = None
        self._partitions: dict[str, list[int]] = {}
        silence()

    def send(self, messages: Sequence[Message]) -> list[Exception | None]:
        """Sends the messages in order. Returns for each None if the broker confirmed it, else why not. RefusedByBroker
        is final; after any other error it may be sent again (and may be there already).

        Raises JobLensError where no broker can be reached, or does not want us; nothing was sent then.
        """
        results: list[Exception | None] = []
        while len(results) < len(messages):
            end, size = len(results), 0
            while end < len(messages) and (size == 0 or size + len(messages[end][2]) <= _IN_FLIGHT):
                size += len(messages[end][2])
                end += 1
            chunk = messages[len(results) : end]
            done = self._chunk(chunk)
            results += done
            if any(error and not isinstance(error, RefusedByBroker) for error in done):
                later = JobLensError("not tried: what was to be sent before it is not confirmed")
                results += [later] * (len(messages) - len(results))
        return results

    def close(self, seconds: float = 2.0) -> None:
        """Ends the connections, within about that time."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):  # it raises whatever its threads raised
                producer.close(timeout=seconds)

    def _discard(self) -> None:
        # what it still holds is sent again by its successor: at least once, and its id tells
        self.close(0)

    def _chunk(self, messages: Sequence[Message]) -> list[Exception | None]:
        results = self._together(messages)
        if len(messages) > 1:  # one that is too long makes a broker refuse its whole batch
            for position, error in enumerate(results):
                if isinstance(error, RefusedByBroker):
                    results[position] = self._together([messages[position]])[0]
        return results

    def _together(self, messages: Sequence[Message]) -> list[Exception | None]:
        producer = self._connected()
        futures = [self._hand_over(producer, message) for message in messages]
        seconds = self._settings.timeout_seconds + 1
        deadline = time.monotonic() + seconds
        producer.flush(seconds)
        results = [self._outcome(future, deadline) for future in futures]
        if any(results):
            # one that timed out may never recover; one whose record was refused has a gap in its numbers
            self._discard()
        lost = [position for position, error in enumerate(results) if isinstance(error, JobLensError)]
        reason = why(self._settings) if lost else ""
        for position in lost if reason else ():
            results[position] = JobLensError(reason)
        return results

    def _hand_over(self, producer: KafkaProducer, message: Message) -> Any:
        topic, key, value = message
        partitions = self._partitions[topic]
        try:
            return producer.send(topic, value, key, partition=partitions[_partition(key, len(partitions))])
        except kafka_errors.KafkaError as error:
            return error

    def _outcome(self, future: Any, deadline: float) -> Exception | None:
        try:
            if isinstance(future, Exception):
                raise future
            future.get(timeout=max(0.0, deadline - time.monotonic()))
        except _REFUSALS as error:
            return RefusedByBroker(_named(error))
        except kafka_errors.KafkaError as error:
            return JobLensError(_named(error))
        return None

    def _connected(self) -> KafkaProducer:
        if self._producer is None:
            producer = connect(self._settings)
            try:
                make_topics(self._settings, self._topics, self._log)
                self._partitions = {topic: _partitions_of(producer, topic) for topic in self._topics}
            except BaseException:
                with contextlib.suppress(Exception):
                    producer.close(timeout=0)
                raise
            self._producer = producer
        return self._producer


def _partitions_of(producer: KafkaProducer, topic: str) -> list[int]:
    try:
        return sorted(producer.partitions_for(topic))
    except kafka_errors.TopicAuthorizationFailedError:
        raise JobLensError(f"the broker does not let us write to the topic {topic}: ask for the right to") from None
    except kafka_errors.KafkaError as error:
        raise JobLensError(f"the topic {topic} can't be written to: {_named(error)}") from None


def connect(settings: Settings) -> _KafkaProducer:
    """A connected producer. Raises JobLensError that says why there is none."""
    reason = why(settings)
    if reason:
        raise JobLensError(reason)
    with overheard() as said:
        try:
            return _KafkaProducer(
                **settings.client(),
                acks="all",
                enable_idempotence=True,
                compression_type=None if settings.compression == "none" else settings.compression,
                delivery_timeout_ms=int(settings.timeout_seconds * 1000),
                max_block_ms=int(_METADATA_SECONDS * 1000),
                linger_ms=500,  # for the rest of what is handed over: `flush` ends it, and no record wakes its thread
                batch_size=_BATCH,
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
        except (kafka_errors.KafkaError, OSError, AssertionError) as error:
            raise JobLensError(why(settings, said) or _named(error)) from None


def why(settings: Settings, said: Iterable[str] = ()) -> str:
    """Why no broker can be used: as the last one that was tried shows, or the library said. Empty if all seems well."""
    reason = ""
    end = time.monotonic() + _EXAMINE_SECONDS
    for address in settings.brokers:
        if time.monotonic() > end:
            break
        try:
            examine(address, settings.tls(), settings.sasl)
            return refusal(said, settings.user) if settings.sasl else ""
        except JobLensError as error:
            reason = str(error)
    return reason


def make_topics(settings: Settings, topics: Iterable[str], log: Callable[[str], None]) -> None:
    """Makes the topics that are not there, with as many replicas as is usual in the cluster. Raises JobLensError."""
    try:
        admin = KafkaAdminClient(**settings.client())
        try:
            for topic in sorted(set(topics) - set(admin.list_topics())):
                _make_topic(admin, settings, topic)
                log(f"the topic {topic} was not there: it is now")
        finally:
            admin.close()
    except kafka_errors.KafkaError as error:
        raise JobLensError(f"the topics can't be listed: {_named(error)}") from None


def _make_topic(admin: KafkaAdminClient, settings: Settings, topic: str) -> None:
    options = {"num_partitions": settings.partitions, "replication_factor": -1}
    try:
        admin.create_topics({topic: options}, timeout_ms=5000, wait_for_metadata=True)
    except kafka_errors.TopicAlreadyExistsError:
        return
    except FORBIDDEN:
        who = f"the user {printable(settings.user)}" if settings.sasl else "an unnamed client"
        raise JobLensError(
            f"there is no topic {topic}, and the broker does not let {who} create it: create it, or allow it"
        ) from None
    except kafka_errors.KafkaError as error:
        raise JobLensError(f"the topic {topic} can't be made: {_named(error)}") from None


@functools.lru_cache(maxsize=16384)
def _partition(key: bytes, count: int) -> int:
    """Where every Kafka client puts this key by default; kept, because it takes longer than all else of a record."""
    return int(murmur2(key) & 0x7FFFFFFF) % count


def _named(error: BaseException) -> str:
    return printable(f"{type(error).__name__}: {error}", 200)
