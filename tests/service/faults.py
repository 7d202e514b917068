"""Faults and what they cost: a node's life into a real Kafka, and the balance of what came and what was declared lost.

Shared by the tests of faults and benchmarks/bench_faults.py.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from exporter import AS_WE_ARE, Account, Exporter, Node, of_topic
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from servers import Kafka, free_port
from sinks import until

from condor_joblens.sinks.kafka import KafkaSink

JOBS, EVENTS = 100, 1000
"""The load: runs once a second, and events a second. The benchmark has more of both."""


class Impatient(Exporter):
    """Looks soon whether a backend is back, so that a test need not wait for half a minute."""

    program = "from condor_joblens.export import delivery\ndelivery.LONGEST_PAUSE = 2.0\n" + AS_WE_ARE


class Run:
    """A node under load, an exporter with Kafka for a sink, and what has come there."""

    def __init__(
        self, kafka: Kafka, place: Path, kind: type[Exporter] = Impatient, sinks: Iterable[str] = (), **macros: str
    ) -> None:
        """`place`: a folder of its own, whose name the topics have too. `sinks` and `macros` are added to the
        configuration."""
        self.kafka, self._place = kafka, place
        self.node = Node(place / "run", JOBS)
        topics = {name: f"{place.name}.{name}" for name in ("samples", "events")}
        settings = {f"JOBLENS_SINK_KAFKA_TOPIC_{name.upper()}": topic for name, topic in topics.items()}
        self._page = f"127.0.0.1:{free_port()}"
        settings |= {
            "JOBLENS_SINKS": ", ".join(["kafka", "prometheus", *sinks]),
            "JOBLENS_SINK_PROMETHEUS_ADDRESS": self._page,
            "JOBLENS_SINK_KAFKA_SERVERS": kafka.plain,
            "JOBLENS_SINK_KAFKA_TIMEOUT": "4",
        }
        self.exporter = kind(place / "exporter", self.node, **settings, **macros)
        self._account = Account()
        self._next = dict.fromkeys(topics.values(), 0)  # topic -> offset of the first record that was not looked at

    def __enter__(self) -> Run:
        self.exporter.__enter__()
        self._warm()
        return self

    def __exit__(self, *error: Any) -> None:
        self.exporter.__exit__(*error)

    def _warm(self) -> None:
        """The sink is there from here on: what was before that is not its own."""

        def came() -> bool:
            self.node.publish()
            time.sleep(0.3)
            self._look()
            return bool(self._account.samples)

        until(came, "the first samples")
        self.node.before = min(sequence for _, sequence in self._account.samples) - 1

    def _look(self) -> None:
        """Reads on in the topics; a broker that is not there is asked again another time."""
        try:
            consumer = KafkaConsumer(bootstrap_servers=self.kafka.plain, enable_auto_commit=False)
        except KafkaError:
            return
        try:
            for topic in self._next:
                self._read(consumer, topic)
        except KafkaError:
            return
        finally:
            consumer.close()

    def _read(self, consumer: KafkaConsumer, topic: str) -> None:
        if not consumer.partitions_for_topic(topic):
            return  # nothing was sent yet
        part = TopicPartition(topic, 0)
        consumer.assign([part])
        consumer.seek(part, self._next[topic])
        end = consumer.end_offsets([part])[part]
        while self._next[topic] < end and (found := consumer.poll(timeout_ms=2000).get(part)):
            self._account.add(of_topic(found))
            self._next[topic] = found[-1].offset + 1

    def balance(self) -> dict[str, Any]:
        """What is missing now, and what was declared: see Account.of."""
        self._look()
        return self._account.of(self.node)

    def settled(self, seconds: float = 120) -> dict[str, Any]:
        """The balance, once nothing waits any more and no more is missing than was declared, or after so long."""
        end = time.monotonic() + seconds
        while True:
            nothing_waits = self._nothing_waits()
            found = self.balance()
            if (nothing_waits and found["missing"] <= found["declared"]) or time.monotonic() > end:
                return found
            time.sleep(0.5)

    def _nothing_waits(self) -> bool:
        try:
            page = self.page()
        except OSError:  # the exporter is only just starting
            return False
        return not any(page[f'joblens_sink_{where}_records{{sink="kafka"}}'] for where in ("queued", "spooled"))

    def meanwhile(self, seconds: float, action: Callable[[], None]) -> None:
        """The node lives on for so long while something is done to the others."""
        thread = threading.Thread(target=self.node.live, args=(seconds, EVENTS))
        thread.start()
        try:
            action()
        finally:
            thread.join()

    def end(self, seconds: float = 120) -> dict[str, Any]:
        """Waits until all is settled, ends the exporter, and returns the balance."""
        found = self.settled(seconds)
        self.exporter.stop()
        return found

    def page(self) -> dict[str, float]:
        """The numbers of the exporter's Prometheus page, by name and labels."""
        with urllib.request.urlopen(f"http://{self._page}/metrics", timeout=30) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def working(self) -> dict[str, bool]:
        """What the exporter says of each sink but the page."""
        name = 'joblens_sink_working{sink="'
        return {key[len(name) : -2]: bool(value) for key, value in self.page().items() if key.startswith(name)}

    def spooled(self) -> list[Path]:
        """The files of Kafka's spool."""
        return list((self.exporter.spool / "kafka").glob("*.spool"))

    def check_declared(self, found: dict[str, Any], doubts: int) -> None:
        """What is missing was declared. A batch that is under way when somebody is killed, or when the spool drops it,
        may be declared and there: `doubts` is how often that can have been."""
        most = found["missing"] + doubts * KafkaSink.batch_records
        assert found["missing"] <= found["declared"] <= most, (found, self.exporter.said())

    def check_whole(self, found: dict[str, Any], kills: int = 0) -> None:
        """Every event is there; of samples that went by while nobody looked (an exporter just starting) the number."""
        self.check_declared(found, kills)
        assert found["events"] == self.node.events, (found, self.exporter.said())
        assert set(found["causes"]) <= {"unseen"}, (found, self.exporter.said())
