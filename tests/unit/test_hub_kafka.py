"""Records from Kafka: committed once they are kept, believed as far as they can be, and no batch stops the hub."""

from __future__ import annotations

import gzip
import json
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from kafka import codec
from kafka.errors import CommitFailedError
from kafka.record import default_records, memory_records

from condor_joblens.common.errors import JobLensError
from condor_joblens.common.tokens import Who, digest
from condor_joblens.hub.ingest import kafka, kafka_batches
from condor_joblens.hub.ingest.kafka import Refused, Taker
from condor_joblens.hub.ingest.kafka_settings import Settings, read_settings
from condor_joblens.hub.ingest.records import MOST_BYTES, MOST_LINE
from condor_joblens.hub.store.client import StoreGone, StoreRefused

Partition = namedtuple("Partition", "topic partition")
Record = namedtuple("Record", "value")
SAMPLES = Partition("joblens.samples", 0)
TOKENS = {digest("tuna"): Who("node", "ep9.example.org"), digest("c"): Who("access-point", "ep1.example.org")}


def settings(folder: Path, *lines: str) -> Settings:
    file = folder / "kafka"
    file.write_text("\n".join(["[kafka]", "servers = localhost:9", *lines]))
    return read_settings(str(file))


def sample(number: int = 1, **other: Any) -> bytes:
    run, now = "ap#1.0#5#1", time.time()
    named = {"Run": run, "GlobalJobId": "ap#1.0#5", "RunNumber": 3, "Sequence": number, "Id": f"{run}/3/{number}"}
    head = {"Type": "sample", "Schema": 1, "Node": "ep1.example.org", "Time": now, "UpdateTime": int(now)}
    return json.dumps({**head, **named, **other}).encode()


class Consumer:
    """Hands out what is in `coming`, a list a poll; keeps what it was asked to do, in order."""

    def __init__(self, *coming: dict[Any, list[bytes]]) -> None:
        self.coming = list(coming)
        self.did: list[str] = []

    def poll(self, timeout_ms: int, max_records: int) -> dict[Any, list[Record]]:
        if "pause" in self.did and self.did[-1] == "pause":
            return {}
        polled = self.coming.pop(0) if self.coming else {}
        return {where: [Record(value) for value in values] for where, values in polled.items()}

    def assignment(self) -> list[Any]:
        return [SAMPLES]

    def pause(self, *partitions: Any) -> None:
        self.did.append("pause")

    def resume(self, *partitions: Any) -> None:
        self.did.append("resume")

    def commit(self) -> None:
        self.did.append("commit")


class Store:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.lines: list[bytes] = []
        self.consumer = Consumer()

    def insert(self, table: Any, lines: list[bytes], leave_out: bool = False, names: Any = ()) -> None:
        if self.errors and not leave_out:
            raise self.errors.pop(0)
        self.consumer.did.append("kept")
        self.lines += lines

    def ask(self, query: str, **parameters: float) -> list[Any]:
        return []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "WAIT", 0.05)
    monkeypatch.setattr(kafka, "_AGAIN", 0.02)
    monkeypatch.setattr(kafka_batches, "install", lambda: None)


def taken(folder: Path, consumer: Consumer, store: Store, *lines: str) -> tuple[Taker, list[str]]:
    said: list[str] = []
    store.consumer = consumer
    taker = Taker(settings(folder, *lines), store, lambda: TOKENS, said.append)  # type: ignore[arg-type]
    taker.step(consumer)
    return taker, said


@pytest.mark.usefixtures("quick")
def test_offsets_are_committed_once_the_store_has_the_records(tmp_path: Path) -> None:
    consumer = Consumer({SAMPLES: [sample(1), sample(2)]}, {SAMPLES: [sample(3)]})
    store = Store()
    taken(tmp_path, consumer, store)
    assert consumer.did == ["kept", "commit"] and len(store.lines) == 3


