"""TCP: the bytes of both sides to the last one, whoever closes and however; connections by how they came and ended."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable

import pytest
from ground import Ground, Slot, until

FAMILIES = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
MIB = 1 << 20


def listener(family: int, backlog: int = 16) -> socket.socket:
    server = socket.socket(family, socket.SOCK_STREAM)
    server.bind((FAMILIES[family], 0))
    server.listen(backlog)
    return server


def swallow(connection: socket.socket, size: int) -> None:
    while size > 0:
        got = len(connection.recv(min(size, 65536)))
        assert got, "the connection has ended too early"
        size -= got


def end(connection: socket.socket, how: str) -> None:
    """Ends it first, by FIN or RST."""
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def await_end(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    connection.close()


def tcp(slot: Slot, connections: bool = False) -> dict[str, float]:
    return {name[4:]: value for name, value in slot.totals(connections).items() if name.startswith("tcp_")}


def closed(*slots: Slot) -> bool:
    return all(tcp(slot)["open"] == 0 for slot in slots)


@pytest.fixture
def slots(ground: Ground) -> tuple[Slot, Slot]:
    return ground.slot("condor_slot1"), ground.slot("condor_slot2")


def converse(slots: tuple[Slot, Slot], serve: Callable[..., None], ask: Callable[..., None], family: int) -> None:
    """A server in one slot and a client in the other, each a process with a connection to the other."""
    port_from, port_to = os.pipe()

    def server() -> None:
        with listener(family) as listening:
            os.write(port_to, struct.pack("i", listening.getsockname()[1]))
            connection, _ = listening.accept()
        serve(connection)

    def client() -> None:
        (port,) = struct.unpack("i", os.read(port_from, 4))
        ask(socket.create_connection((FAMILIES[family], port)))

    pids = [slots[0].fork(server), slots[1].fork(client)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]


@pytest.mark.guest
@pytest.mark.parametrize("how", ["client ends", "server ends", "reset"])
@pytest.mark.parametrize("family", FAMILIES, ids=["v4", "v6"])
def test_bytes_of_both_sides_are_exact(slots: tuple[Slot, Slot], family: int, how: str) -> None:
    asked, answered = 3 * MIB + 1, 77_777

    def serve(connection: socket.socket) -> None:
        swallow(connection, asked)
        connection.sendall(b"a" * answered)
        end(connection, how) if how == "server ends" else await_end(connection)

    def ask(connection: socket.socket) -> None:
        connection.sendall(b"q" * asked)
        swallow(connection, answered)
        await_end(connection) if how == "server ends" else end(connection, how)

    converse(slots, serve, ask, family)
    until(lambda: closed(*slots))
    server, client = tcp(slots[0]), tcp(slots[1])
    assert (server["received_bytes"], server["sent_bytes"]) == (asked, answered)
    assert (client["received_bytes"], client["sent_bytes"]) == (answered, asked)
    assert (server["accepted"], server["connected"], server["failed"]) == (1, 0, 0)
    assert (client["accepted"], client["connected"], client["failed"]) == (0, 1, 0)
    assert server["rtt_seconds"] > 0 and client["rtt_seconds"] > 0


@pytest.mark.guest
@pytest.mark.parametrize("family", FAMILIES, ids=["v4", "v6"])
def test_what_is_open_is_counted_with_its_bytes(slots: tuple[Slot, Slot], family: int) -> None:
    ready_from, ready_to = os.pipe()
    go_from, go_to = os.pipe()

    def talk(connection: socket.socket) -> None:
        connection.sendall(b"x" * 10_000)
        swallow(connection, 10_000)
        os.write(ready_to, b"r")
        os.read(go_from, 1)

    watcher = os.fork()
    if watcher == 0:
        code = 1
        try:
            while len(os.read(ready_from, 1)) and len(os.read(ready_from, 1)) != 1:
                pass
            for slot in slots:
                now = tcp(slot, connections=True)
                assert (now["open"], now["sent_bytes"], now["received_bytes"]) == (1, 10_000, 10_000)
                assert now["rtt_seconds"] > 0
            code = 0
        finally:
            os.write(go_to, b"gg")
            os._exit(code)
    converse(slots, talk, talk, family)
    assert os.waitpid(watcher, 0)[1] == 0


@pytest.mark.guest
def test_a_refused_connection_has_failed(slot: Slot) -> None:
    with listener(socket.AF_INET) as server:
        port = server.getsockname()[1]

    def knock() -> None:
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))

    slot.call(knock)
    now = tcp(slot)
    assert (now["failed"], now["connected"], now["open"], now["sent_bytes"]) == (3, 0, 0, 0)


def test_a_listening_socket_is_no_connection(slot: Slot) -> None:
    slot.call(lambda: listener(socket.AF_INET).close())
    assert [value for name, value in tcp(slot).items() if value > 0] == []


@pytest.mark.guest
def test_a_connection_outlives_its_process_and_its_cgroup(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    with listener(socket.AF_INET) as server:
        port = server.getsockname()[1]
        slot.call(lambda: socket.create_connection(("127.0.0.1", port)).sendall(b"x" * MIB))
        connection, _ = server.accept()
        # its process is gone, and most of what it sent is still on this side's way
        assert tcp(slot)["open"] == 1
        first = tcp(slot, connections=True)
        assert 0 < first["sent_bytes"] < MIB
        assert first["sent_bytes"] + first["unsent_bytes"] == MIB
        monkeypatch.setattr(Slot, "index", slot.index)  # which is found by the cgroup's path
        slot.path.rmdir()
        swallow(connection, MIB)
        until(lambda: tcp(slot, connections=True)["unsent_bytes"] == 0)
        assert tcp(slot, connections=True)["sent_bytes"] == MIB
        assert connection.recv(1) == b""
        connection.close()
    until(lambda: closed(slot))
    assert tcp(slot)["sent_bytes"] == MIB


def test_what_is_sent_again_is_a_retransmit_and_not_sent_twice(slot: Slot) -> None:
    with listener(socket.AF_INET, backlog=0) as server:
        address = server.getsockname()

        def crowd() -> None:
            first = socket.create_connection(address)
            # no room in the listener's queue: the kernel drops this one's SYN, and it is sent again
            second = socket.socket()
            second.setblocking(False)
            with pytest.raises(BlockingIOError):
                second.connect(address)
            second.settimeout(20)
            os.write(asked, b"?")
            os.read(answered, 1)
            second.sendall(b"x" * 100)
            first.close()
            second.close()

        asks, asked = os.pipe()
        answered, answers = os.pipe()
        pid = slot.fork(crowd)
        os.read(asks, 1)
        taken, _ = server.accept()
        server.settimeout(20)
        retried, _ = server.accept()
        os.write(answers, b"!")
        assert os.waitpid(pid, 0)[1] == 0
        swallow(retried, 100)
        for connection in (taken, retried):
            await_end(connection)
    until(lambda: closed(slot))
    now = tcp(slot)
    assert now["retransmits"] >= 1
    assert (now["connected"], now["failed"], now["sent_bytes"]) == (2, 0, 100)


def test_connections_under_way_are_never_counted_twice(slot: Slot) -> None:
    each, count = 10_000, 60
    with listener(socket.AF_INET, backlog=count) as server:
        address = server.getsockname()

        def send() -> None:
            for _ in range(count):
                with socket.create_connection(address) as connection:
                    connection.sendall(b"x" * each)

        pid = slot.fork(send)
        received, samples = 0, []
        for _ in range(count):
            connection, _ = server.accept()
            swallow(connection, each)
            received += each
            samples.append((tcp(slot, connections=True)["sent_bytes"], count * each))
            await_end(connection)
        assert os.waitpid(pid, 0)[1] == 0
    until(lambda: closed(slot))
    assert tcp(slot)["sent_bytes"] == received == count * each
    assert [sent for sent, most in samples if sent > most] == []


def test_a_storm_of_connections_is_counted_to_the_last_one(slots: tuple[Slot, Slot]) -> None:
    """Two programs see each change, so that one counts what interrupts the other; never do both."""
    pairs, each = 4, 3000
    port_from, port_to = os.pipe()
    without_time_wait = struct.pack("ii", 1, 0)  # the ports would not suffice

    def serve() -> None:
        with listener(socket.AF_INET, 128) as listening:
            os.write(port_to, struct.pack("i", listening.getsockname()[1]))
            for _ in range(each):
                connection, _ = listening.accept()
                connection.sendall(b"x")
                await_end(connection)

    def ask() -> None:
        (port,) = struct.unpack("i", os.read(port_from, 4))
        for _ in range(each):
            with socket.create_connection((FAMILIES[socket.AF_INET], port)) as connection:
                assert connection.recv(1) == b"x"
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, without_time_wait)

    pids = [slot.fork(act) for _ in range(pairs) for slot, act in zip(slots, (serve, ask))]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * (2 * pairs)
    until(lambda: closed(*slots))
    server, client = tcp(slots[0]), tcp(slots[1])
    total = pairs * each
    assert (client["connected"], client["failed"], client["received_bytes"]) == (total, 0, total)
    assert (server["accepted"], server["connected"], server["sent_bytes"]) == (total, 0, total)
