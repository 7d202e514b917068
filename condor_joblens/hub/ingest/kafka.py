"""Takes records from Kafka: a consumer group on the topics of the exporters' sink `kafka`.

Offsets are committed once the store has the records, so none is lost, and one that comes again is there once. While the
store does not answer, nothing is read. Whoever may write to a topic can say anything there. So each record is checked
as those of a post are, and a node that has a token speaks by that alone. What the queue contradicts is kept apart.
"""

from __future__ import annotations

import contextlib
import fnmatch
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaConsumer
from kafka import errors as kafka_errors

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.tokens import Who
from condor_joblens.hub.ingest import kafka_batches
from condor_joblens.hub.ingest.doubts import Doubts
from condor_joblens.hub.ingest.gather import MOST_ROWS, insert_rows
from condor_joblens.hub.ingest.kafka_settings import Settings
from condor_joblens.hub.ingest.places import Places
from condor_joblens.hub.ingest.records import MOST_BYTES, Post, take
from condor_joblens.hub.store.client import Store, StoreGone, StoreRefused

WAIT = 1.0
"""Seconds for which a batch is gathered."""

POLLED = 500
"""Records that the library unpacks at a time: at most this many of 256 KiB each."""

FETCHED_BYTES = 8 << 20
"""Of a broker's answer, as it is packed."""

SAY_SECONDS = 60.0
"""Between two lines of what was refused."""

_LONGEST_NAME = 255
_MOST_REASONS = 5
_AGAIN = 2.0
_NUMBERS = re.compile(r"\d+|'[^']*'")


class Believed:
    """Whether a record may come by a topic at all."""

    def __init__(self, settings: Settings, tokens: Callable[[], Mapping[str, Who]]) -> None:
        """tokens: the nodes' own, asked at each batch."""
        self._types, self._tokens = settings.types, tokens
        self._named = re.compile("|".join(fnmatch.translate(pattern) for pattern in settings.nodes))
        self._with_token: frozenset[str] = frozenset()
        self.record: Mapping[str, Any] = {}  # the one that was asked about last

    def look(self) -> None:
        """At the tokens, as they are now."""
        self._with_token = frozenset(who.name for who in self._tokens().values() if who.is_node)

    def why_not(self, topic: str) -> Callable[[Mapping[str, Any]], str]:
        """Of a record of this topic."""

        def asked(record: Mapping[str, Any]) -> str:
            self.record = record
            node = record.get("Node")
            if not isinstance(node, str) or not 0 < len(node) <= _LONGEST_NAME:
                return "it has no Node"
            if record["Type"] != self._types.get(topic):
                return f"it is a {record['Type']}, and the topic {topic} has none"
            if node in self._with_token:
                return f"the node {node!r} has a token, and speaks by that alone"
            return "" if self._named.match(node) else f"no node is called {node!r}"

        return asked