@pytest.mark.usefixtures("quick")
def test_a_store_that_does_not_answer_is_a_pause_and_no_loss(tmp_path: Path) -> None:
    consumer, store = Consumer({SAMPLES: [sample()]}), Store(StoreGone("it is gone"), StoreGone("it is gone"))
    _, said = taken(tmp_path, consumer, store)
    kept = consumer.did.index("kept")
    assert "pause" in consumer.did[:kept] and "commit" not in consumer.did[:kept] and consumer.did[kept:][1] == "commit"
    assert said == ["it is gone; records wait in Kafka"] and len(store.lines) == 1


@pytest.mark.usefixtures("quick")
def test_a_commit_for_what_another_one_has_now_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(consumer: Consumer) -> None:
        raise CommitFailedError

    monkeypatch.setattr(Consumer, "commit", fail)
    store = Store()
    taken(tmp_path, Consumer({SAMPLES: [sample()]}), store)
    assert len(store.lines) == 1


@pytest.mark.usefixtures("quick")
def test_a_row_that_the_store_can_t_take_costs_no_other_of_the_batch(tmp_path: Path) -> None:
    consumer, store = Consumer({SAMPLES: [sample(1), sample(2)]}), Store(StoreRefused("CANNOT_PARSE"))
    taker, said = taken(tmp_path, consumer, store)
    assert len(store.lines) == 2 and taker.refused.count == 1 and "CANNOT_PARSE" in said[0]


