"""The Kafka sink with the broker that librdkafka has for tests, in this process: for machines without a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from sinks import deliver, make, record
from stand_in import Proxy

from condor_joblens.sinks.kafka import KafkaSink

TOPICS = {f"TOPIC_{kind}": f"stand.{kind.lower()}" for kind in ("SAMPLES", "EVENTS", "JOBS", "HEALTH")}


@pytest.fixture
def stand_in() -> Iterator[str]:
    """The address of such a broker; it lives as long as the producer that has it."""
    keeper = Producer({"bootstrap.servers": "nobody", "test.mock.num.brokers": 1})
    (broker,) = keeper.list_topics(timeout=10).brokers.values()
    for topic in TOPICS.values():  # it makes what is asked for
        keeper.list_topics(topic, timeout=10)
    proxy = Proxy((broker.host, broker.port))
    yield proxy.address
    proxy.close()
    keeper.flush(1)


def test_records_are_confirmed_and_stay_in_order(stand_in: str) -> None:
    sink = make(KafkaSink, SERVERS=stand_in, **TOPICS)
    sink.start()
    batch = [record(number) for number in range(500)]
    assert deliver(sink, batch) == []
    sink.close(2)
    consumer = Consumer({"bootstrap.servers": stand_in, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPICS["TOPIC_EVENTS"]])
    found = []
    while len(found) < len(batch):
        message = consumer.poll(20)
        assert message is not None and message.error() is None, len(found)
        found.append(json.loads(message.value()))
    consumer.close()
    assert found == [one.fields() for one in batch]
