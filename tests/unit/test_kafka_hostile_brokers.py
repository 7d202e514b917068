"""Brokers and TLS peers that answer to do harm: the sink's records wait, its memory is bounded, and each batch ends."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answering_servers import Talk, talking_servers, with_peak
from hostile_tls import HANDSHAKES, dripped, hang, make_certificates
from running_exporter import Exporter, free_port, get

from condor_joblens.common.config import Config
from condor_joblens.model.metrics import empty_rows
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer
from condor_joblens.sinks import DeliveryResult, Record, RecordKind, SinkContext, kafka_child, kafka_confined
from condor_joblens.sinks.registry import configure

pytestmark = pytest.mark.slow

MOST_BYTES = 16 << 20
"""Of Python's memory in the exporter."""

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36
KEYS = {METADATA: 1, SASL_HANDSHAKE: 1, API_VERSIONS: 0, SASL_AUTHENTICATE: 0, 0: 3, 19: 1, 22: 0}
"""What an honest broker of old says that it knows, up to which version."""


def requests(connection: socket.socket) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Key, version, correlation id and the rest of each request, until the client goes."""
    source = connection.makefile("rb")
    while len(size := source.read(4)) == 4:
        content = source.read(struct.unpack(">i", size)[0])
        key, version = struct.unpack(">hh", content[:4])
        yield key, version, content[4:8], content[8:]


def frame(*parts: bytes) -> bytes:
    content = b"".join(parts)
    return struct.pack(">i", len(content)) + content


def versions(error: int = 0) -> bytes:
    known = b"".join(struct.pack(">hhh", key, 0, most) for key, most in KEYS.items())
    return struct.pack(">hi", error, len(KEYS)) + known


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def broker(**hostile: Callable[[bytes], Iterator[bytes]]) -> Talk:
    """An honest broker but for the answers that are given: by name, from the correlation id to the pieces."""

    def talk(connection: socket.socket) -> None:
        for key, version, correlation, _ in requests(connection):
            if key == API_VERSIONS and "versions" not in hostile:
                connection.sendall(frame(correlation, versions(0 if version == 0 else 35)))
            elif key == SASL_HANDSHAKE and "handshake" not in hostile:
                if "authenticate" in hostile:
                    connection.sendall(frame(correlation, struct.pack(">hi", 0, 1), text("SCRAM-SHA-512")))
                else:
                    connection.sendall(frame(correlation, struct.pack(">hi", 34, 0)))
            else:
                name = {API_VERSIONS: "versions", SASL_HANDSHAKE: "handshake", SASL_AUTHENTICATE: "authenticate"}
                answer = hostile.get(name.get(key, "metadata"))
                for piece in answer(correlation) if answer else ():
                    connection.sendall(piece)

    return talk


def says(*parts: bytes) -> Callable[[bytes], Iterator[bytes]]:
    return lambda correlation: iter([frame(correlation, *parts)])


def forever(head: bytes, piece: bytes) -> Callable[[bytes], Iterator[bytes]]:
    """As fast as it is taken."""
    return lambda _: itertools.chain([head], itertools.repeat(piece))


ZEROS = bytes(1 << 16)
ONE_BROKER = struct.pack(">iih9sih", 1, 1, 9, b"127.0.0.1", 1, -1)
MANY = 990_000 // len(struct.pack(">ihih", 1, 0, 1, -1))
MANY_BROKERS = struct.pack(">i", MANY) + b"".join(struct.pack(">ihih", n, 0, 1, -1) for n in range(MANY))

MANY_TOPICS = struct.pack(">i", 80_000) + struct.pack(">hhbi", 0, 0, 0, 0) * 80_000

HOSTILE: dict[str, Talk] = {
    "nothing, for ever": lambda connection: [None for _ in iter(lambda: connection.recv(1 << 16), b"")] and None,
    "an end at once": lambda connection: None,
    "a length of two gigabytes, and that much": broker(versions=forever(b"\x7f\xff\xff\xff", ZEROS)),
    "a negative length": broker(versions=forever(b"\xff\xff\xff\xff", ZEROS)),
    "empty frames for ever": broker(versions=forever(b"", bytes(1 << 16))),
    "an answer that drips": broker(versions=lambda c: dripped(struct.pack(">i", 900_000) + c)),
    "no version is right, ever": broker(versions=says(versions(35))),
    "a mebibyte that drips after an honest start": broker(metadata=lambda c: dripped(struct.pack(">i", 900_000) + c)),
    "a flood after an honest start": broker(metadata=forever(struct.pack(">i", 999_999), ZEROS)),
    "silence after an honest start": broker(),
    "two thousand million brokers": broker(metadata=says(b"\x7f\xff\xff\xff", bytes(900_000))),
    "as many brokers as a frame holds": broker(metadata=says(MANY_BROKERS, struct.pack(">ii", -1, 0))),
    "as many topics as a frame holds": broker(metadata=says(ONE_BROKER, struct.pack(">i", -1), MANY_TOPICS)),
    "brokers that are elsewhere": broker(metadata=says(ONE_BROKER, struct.pack(">ii", -1, 0))),
    "another's correlation id": broker(metadata=lambda c: iter([frame(b"\0\0\xff\xff", bytes(100))])),
    "mechanisms without end": broker(handshake=says(struct.pack(">hi", 33, 1 << 30), text("X") * 100_000)),
}


@pytest.fixture
def serve() -> Iterator[Callable[[Talk], str]]:
    with talking_servers() as start:
        yield start


def made(address: str, log: list[str], **more: str) -> Any:
    given = {"SERVERS": address, "TIMEOUT": "2", **more}
    macros = {f"JOBLENS_SINK_KAFKA_{name}": value for name, value in given.items()}
    (config,), problems = configure(["kafka"], macros)
    assert not problems
    return config.sink(config.settings, SinkContext(log.append, lambda: pytest.fail("not asked for"), tuple, "node"))


RECORDS = [Record(RecordKind.EVENT, f"id{number}", "run", 1.0, b'{"Id": "x"}') for number in range(20)]


class Watch(threading.Thread):
    """The most memory that the process with kafka-python ever had."""

    def __init__(self, sink: Any) -> None:
        super().__init__(daemon=True)
        self.sink, self.over, self.most_bytes = sink, threading.Event(), 0

    def run(self) -> None:
        while not self.over.wait(0.02):
            try:
                lines = Path(f"/proc/{self.sink.child_pid}/status").read_text().splitlines()
                found = next(line for line in lines if line.startswith("VmHWM"))
                self.most_bytes = max(self.most_bytes, int(found.split()[1]) << 10)
            except (OSError, StopIteration):
                pass


def survived(sink: Any) -> str:
    """Hands a batch in; why it waits."""
    sink.start()
    watch = Watch(sink)
    watch.start()
    try:
        found, peak = with_peak(lambda: sink.deliver(RECORDS))
    finally:
        watch.over.set()
        watch.join()
        sink.close(1.0)
    assert peak < MOST_BYTES
    assert watch.most_bytes < kafka_child.MOST_MEMORY_BYTES + (64 << 20)  # with its programs
    assert isinstance(found, DeliveryResult)
    assert list(found.retry) == list(range(len(RECORDS))) and not found.refused
    assert found.reason.isprintable() and 10 < len(found.reason) < 1200
    return found.reason


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_confined, "PATIENCE_SECONDS", 4.0)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_broker_costs_no_memory_and_no_thread(how: str, serve: Callable[[Talk], str]) -> None:
    survived(made(serve(HOSTILE[how]), []))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rounds", [1_000_000, 2_147_483_647])
def test_a_login_that_takes_many_rounds(rounds: int, serve: Callable[[Talk], str], tmp_path: Path) -> None:
    """SCRAM's are the broker's choice."""
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)

    def talk(connection: socket.socket) -> None:
        for key, version, correlation, rest in requests(connection):
            if key == API_VERSIONS:
                connection.sendall(frame(correlation, versions(0 if version == 0 else 35)))
            elif key == SASL_HANDSHAKE:
                connection.sendall(frame(correlation, struct.pack(">hi", 0, 1), text("SCRAM-SHA-512")))
            elif key == SASL_AUTHENTICATE:
                nonce = rest.rpartition(b"r=")[2]
                said = b"r=" + nonce + b"x,s=QUJD,i=%d" % rounds
                connection.sendall(frame(correlation, struct.pack(">hh", 0, -1), struct.pack(">i", len(said)), said))

    more = {"SECURITY": "sasl_plaintext", "USER": "joblens", "PASSWORD_FILE": str(password)}
    survived(made(serve(talk), [], **more))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    return folder


def over_tls(folder: Path, name: str, talk: Talk, honest: int = 0) -> Talk:
    """The talk over TLS; `honest` connections are a plain honest broker's over TLS first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    count = itertools.count()

    def encrypted(connection: socket.socket) -> None:
        first = next(count) < honest
        if first or talk is not hang:
            with context.wrap_socket(connection, server_side=True) as spoken:
                (broker() if first else talk)(spoken)
        else:
            talk(connection)

    return encrypted