WRONG = {
    "garbage": (b"\xff{", "codec can't decode"),
    "nothing": (b"", "Expecting value"),
    "no node": (sample(Node=""), "no Node"),
    "a long name": (sample(Node="x" * 300), "no Node"),
    "a node with a token": (sample(Node="ep9.example.org"), "has a token, and speaks by that alone"),
    "a strange node": (sample(Node="ep1.elsewhere.org"), "no node is called"),
    "of another topic": (sample(Type="job", Id="ap#1.0#5#1/3/1/final"), "the topic joblens.samples has none"),
    "two lines": (sample() + b"\n" + sample(2), "more than one line"),
    "too long": (b"[" * (MOST_LINE + 1), "too long"),
    "another run's id": (sample(Id="ap#2.0#5#1/3/1"), "its Id is not that"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("case", WRONG)
def test_what_a_topic_s_writer_may_not_say_is_refused_by_itself(tmp_path: Path, case: str) -> None:
    record, why = WRONG[case]
    consumer, store = Consumer({SAMPLES: [sample(1), record, sample(2)]}), Store()
    taker, said = taken(tmp_path, consumer, store, "nodes = *.example.org, other")
    assert len(store.lines) == 2 and taker.refused.count == 1 and consumer.did[-1] == "commit"
    assert len(said) == 1 and why in said[0] and said[0].isprintable(), said


def test_refusals_are_told_in_sums_and_seldom() -> None:
    said: list[str] = []
    now = 0.0
    refused = Refused(said.append, lambda: now)
    refused.add(f"its schema is {number}" for number in range(5000))
    refused.tell()
    refused.add(["its schema is 7"])
    refused.tell()
    assert len(said) == 1 and "5000 records" in said[0] and len(said[0]) < 500
    now = 100.0
    refused.tell()
    assert len(said) == 2 and "1 records" in said[1] and refused.count == 5001


# --- settings


@pytest.mark.parametrize(
    "lines, why",
    [
        (["security = tls"], "security is one of"),
        (["security = sasl_ssl"], "needs user and password_file"),
        (["colour = red"], "there is no colour"),
        (["topic_samples = a", "topic_jobs = a"], "each for one type"),
        (["nodes ="], "nodes is empty"),
        (["[more]"], "one section"),
        (["security"], "can't be read"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, lines: list[str], why: str) -> None:
    with pytest.raises(JobLensError, match=why):
        settings(tmp_path, *lines)


def test_a_password_is_read_from_its_file_and_an_authority_is_used(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("swordfish\n")
    found = settings(tmp_path, "security = sasl_plaintext", "user = hub", f"password_file = {tmp_path}/password")
    client = found.client()
    assert client["sasl_plain_password"] == "swordfish" and client["security_protocol"] == "SASL_PLAINTEXT"
    assert client["sasl_mechanism"] == "SCRAM-SHA-512" and client["bootstrap_servers"] == ["localhost:9"]
    with pytest.raises(JobLensError, match="authority"):
        settings(tmp_path, "security = ssl", f"authority = {tmp_path}/password").client()


# --- batches that somebody has packed


CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library as the hub has it, for one test."""
    for module, names in (
        (memory_records, ["DefaultRecordBatch"]),
        (default_records, [f"{name}_decode" for name in ("gzip", "snappy", "lz4", "zstd")]),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(kafka_batches, "BROKEN", [0])
    kafka_batches.install()


def packed(kind: str, *values: bytes, headers: Any = ()) -> bytes:
    """A batch as a broker hands it out."""
    builder = memory_records.MemoryRecordsBuilder(2, CODECS[kind], 1 << 30)
    for value in values:
        builder.append(1_700_000_000_000, b"key", value, list(headers))
    builder.close()
    return bytes(builder.buffer())


def unpacked(batches: bytes) -> list[bytes]:
    """What the library's fetcher would get of them: all batches, to their ends."""
    records, found = memory_records.MemoryRecords(batches), []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [record.value for record in batch]
    return found


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("kind", CODECS)
def test_each_compression_is_unpacked(kind: str) -> None:
    values = [b"word " * 200 + str(number).encode() for number in range(100)]
    assert unpacked(packed(kind, *values)) == values and kafka_batches.BROKEN == [0]


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("kind", [kind for kind in CODECS if kind != "none"])
def test_a_batch_that_becomes_too_long_is_left_out_and_the_next_one_is_read(kind: str) -> None:
    bomb = packed(kind, bytes(MOST_BYTES + 100))
    assert len(bomb) < MOST_BYTES // 10
    assert unpacked(bomb + packed(kind, b"good " * 100)) == [b"good " * 100]
    assert kafka_batches.BROKEN == [1]


@pytest.mark.usefixtures("bounded")
def test_a_broken_batch_ends_where_it_breaks() -> None:
    whole = packed("none", b"first", b"second", headers=[("name", b"x")])
    broken = bytearray(whole)
    place = broken.rindex(b"name")
    broken[place : place + 4] = b"\xff\xff\xff\xff"  # a header that is no UTF-8
    broken[17:21] = default_records.calc_crc32c(memoryview(broken)[21:]).to_bytes(4, "big")
    assert unpacked(bytes(broken) + whole) == [b"first", b"first", b"second"] and kafka_batches.BROKEN == [1]


@pytest.mark.usefixtures("bounded")
def test_of_a_record_that_is_too_long_no_more_is_kept_than_shows_it() -> None:
    found = unpacked(packed("gzip", bytes(10 * MOST_LINE), b"good"))
    assert [len(value) for value in found] == [MOST_LINE + 1, 4]


@pytest.mark.usefixtures("bounded")
def test_a_compression_whose_package_is_missing_is_no_broken_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = packed("zstd", b"word " * 100)
    monkeypatch.setattr(codec, "zstd", None)
    with pytest.raises(Exception, match="zstd"):
        unpacked(batch)
    assert kafka_batches.BROKEN == [0]


@pytest.mark.usefixtures("bounded")
def test_snappy_that_claims_gigabytes_makes_no_room_for_them() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\0" * 40
    for block in (claim, b"\x82SNAPPY\0" + bytes(8) + len(claim).to_bytes(4, "big") + claim):
        with pytest.raises(kafka_batches.CorruptRecordError):
            default_records.snappy_decode(block)


@pytest.mark.usefixtures("bounded")
def test_gzip_that_is_no_gzip_is_an_error_of_the_batch() -> None:
    with pytest.raises(Exception, match="header"):
        default_records.gzip_decode(b"no gzip")
    assert default_records.gzip_decode(memoryview(gzip.compress(b"good"))) == b"good"
