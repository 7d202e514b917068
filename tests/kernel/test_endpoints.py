"""The network by endpoint: exact numbers for those that are listed, and a sum that is the total whatever happens."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ground import Ground, Slot, kernel_node, leave_the_cpu, on_ground, until

from condor_joblens.agent import measure
from condor_joblens.common import endpoint_names
from condor_joblens.common.config import Config
from condor_joblens.jobs.run_table import Runs
from condor_joblens.model.endpoints import LISTED, Scope, records
from condor_joblens.model.levels import Level
from condor_joblens.sample.endpoint_counters import ELSEWHERE, UDP_BY_FILE
from condor_joblens.sample.endpoint_lists import KEPT
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.bpf import Tracer
from condor_joblens.tracer.sensors import Io

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: no TIME_WAIT, for which ports would not suffice
TCP_USER_TIMEOUT = 18
CLONE_NEWNET = 0x40000000

SUMS = {
    "SentBytes": ("tcp_sent_bytes",),
    "ReceivedBytes": ("tcp_received_bytes",),
    "Connections": ("tcp_connected", "tcp_accepted"),
    "Failed": ("tcp_failed",),
    "Refused": ("tcp_refused",),
    "TimedOut": ("tcp_timed_out",),
    "Unreachable": ("tcp_unreachable",),
    "Retransmits": ("tcp_retransmits",),
}
"""What the entries' numbers together must be, always."""


class Watched:
    """Runs in slots of a ground, measured as joblensd does it."""

    def __init__(self, tracer: Tracer, file: Path, names: str = "") -> None:
        self.runs = Runs(str(file), 16)
        self.tracer = tracer
        self.node = kernel_node(tracer, self.runs, Config(endpoint_names=endpoint_names.parse(names)))
        self._before: dict[tuple[int, str, int], dict[str, int]] = {}

    def add(self, slot: Slot, level: Level = Level.IO) -> int:
        run = self.runs.add(slot.cgroup_id)
        assert run is not None
        self.runs.state["kernel_slot"][run] = slot.index
        self.runs.rows["complete"][run] = True
        self.tracer.counters["awaits_exec"][slot.index] = 0  # our jobs are forked, not started
        self.set_level(run, level)
        return run

    def set_level(self, run: int, level: Level) -> None:
        self.runs.rows["level_number"][run] = int(level)
        self.tracer.counters["level"][self.runs.state["kernel_slot"][run]] = int(level)

    def take(self) -> None:
        """One round; what must hold after every one is looked at."""
        self.node.collectors.kernel.walk_next_time()
        measure._collect(self.node, self.runs.living(), at_end=False)
        for run in self.runs.living().tolist():
            listed = self.listed(run)
            if not listed:
                continue
            for name, columns in SUMS.items():
                total = sum(max(0, int(self.runs.rows[column][run])) for column in columns)
                assert sum(entry[name] for entry in listed) == total, (name, listed)
            self._grows(run, listed[:-1])

    def _grows(self, run: int, listed: list[dict[str, Any]]) -> None:
        now = {(run, entry["Address"], entry.get("Port", 0)): entry for entry in listed}
        for key in now.keys() & self._before.keys():
            for name in SUMS:
                assert now[key][name] >= self._before[key][name], (key, name)
        self._before = {key: entry for key, entry in self._before.items() if key[0] != run} | now

    def listed(self, run: int) -> list[dict[str, Any]]:
        return records(self.runs.rows["endpoints"][run])

    def by_endpoint(self, run: int) -> dict[tuple[str, int], dict[str, Any]]:
        """All but the rest, after a round."""
        self.take()
        return {(entry["Address"], entry.get("Port", 0)): entry for entry in self.listed(run)[:-1]}

    def rest(self, run: int) -> dict[str, Any]:
        rest = self.listed(run)[-1]
        assert rest["Scope"] == "rest" and "Address" not in rest
        return rest

    def column(self, run: int, name: str) -> int:
        return int(self.runs.rows[name][run])


@pytest.fixture
def watched(ground: Ground, tmp_path: Path) -> Watched:
    return Watched(ground.tracer, tmp_path / "runs")