TLS: dict[str, Callable[[Path], Talk]] = {
    **{how: (lambda _, talk=talk: talk) for how, talk in HANDSHAKES.items()},  # type: ignore[misc]
    "no handshake after an honest start": lambda folder: over_tls(folder, "ours", hang, honest=1),
    "a huge certificate": lambda folder: over_tls(folder, "huge", HOSTILE["silence after an honest start"]),
    "a flood over TLS": lambda folder: over_tls(folder, "ours", HOSTILE["a flood after an honest start"]),
    "a drip over TLS": lambda folder: over_tls(folder, "ours", HOSTILE["an answer that drips"]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", TLS)
def test_a_hostile_tls_peer_costs_no_memory_and_no_thread(
    how: str, serve: Callable[[Talk], str], certificates: Path
) -> None:
    authority = str(certificates / ("huge.pem" if "huge" in how else "ours.pem"))
    survived(made(serve(TLS[how](certificates)), [], SECURITY="ssl", AUTHORITY=authority))


def test_the_kernel_bounds_its_memory(serve: Callable[[Talk], str]) -> None:
    sink = made(serve(HOSTILE["silence after an honest start"]), [])
    sink.start()
    sink.deliver(RECORDS)
    limits = Path(f"/proc/{sink.child_pid}/limits").read_text() if sink.child_pid else ""
    sink.close(1.0)
    assert not limits or str(kafka_child.MOST_MEMORY_BYTES) in limits


BESIDE = {
    "kafka, a flood": ("kafka", "SERVERS", "{}", HOSTILE["a length of two gigabytes, and that much"]),
    "kafka, many brokers": ("kafka", "SERVERS", "{}", HOSTILE["as many brokers as a frame holds"]),
    "kafka, silence": ("kafka", "SERVERS", "{}", HOSTILE["silence after an honest start"]),
    "otlp, no handshake": ("otlp", "URL", "https://{}", HANDSHAKES["a handshake that drips"]),
    "opensearch, no handshake": ("opensearch", "URL", "https://{}", HANDSHAKES["a handshake without an end"]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", BESIDE)
def test_the_page_answers_beside_a_hostile_backend(how: str, serve: Callable[[Talk], str], tmp_path: Path) -> None:
    name, knob, form, talk = BESIDE[how]
    port, exporter, came = free_port(), Exporter(tmp_path), threading.Event()

    def noted(connection: socket.socket) -> None:
        came.set()
        talk(connection)

    rows = empty_rows(5)
    rows["run"] = [b"schedd#%d.0#1#1" % number for number in range(5)]
    rows["run_number"], rows["sequence"] = range(1, 6), 1
    rows["update_time"] = rows["start_time"] = int(time.time())
    writer = Writer(f"{tmp_path}/rows", 8, os.getgid())
    Writer(f"{tmp_path}/ended", 8, os.getgid())
    events = EventWriter(f"{tmp_path}/events", 1 << 20, os.getgid())
    exporter.configure(
        JOBLENS_SINKS=f"prometheus, {name}",
        JOBLENS_SINK_PROMETHEUS_ADDRESS=f"127.0.0.1:{port}",
        JOBLENS_SPOOL_DIR=f"{tmp_path}/spool",
        **{f"JOBLENS_SINK_{name.upper()}_{knob}": form.format(serve(noted))},
    )
    exporter.start()
    try:
        exporter.until_logged("page is at")
        answered = asked = 0
        while asked < 200 or not came.is_set():
            writer.publish(rows, time.time())
            events.wake()
            rows["sequence"] += 1
            asked += 1
            answered += "joblens_up 1" in get(port)
        assert answered >= 0.99 * asked
        assert exporter.process
        status = Path(f"/proc/{exporter.process.pid}/status").read_text()
        most = int(status.split("VmHWM:")[1].split()[0]) << 10
        assert most < Config().export_max_bytes // 2
        assert exporter.stop() == 0
    finally:
        exporter.kill()