class Refused:
    """Counts what is not taken, and says so now and then."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._why: Counter[str] = Counter()
        self._broken = kafka_batches.BROKEN[0]
        self._said = -SAY_SECONDS
        self.count = 0

    def add(self, reasons: Iterable[str]) -> None:
        """One a record."""
        for why in reasons:
            self.count += 1
            kind = _NUMBERS.sub("…", why)
            if kind in self._why or len(self._why) < 1000:
                self._why[kind] += 1

    def tell(self) -> None:
        """What was refused since the last time, if that is a while ago."""
        broken = kafka_batches.BROKEN[0] - self._broken
        if not (self._why or broken) or self._clock() < self._said + SAY_SECONDS:
            return
        self._said = self._clock()
        reasons = "; ".join(f"{count}: {why}" for why, count in self._why.most_common(_MOST_REASONS))
        self._say(
            f"of Kafka's topics, {sum(self._why.values())} records were refused, and {broken} batches could not be "
            f"read to their end. {printable(reasons, 1000)}"
        )
        self._why.clear()
        self._broken += broken


class Taker:
    """One consumer of the group. For one thread."""

    def __init__(
        self, settings: Settings, store: Store, tokens: Callable[[], Mapping[str, Who]], say: Callable[[str], None]
    ) -> None:
        self._settings, self._store, self._say = settings, store, say
        self._believed = Believed(settings, tokens)
        self.refused = Refused(say)
        self.places = Places(settings.queue, say)
        self._doubts = Doubts(self.places, store, say)
        kafka_batches.install()
        logging.getLogger("kafka").setLevel(logging.ERROR)

    def run(self) -> None:
        """For ever. What goes wrong with the brokers is said, and tried again."""
        said = ""
        self.places.begin()
        while True:
            try:
                consumer = connect(self._settings)
                try:
                    while True:
                        self.step(consumer)
                        said = ""
                finally:
                    consumer.close(timeout_ms=2000)
            except (kafka_errors.KafkaError, JobLensError, OSError) as error:
                # what was not committed comes again
                words = f"Kafka: {printable(f'{type(error).__name__}: {error}', 300)}; it is tried again"
                if words != said:
                    said = words
                    self._say(words)
                time.sleep(_AGAIN)

    def step(self, consumer: Any) -> None:
        """One batch: read, checked, kept, and only then committed. Raises KafkaError."""
        post = self._gathered(consumer)
        if post.rows:
            self._keep(consumer, post)
        self.refused.add(post.refused.values())
        self.refused.tell()
        if post.rows or post.refused:
            with contextlib.suppress(
                kafka_errors.CommitFailedError
            ):  # another one has these partitions: it reads again
                consumer.commit()
        self._doubts.judge()

    def _gathered(self, consumer: Any) -> Post:
        """As much as comes in a while, within bounds."""
        self._believed.look()
        found, position, size, end = Post(), 0, 0, time.monotonic() + WAIT
        while position < MOST_ROWS and size < MOST_BYTES and (left := end - time.monotonic()) > 0:
            polled = consumer.poll(timeout_ms=int(1000 * left) + 1, max_records=min(POLLED, MOST_ROWS - position))
            position, size = self._add(found, polled, position, size)
        return found

    def _add(self, found: Post, polled: Mapping[Any, Any], position: int, size: int) -> tuple[int, int]:
        now = time.time()
        for partition, records in polled.items():
            why_not = self._believed.why_not(partition.topic)
            for record in records:
                line = record.value or b""
                if b"\n" in line or b"\r" in line:  # a line of the store's is one line
                    found.refused[position] = "it is more than one line"
                else:
                    self._take(found, position, line, why_not, now)
                position, size = position + 1, size + len(line)
        return position, size

    def _take(
        self, found: Post, position: int, line: bytes, why_not: Callable[[dict[str, Any]], str], now: float
    ) -> None:
        take(found, position, line, why_not, now)
        if position not in found.refused and (apart := self._doubts.row(position, line, self._believed.record)):
            found.rows[-1] = apart

    def _keep(self, consumer: Any, post: Post) -> None:
        """Until the store has it. We stay in the group meanwhile, and read nothing: the brokers keep it."""
        said = False
        while True:
            try:
                try:
                    return insert_rows(self._store, post.rows)
                except StoreRefused as error:  # a row is wrong, and whose it is, nobody knows: no other pays for it
                    insert_rows(self._store, post.rows, leave_out=True)
                    self.refused.add([f"the store can't take all records of a batch ({error})"])
                    return None
            except StoreGone as error:
                if not said:
                    said = True
                    self._say(f"{error}; records wait in Kafka")
                self._wait(consumer, post)

    def _wait(self, consumer: Any, post: Post) -> None:
        consumer.pause(*consumer.assignment())
        end = time.monotonic() + _AGAIN
        while (left := end - time.monotonic()) > 0:
            # partitions that come to us now are not paused yet: what they hand us belongs to this batch
            polled = consumer.poll(timeout_ms=int(1000 * left) + 1, max_records=POLLED)
            self._add(post, polled, len(post.rows) + len(post.refused), 0)
            consumer.pause(*consumer.assignment())
        if len(post.rows) > 2 * MOST_ROWS:  # partitions come and go while the store is gone: this is begun anew
            raise JobLensError("too much waits for the store")
        consumer.resume(*consumer.assignment())


def connect(settings: Settings) -> Any:
    """A consumer of the group: from the oldest records on that it has not taken. Raises KafkaError, JobLensError."""
    consumer = KafkaConsumer(
        **settings.client(),
        group_id=settings.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        fetch_max_bytes=FETCHED_BYTES,
        max_partition_fetch_bytes=FETCHED_BYTES // 8,
        receive_message_max_bytes=4 * FETCHED_BYTES,
        metadata_max_age_ms=10_000,  # topics that are made later
        bootstrap_timeout_ms=5000,
        reconnect_backoff_max_ms=1000,
        metrics_enabled=False,
    )
    consumer.subscribe(list(settings.types))
    return consumer