class Server:
    """Takes connections at every address of this machine, v4 and v6, and reads them to their ends."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET6)
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(("::", 0))
        self.socket.listen(4096)  # a client whose last packet found no room goes on for a minute
        self.port = int(self.socket.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._swallow, args=(connection,), daemon=True).start()

    @staticmethod
    def _swallow(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    if data.endswith(b"?"):
                        connection.sendall(b"a" * 100)
            except OSError:
                pass

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    serving = Server()
    yield serving
    serving.close()


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port at which nobody listens, and which nobody is given meanwhile."""
    with socket.socket(socket.AF_INET6) as held:
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("::", 0))
        yield int(held.getsockname()[1])


def connect(address: str, port: int) -> socket.socket:
    client = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    client.connect((address, port))
    return client


def send(address: str, port: int, size: int, ask: bool = False) -> None:
    """A connection that carries so many bytes, and, where it asks, 100 of an answer."""
    with connect(address, port) as client:
        client.sendall(b"x" * (size - ask) + b"?" * ask)
        left = 100 * ask
        while left:
            left -= len(client.recv(left))
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def send_and_accept(listening: socket.socket) -> None:
    """A connection of this process with itself, of one byte."""
    with socket.create_connection(listening.getsockname()) as client:
        accepted, _ = listening.accept()
        client.sendall(b"x")
        with accepted:
            assert accepted.recv(1) == b"x"
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def held(address: str, port: int, size: int) -> socket.socket:
    """A connection that has carried so many bytes, and is open."""
    client = connect(address, port)
    client.sendall(b"x" * size)
    return client


def knock(address: str, port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        connect(address, port)


@contextmanager
def paused(slot: Slot, act: Callable[[], object]) -> Iterator[None]:
    """A process of the slot that does this, and keeps what it returns open until the block ends."""
    ready_from, ready_to = os.pipe()
    go_from, go_to = os.pipe()

    def run() -> None:
        kept = act()
        os.write(ready_to, b"r")
        os.read(go_from, 1)
        del kept

    pid = slot.fork(run)
    try:
        assert os.read(ready_from, 1) == b"r"
        yield
    finally:
        os.write(go_to, b"g")
        assert os.waitpid(pid, 0)[1] == 0
        for end in (ready_from, ready_to, go_from, go_to):
            os.close(end)


def all_closed(slot: Slot) -> bool:
    count = slot.tracer.counters[slot.index]
    return bool(count["connected"] + count["accepted"] == count["closed"])


@pytest.mark.guest
def test_thirty_endpoints_are_told_apart_to_the_byte(slot: Slot, watched: Watched, server: Server) -> None:
    """v4, v6 and mapped, closed and open; the 16 with most bytes are listed and the sum is the total."""
    run = watched.add(slot)
    addresses = [f"127.0.0.{number}" for number in range(2, 22)]
    sizes = {address: 1000 * number for number, address in enumerate(addresses, 1)}

    def talk() -> list[socket.socket]:
        for address in addresses:
            send(address, server.port, sizes[address] - 500)
        send("::1", server.port, 50_001, ask=True)
        send("::ffff:127.0.0.21", server.port, 7)
        kept = [connect(address, server.port) for address in addresses]
        for client in kept:
            client.sendall(b"x" * 500)
        return kept

    with paused(slot, talk):
        until(lambda: watched.take() or watched.column(run, "tcp_sent_bytes") == sum(sizes.values()) + 50_008)
        during = watched.by_endpoint(run)
    until(lambda: all_closed(slot))
    after = watched.by_endpoint(run)
    for found, held in ((during, 2), (after, 2)):
        sizes_found = {address: entry["SentBytes"] for (address, _), entry in found.items()}
        expected = {**{address: sizes[address] for address in addresses[5:]}, "::1": 50_001, "127.0.0.21": 20_007}
        assert sizes_found == expected
        assert {port for _, port in found} == {server.port} and len(found) == LISTED
        assert found["::1", server.port]["ReceivedBytes"] == 100
        assert found["127.0.0.20", server.port]["Connections"] == held
        assert all(entry["Scope"] == "loopback" and 0 < entry["RttSeconds"] < 1 for entry in found.values())
    assert watched.rest(run)["SentBytes"] == sum(sizes[address] for address in addresses[:5])
    assert watched.runs.rows["uncounted"][run] == b""
    assert watched.column(run, "tcp_loopback_sent_bytes") == watched.column(run, "tcp_sent_bytes")
    assert watched.column(run, "tcp_loopback_received_bytes") == 100


@pytest.mark.parametrize("count", [pytest.param(200, marks=pytest.mark.guest), 10_000])
def test_of_many_connections_a_tenth_is_refused(
    slot: Slot, watched: Watched, server: Server, nobody: int, count: int
) -> None:
    run = watched.add(slot)
    processes = 4
    each = count // 10 // processes

    def talk() -> None:
        for number in range(each):
            for _ in range(9):
                with connect("127.0.0.1", server.port) as client:
                    client.sendall(b"x" * (1 + number % 3))
                    client.shutdown(socket.SHUT_WR)
                    assert client.recv(1) == b""
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            knock("127.0.0.1", nobody)

    pids = [slot.fork(talk) for _ in range(processes)]
    for pid in pids:
        watched.take()
        assert os.waitpid(pid, 0)[1] == 0
    until(lambda: all_closed(slot))
    found = watched.by_endpoint(run)
    talked, refused = found["127.0.0.1", server.port], found["127.0.0.1", nobody]
    assert (talked["Connections"], talked["Failed"]) == (9 * count // 10, 0)
    assert talked["SentBytes"] == processes * 9 * sum(1 + number % 3 for number in range(each))
    assert (refused["Connections"], refused["Failed"], refused["Refused"]) == (0, count // 10, count // 10)
    assert watched.column(run, "tcp_failed") == watched.column(run, "tcp_refused") == count // 10
    assert all(watched.rest(run)[name] == 0 for name in SUMS)


@pytest.mark.parametrize("count", [pytest.param(300, marks=pytest.mark.guest), 5000])
def test_a_job_with_any_number_of_endpoints_has_a_bounded_table_and_changes_nobodys_numbers(
    ground: Ground, watched: Watched, server: Server, nobody: int, count: int
) -> None:
    scanner, quiet = ground.slot("condor_slot1"), ground.slot("condor_slot2")
    scanning, talking = watched.add(scanner), watched.add(quiet)

    def scan() -> None:
        for number in range(count):
            knock(f"127.1.{number >> 8}.{number & 255}", nobody)
            if number % 100 == 99:
                send("127.0.0.5", server.port, 1000)

    quiet.call(lambda: send("127.0.0.9", server.port, 4321))
    pid = scanner.fork(scan)
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        quiet.call(lambda: send("127.0.0.9", server.port, 10))
        watched.take()
        keys, _ = ground.tracer.endpoints.read()
        assert (keys["cgroup_id"] == scanner.cgroup_id).sum() <= map_layout.MAX_ENDPOINTS
    until(lambda: all_closed(scanner) and all_closed(quiet))
    watched.take()
    watched.take()
    keys, _ = ground.tracer.endpoints.read()
    assert (keys["cgroup_id"] == scanner.cgroup_id).sum() <= KEPT
    assert watched.column(scanning, "tcp_refused") == count
    assert watched.column(scanning, "tcp_sent_bytes") == count // 100 * 1000
    # with most bytes it is never among those that give way; while the table is full it can be late to come
    heavy = watched.by_endpoint(scanning)["127.0.0.5", server.port]
    assert heavy["SentBytes"] > 0
    other = watched.by_endpoint(talking)
    assert set(other) == {("127.0.0.9", server.port)}
    assert other["127.0.0.9", server.port]["SentBytes"] == watched.column(talking, "tcp_sent_bytes") > 4321
    assert watched.rest(talking)["SentBytes"] == 0


@pytest.mark.guest
def test_a_slots_entries_go_with_it(ground: Ground, watched: Watched, server: Server) -> None:
    slot, other = ground.slot("condor_slot1"), ground.slot("condor_slot2")
    watched.add(slot)
    watched.add(other)
    for each in (slot, other):
        each.call(lambda: send("127.0.0.2", server.port, 10))
    until(lambda: all_closed(slot) and all_closed(other))
    gone = slot.cgroup_id
    ground.tracer.stop(slot.index)
    ground.tracer.settle()
    keys, _ = ground.tracer.endpoints.read()
    assert gone not in keys["cgroup_id"] and other.cgroup_id in keys["cgroup_id"]


@pytest.mark.guest
def test_at_basic_nothing_is_kept_by_endpoint(slot: Slot, watched: Watched, server: Server, nobody: int) -> None:
    run = watched.add(slot, Level.BASIC)
    slot.call(lambda: (send("127.0.0.2", server.port, 1234), knock("127.0.0.1", nobody)))
    until(lambda: all_closed(slot))
    watched.take()
    assert watched.listed(run) == []
    keys, _ = slot.tracer.endpoints.read()
    assert slot.cgroup_id not in keys["cgroup_id"]
    assert watched.column(run, "tcp_sent_bytes") == 1234
    assert watched.column(run, "tcp_refused") == watched.column(run, "udp_sends") == -1


@pytest.mark.guest
def test_a_level_that_goes_up_and_down_loses_and_doubles_nothing(slot: Slot, watched: Watched, server: Server) -> None:
    run = watched.add(slot, Level.BASIC)
    slot.call(lambda: send("127.0.0.2", server.port, 1000))
    watched.take()
    watched.set_level(run, Level.IO)
    for round in range(5):
        # begun at one level, measured at the other, and closed at either
        with paused(slot, lambda: held("127.0.0.3", server.port, 300)):
            watched.take()
            watched.set_level(run, Level.BASIC if round % 2 else Level.IO)
        slot.call(lambda: send("127.0.0.3", server.port, 200))
        until(lambda: all_closed(slot))
        watched.set_level(run, Level.BASIC if round % 2 == 0 else Level.IO)
        watched.take()
    watched.set_level(run, Level.IO)
    found = watched.by_endpoint(run)
    assert found["127.0.0.3", server.port]["SentBytes"] == 5 * 500
    assert found["127.0.0.3", server.port]["Connections"] == 10
    # what was before the level is known in sum alone
    assert (watched.rest(run)["SentBytes"], watched.rest(run)["Connections"]) == (1000, 1)


@pytest.mark.guest
def test_connections_that_a_job_accepts_are_one_endpoint_an_address(slot: Slot, watched: Watched) -> None:
    run = watched.add(slot)
    port_from, port_to = os.pipe()

    def serve() -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(16)
            os.write(port_to, struct.pack("i", listening.getsockname()[1]))
            for _ in range(12):
                connection, _ = listening.accept()
                connection.sendall(b"y" * 50)
                while connection.recv(4096):
                    pass
                connection.close()

    pid = slot.fork(serve)
    (port,) = struct.unpack("i", os.read(port_from, 4))
    for number in range(12):
        with socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.0.{7 + number % 2}", 0)) as client:
            client.sendall(b"x" * 10)
            assert len(client.recv(50, socket.MSG_WAITALL)) == 50
            watched.take()
    assert os.waitpid(pid, 0)[1] == 0
    until(lambda: all_closed(slot))
    found = watched.by_endpoint(run)
    columns = ("Connections", "SentBytes", "ReceivedBytes")
    numbers = {key: tuple(entry[column] for column in columns) for key, entry in found.items()}
    assert numbers == {("127.0.0.7", 0): (6, 300, 60), ("127.0.0.8", 0): (6, 300, 60)}


@pytest.mark.guest
def test_a_job_that_listens_at_thousands_of_ports_turns_nobodys_connections_round(
    ground: Ground, watched: Watched
) -> None:
    """Which side began a connection that outlives its listening socket is remembered for each slot."""
    quiet, hoarder = ground.slot("condor_slot1"), ground.slot("condor_slot2")
    serving = watched.add(quiet)
    watched.add(hoarder)
    port_from, port_to = os.pipe()

    def serve() -> tuple[socket.socket, ...]:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(1)
            os.write(port_to, struct.pack("i", listening.getsockname()[1]))
            connection, _ = listening.accept()
        connection.sendall(b"y" * 50)
        return (connection,)

    def hoard() -> None:
        for _ in range(5000):
            with socket.socket() as listening:
                listening.bind(("127.0.0.1", 0))
                listening.listen(1)
                send_and_accept(listening)

    def call() -> None:
        (port,) = struct.unpack("i", os.read(port_from, 4))
        with socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.7", 0)) as client:
            assert len(client.recv(51, socket.MSG_WAITALL)) == 50

    calling = threading.Thread(target=call)
    calling.start()
    with paused(quiet, serve):
        hoarder.call(hoard)
        assert watched.by_endpoint(serving)["127.0.0.7", 0]["Connections"] == 1
    calling.join()
    until(lambda: all_closed(quiet))
    numbers = {key: entry["SentBytes"] for key, entry in watched.by_endpoint(serving).items()}
    assert numbers == {("127.0.0.7", 0): 50}


@contextmanager
def deaf() -> Iterator[int]:
    """A port whose queue is full: whoever connects gets no answer."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = listening.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(address)
        yield address[1]
        for client in waiting:
            client.close()


@pytest.mark.guest
def test_causes_of_failure_are_told_apart(slot: Slot, watched: Watched, nobody: int) -> None:
    run = watched.add(slot)

    def fail(port: int) -> None:
        knock("127.0.0.1", nobody)
        with socket.socket() as patient:
            patient.setsockopt(socket.IPPROTO_TCP, TCP_USER_TIMEOUT, 300)
            with pytest.raises(TimeoutError):
                patient.connect(("127.0.0.1", port))
        with socket.socket() as hasty:
            hasty.settimeout(0.2)
            with pytest.raises(socket.timeout):
                hasty.connect(("127.0.0.1", port))

    with deaf() as port:
        slot.call(lambda: fail(port))
    found = watched.by_endpoint(run)
    deaf_one = found["127.0.0.1", port]
    assert (deaf_one["Failed"], deaf_one["TimedOut"], deaf_one["FailedOtherwise"]) == (2, 1, 1)
    assert (found["127.0.0.1", nobody]["Failed"], found["127.0.0.1", nobody]["Refused"]) == (1, 1)
    names = ("tcp_failed", "tcp_refused", "tcp_timed_out", "tcp_unreachable")
    assert [watched.column(run, name) for name in names] == [3, 1, 1, 0]


def unreachable(syn: bytes) -> bytes:
    """The ICMP message with which a router answers this packet: host unreachable."""
    body = struct.pack("!BBHI", 3, 1, 0, 0) + syn[:28]
    total = sum(struct.unpack(f"!{len(body) // 2}H", body))
    total = (total & 0xFFFF) + (total >> 16)
    return body[:2] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + body[4:]


ASKER = "127.0.0.9"
"""Whose packets are no one else's: those who wait at the deaf port send again after a second."""


@pytest.mark.guest
def test_what_a_router_calls_unreachable_is_that(slot: Slot, watched: Watched) -> None:
    run = watched.add(slot)

    def go(port: int) -> None:
        with socket.socket() as client, pytest.raises(OSError, match="No route to host"):
            client.bind((ASKER, 0))
            client.connect(("127.0.0.1", port))

    with deaf() as port, socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as wire:
        wire.bind(("lo", 0x0800))
        pid = slot.fork(lambda: go(port))
        while True:
            packet = wire.recv(2048)
            is_syn = packet[9] == 6 and packet[33] == 2 and struct.unpack("!H", packet[22:24])[0] == port
            if is_syn and packet[12:16] == socket.inet_aton(ASKER):
                break
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as router:
            while os.waitpid(pid, os.WNOHANG) == (0, 0):
                router.sendto(unreachable(packet), ("127.0.0.1", 0))
                threading.Event().wait(0.05)
    entry = watched.by_endpoint(run)["127.0.0.1", port]
    assert (entry["Failed"], entry["Unreachable"]) == (1, 1)
    assert watched.column(run, "tcp_unreachable") == 1


@pytest.mark.guest
def test_a_container_with_a_network_of_its_own_is_counted_when_its_connections_close(
    slot: Slot, watched: Watched
) -> None:
    run = watched.add(slot)
    ready_from, ready_to = os.pipe()
    go_from, go_to = os.pipe()

    def contained() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(CLONE_NEWNET) == 0
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        inside = Server()
        client = connect("127.0.0.77", inside.port)
        client.sendall(b"x" * 5000)
        os.write(ready_to, struct.pack("i", inside.port))
        os.read(go_from, 1)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        client.close()
        inside.close()

    pid = slot.fork(contained)
    (port,) = struct.unpack("i", os.read(ready_from, 4))
    assert watched.by_endpoint(run) == {}
    rest = watched.rest(run)
    # both sides are the job's own
    assert (rest["Connections"], rest["SentBytes"]) == (2, 0)
    # one that is just being closed may be missed as well
    assert watched.runs.rows["uncounted"][run] == b""
    assert watched.by_endpoint(run) == {}
    assert watched.runs.rows["uncounted"][run].decode() == ELSEWHERE
    os.write(go_to, b"g")
    assert os.waitpid(pid, 0)[1] == 0
    until(lambda: all_closed(slot))
    found = watched.by_endpoint(run)
    assert found["127.0.0.77", port]["SentBytes"] == 5000
    assert found["127.0.0.1", 0]["ReceivedBytes"] == 5000


@pytest.fixture
def before(name: str, tmp_path: Path, server: Server) -> Iterator[tuple[Ground, Slot, Watched, int]]:
    """A tracer that will have a successor, and a run that has sent 1000 bytes to 127.0.0.4."""
    with on_ground(name) as ground:
        slot = ground.slot()
        watched = Watched(ground.tracer, tmp_path / "runs")
        run = watched.add(slot)
        slot.call(lambda: send("127.0.0.4", server.port, 1000))
        yield ground, slot, watched, run


@pytest.mark.guest
def test_a_killed_agents_successor_finds_every_endpoint(
    before: tuple[Ground, Slot, Watched, int], tmp_path: Path, server: Server
) -> None:
    ground, slot, watched, run = before
    with paused(slot, lambda: held("127.0.0.5", server.port, 300)):
        assert watched.by_endpoint(run)["127.0.0.5", server.port]["SentBytes"] == 300
        # nobody is there meanwhile
        slot.call(lambda: send("127.0.0.4", server.port, 10))
        successor = Tracer(64, ground.pins)
        assert successor.adopted
        later = Watched(successor, tmp_path / "runs")
        found = later.by_endpoint(run)
        assert found["127.0.0.4", server.port]["SentBytes"] == 1010
        assert found["127.0.0.5", server.port]["SentBytes"] == 300
    until(lambda: all_closed(slot))
    found = later.by_endpoint(run)
    assert found["127.0.0.5", server.port]["SentBytes"] == 300
    assert later.rest(run)["SentBytes"] == 0


@pytest.mark.guest
def test_programs_that_are_loaded_anew_go_on_from_what_was_listed(
    before: tuple[Ground, Slot, Watched, int], tmp_path: Path, server: Server
) -> None:
    """As after an orderly stop: what was carried meanwhile is in no number, what comes then is in the right one."""
    ground, slot, watched, run = before
    with paused(slot, lambda: held("127.0.0.5", server.port, 300)):
        watched.take()
        ground.tracer.close()
        slot.call(lambda: send("127.0.0.4", server.port, 10))
        ground.tracer = slot.tracer = Tracer(64, ground.pins)
        ground.watch(ground.base)
        later = Watched(ground.tracer, tmp_path / "runs")
        later.runs.state["kernel_slot"][run] = ground.tracer.take(slot.cgroup_id, int(Level.IO))
        later.runs.rows["complete"][run] = False
        measure.rebase(later.node, run)
        later.take()
        slot.call(lambda: send("127.0.0.4", server.port, 7))
        later.take()
    until(lambda: later.take() or later.column(run, "tcp_sent_bytes") == 1307)
    until(lambda: slot.tracer.counters["closed"][slot.index] == 2)
    found = later.by_endpoint(run)
    assert found["127.0.0.4", server.port]["SentBytes"] == 1007
    assert found["127.0.0.5", server.port]["SentBytes"] == 300
    assert later.rest(run)["SentBytes"] == 0


@pytest.mark.guest
def test_a_run_that_goes_on_in_another_cgroup_keeps_its_endpoints(
    ground: Ground, watched: Watched, server: Server
) -> None:
    first = ground.slot("condor_slot1")
    run = watched.add(first)
    first.call(lambda: send("127.0.0.4", server.port, 1000))
    until(lambda: all_closed(first))
    watched.take()
    before = watched.runs.rows[run].copy()
    watched.runs.remove(run)
    second = ground.slot("condor_slot2")
    run = watched.add(second)
    for column in ("tcp_sent_bytes", "tcp_connected", "tcp_received_bytes"):
        watched.runs.state["offset"][column][run] += before[column]
        watched.runs.rows[column][run] = before[column]
    for _ in range(2):
        watched.node.collectors.endpoints.lists.carry(watched.runs.rows, run, second.cgroup_id, before["endpoints"])
    second.call(lambda: send("127.0.0.4", server.port, 200))
    until(lambda: all_closed(second))
    entry = watched.by_endpoint(run)["127.0.0.4", server.port]
    assert (entry["SentBytes"], entry["Connections"]) == (1200, 2)


def test_entries_have_the_sites_names(slot: Slot, ground: Ground, tmp_path: Path, server: Server) -> None:
    table = f"127.0.0.0/24:{server.port} = near, 127.0.0.3 = other, ::1 = six"
    named = Watched(ground.tracer, tmp_path / "runs", table)
    run = named.add(slot)
    slot.call(lambda: [send(address, server.port, 10) for address in ("127.0.0.2", "127.0.0.3", "::1", "127.1.0.1")])
    until(lambda: all_closed(slot))
    found = {address: entry.get("Name") for (address, _), entry in named.by_endpoint(run).items()}
    assert found == {"127.0.0.2": "near", "127.0.0.3": "other", "::1": "six", "127.1.0.1": None}
    named.node.collectors.endpoints.lists.rename(endpoint_names.parse("*:1 = none, 127.1.0.1 = renamed"))
    found = {address: entry.get("Name") for (address, _), entry in named.by_endpoint(run).items()}
    assert found["127.1.0.1"] == "renamed" and found["127.0.0.2"] is None


def test_the_sum_is_the_total_while_a_job_talks_to_many(slot: Slot, watched: Watched, server: Server) -> None:
    """`Watched.take` looks at every sum and at every listed number, in the midst of connections of all ages."""
    run = watched.add(slot)

    def talk(seed: int) -> None:
        random = np.random.default_rng(seed)
        kept: list[socket.socket] = []
        for _ in range(1500):
            client = connect(f"127.0.{random.integers(3)}.{random.integers(1, 40)}", server.port)
            client.send(b"x" * int(random.integers(1, 3000)))
            kept.append(client)
            if len(kept) > 30:
                with kept.pop(int(random.integers(30))) as ended:
                    ended.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    pids = [slot.fork(lambda seed=seed: talk(seed)) for seed in range(3)]  # type: ignore[misc]
    for pid in pids:
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            watched.take()
    until(lambda: all_closed(slot), 90)
    watched.take()
    assert watched.column(run, "tcp_connected") == 4500
    assert watched.runs.rows["uncounted"][run] == b""
    assert len(watched.listed(run)) == LISTED + 1 and watched.rest(run)["Connections"] > 0


def kernel_is_before(*release: int) -> bool:
    return tuple(int(part) for part in os.uname().release.split(".")[:2]) < release


@pytest.fixture(params=["as the kernel tells", "by calls"])
def udp_watched(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, slot: Slot, watched: Watched
) -> Iterator[tuple[Watched, int]]:
    """A run at level io, of which UDP is counted in either of two ways; old kernels know the second alone."""
    if request.param == "by calls":
        parts = [replace(part, variants=part.variants[-1:]) if part.name == "UDP" else part for part in Io.parts]
        monkeypatch.setattr(Io, "parts", tuple(parts))
    slot.tracer.settle()
    run = watched.add(slot)
    assert slot.tracer.sensors["io"].start(slot.index) and "UDP" not in slot.tracer.missing
    by_calls = "jl_udp_sys_exit" in slot.tracer.attached()
    assert by_calls == (request.param == "by calls" or kernel_is_before(6, 3))
    yield watched, run
    slot.tracer.sensors["io"].stop(slot.index)
    slot.tracer.settle()


@pytest.mark.guest
def test_udp_is_counted_and_dns_told_apart(slot: Slot, udp_watched: tuple[Watched, int]) -> None:
    """By a server of our own at port 53 of an address of loopback's."""
    watched, run = udp_watched
    names = ("udp_sends", "udp_sent_bytes", "udp_receives", "udp_received_bytes", "udp_dns_queries", "udp_dns_answers")
    with socket.socket(type=socket.SOCK_DGRAM) as dns, socket.socket(type=socket.SOCK_DGRAM) as other:
        dns.bind(("127.0.0.53", 53))
        other.bind(("127.0.0.53", 0))
        for each in (dns, other):
            threading.Thread(target=answer, args=(each,), daemon=True).start()
        slot.call(lambda: ask_around(other.getsockname()))
        for each in (dns, other):
            with socket.socket(type=socket.SOCK_DGRAM) as stopper:
                stopper.sendto(b"stop", each.getsockname())
        watched.take()
    found = [watched.column(run, name) for name in names]
    by_calls = "jl_udp_sys_exit" in slot.tracer.attached()
    # of each of ten rounds: questions for a name in three ways, another question, and one that is written as to a file
    expected, written = np.array([40, 10 * 67, 40, 40 * 30, 30, 30]), np.array([10, 10 * 10, 10, 10 * 30, 10, 10])
    assert found == (expected if by_calls else expected + written).tolist()
    uncounted = watched.runs.rows["uncounted"][run].decode()
    assert (UDP_BY_FILE in uncounted) == by_calls


def test_messages_that_one_call_sends_are_counted_one_by_one(slot: Slot, udp_watched: tuple[Watched, int]) -> None:
    """As the C library asks for an address of either family."""
    watched, run = udp_watched
    with socket.socket(type=socket.SOCK_DGRAM) as dns:
        dns.bind(("127.0.0.53", 53))
        slot.call(lambda: send_two(dns.getsockname()))
        assert [len(dns.recv(512)) for _ in range(2)] == [21, 34]
    watched.take()
    columns = ("udp_sends", "udp_sent_bytes", "udp_dns_queries")
    assert [watched.column(run, name) for name in columns] == [2, 55, 2]


def send_two(address: tuple[str, int]) -> None:
    leave_the_cpu()
    libc = ctypes.CDLL(None, use_errno=True)
    with socket.socket(type=socket.SOCK_DGRAM) as resolver:
        resolver.connect(address)
        bodies = [ctypes.create_string_buffer(size) for size in (21, 34)]
        vectors = [(ctypes.c_uint64 * 2)(ctypes.addressof(body), len(body)) for body in bodies]
        headers = b"".join(struct.pack("QI4xQQQQi4xI4x", 0, 0, ctypes.addressof(v), 1, 0, 0, 0, 0) for v in vectors)
        assert libc.sendmmsg(resolver.fileno(), headers, 2, 0) == 2, os.strerror(ctypes.get_errno())


def answer(server: socket.socket) -> None:
    while True:
        question, client = server.recvfrom(512)
        if question == b"stop":
            return
        server.sendto(b"a" * 30, client)


def ask_around(other: tuple[str, int]) -> None:
    leave_the_cpu()
    name_server = ("127.0.0.53", 53)
    for _ in range(10):
        with socket.socket(type=socket.SOCK_DGRAM) as fixed:
            fixed.connect(name_server)
            fixed.send(b"q" * 20)
            assert len(fixed.recv(512, socket.MSG_PEEK)) == 30
            assert len(fixed.recv(512)) == 30
        with socket.socket(type=socket.SOCK_DGRAM) as free:
            free.sendto(b"q" * 20, name_server)
            assert len(free.recvfrom(512)[0]) == 30
            free.sendmsg([b"q" * 10, b"q" * 10], [], 0, name_server)
            assert len(free.recvmsg(512)[0]) == 30
            free.sendto(b"q" * 7, other)
            assert len(free.recv(512)) == 30
        with socket.socket(type=socket.SOCK_DGRAM) as written:
            written.connect(name_server)
            assert os.write(written.fileno(), b"q" * 10) == 10
            assert len(os.read(written.fileno(), 512)) == 30


def test_a_stream_of_a_unix_socket_is_neither(slot: Slot, udp_watched: tuple[Watched, int]) -> None:
    watched, run = udp_watched

    def talk() -> None:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            one, two = socket.socketpair(type=kind)
            one.sendall(b"x" * 100)
            assert len(two.recv(200)) == 100

    slot.call(talk)
    watched.take()
    assert watched.column(run, "udp_sends") == watched.column(run, "tcp_sent_bytes") == 0


def test_scopes_are_by_address(slot: Slot, watched: Watched) -> None:
    """Without a way out of this machine a connection to elsewhere fails, and is of the outside."""
    run = watched.add(slot)

    def go() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(CLONE_NEWNET) == 0
        for arguments in ("link set lo up", "address add 192.0.2.1/24 dev lo"):
            subprocess.run(["ip", *arguments.split()], check=True)
        inside = Server()
        send("192.0.2.1", inside.port, 100)
        send("127.0.0.1", inside.port, 10)
        inside.close()

    slot.call(go)
    until(lambda: all_closed(slot))
    scopes = {key[0]: entry["Scope"] for key, entry in watched.by_endpoint(run).items() if key[1]}
    assert scopes == {"192.0.2.1": Scope.OUTSIDE.name.lower(), "127.0.0.1": Scope.LOOPBACK.name.lower()}
    assert watched.column(run, "tcp_loopback_sent_bytes") == 10
    assert watched.column(run, "tcp_sent_bytes") == 110
