"""The control socket: whoever connects, and whatever they say, a good client is answered."""

from __future__ import annotations

import os
import random
import resource
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_socket import Server, ask, client, end_of, request
from sent_descriptors import are_refused
from wrapper_site import Site, run

from condor_joblens.common import descriptors
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import frames
from condor_joblens.control import server as server_module
from condor_joblens.control.server import ControlServer
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import VERBS, Request

GOOD = b"joblens/1\0activate\0slot=slot1_1\0scratch=/var/lib/condor/execute/dir_1\0"
TRACED = b"joblens/1\0traced\0level=basic\0"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "activate.sock")


@pytest.fixture
def server(path: str) -> Iterator[Server]:
    server = Server(path)
    yield server
    server.stop()


def test_who_asks_is_known_from_the_kernel(server: Server, path: str) -> None:
    assert ask(path, GOOD) == TRACED
    assert end_of(ask(path, *request("activate"))).word == "traced"
    assert [(it.pid, it.uid) for it in server.asked] == [(os.getpid(), os.getuid())] * 2


def test_each_verb_is_granted_with_its_word_and_refused_with_the_reason(server: Server, path: str) -> None:
    assert ask(path, b"joblens/1\0level\0job=12.0\0clear=1\0") == b"joblens/1\0done\0level=basic\0"
    assert ask(path, b"joblens/1\0level\0job=1\0level=trace\0") == b"joblens/1\0refused\0reason=above the site's cap\0"


def test_a_verb_that_there_is_not_reaches_no_handler(server: Server, path: str) -> None:
    assert ask(path, b"joblens/1\0end\0job=12.0\0").startswith(b"joblens/1\0refused\0reason=no such verb: end")
    assert not server.asked


def test_everybody_may_connect(server: Server, path: str) -> None:
    assert os.stat(path).st_mode & 0o777 == 0o666


def test_a_refusal_is_one_printable_line(server: Server, path: str) -> None:
    answer = ask(path, b"joblens/1\0\x1b[31m\nreboot\0")
    assert answer.startswith(b"joblens/1\0refused\0reason=no such verb: ")
    assert answer[:-1].replace(b"\0", b"").decode("ascii").isprintable()


@pytest.mark.parametrize("packet", [b"\xff" * 4096, b"\0" * 4096, b"x", GOOD[:-1]])
def test_garbage_is_refused(server: Server, path: str, packet: bytes) -> None:
    assert ask(path, packet).startswith(b"joblens/1\0refused\0reason=")
    assert server.asked == []
    assert ask(path, GOOD) == TRACED


def test_a_great_packet_is_refused(server: Server, path: str) -> None:
    with client(path) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        size = 1 << 20
        while True:
            try:
                connection.send(b"joblens/1\0" + b"x" * size + b"\0")
                break
            except OSError:  # more than the kernel takes at once: nothing was sent
                size //= 2
        assert size > 100_000
        assert connection.recv(4096).startswith(b"joblens/1\0refused\0reason=")
    assert ask(path, GOOD) == TRACED


def test_who_says_nothing_is_let_go(server: Server, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE", 1.0)
    with client(path) as silent:
        assert silent.recv(1) == b""
    assert ask(path, GOOD) == TRACED


def test_an_empty_packet_and_a_hang_up_are_survived(server: Server, path: str) -> None:
    for act in (lambda it: it.send(b""), lambda it: None, lambda it: it.send(GOOD)):
        with client(path) as connection:
            act(connection)
    assert ask(path, GOOD) == TRACED


def test_a_descriptor_that_is_sent_along_is_not_taken(server: Server, path: str) -> None:
    """Closing it could take minutes: a TCP connection with SO_LINGER whose peer does not read."""
    with client(path) as connection, open(os.devnull) as file:
        if are_refused():
            with pytest.raises(PermissionError):
                descriptors.send(connection, GOOD, [file.fileno()])
        else:
            descriptors.send(connection, GOOD, [file.fileno()])
            assert connection.recv(4096) == TRACED
    assert ask(path, GOOD) == TRACED


def test_thousands_that_stay_delay_nobody(server: Server, path: str) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    crowd = []
    try:
        for number in range(3000):
            crowd.append(client(path))
            if number % 500 == 0:
                assert ask(path, GOOD) == TRACED
        assert ask(path, GOOD) == TRACED
        # what one turn of the loop has taken comes on top, until the turn ends
        assert server.connections() <= server_module.MAX_CONNECTIONS + 64
    finally:
        for connection in crowd:
            connection.close()


def test_a_second_server_says_that_there_is_one(server: Server, path: str) -> None:
    with pytest.raises(JobLensError, match="another joblensd") as refused:
        ControlServer(path, selectors.DefaultSelector(), server, print)
    assert "\n" not in str(refused.value)
    assert ask(path, GOOD) == TRACED


def test_what_a_dead_server_left_is_taken_over(path: str) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    dead.bind(path)
    dead.close()
    server = Server(path)
    assert ask(path, GOOD) == TRACED
    server.stop()
    assert not os.path.exists(path)


class Nothing:
    """Commands that are never called."""

    def answer(self, request: Request) -> dict[str, str]:
        raise AssertionError

    def stream(self, request: Request, stream: Stream) -> None:
        raise AssertionError


def test_where_no_socket_can_be_made_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(JobLensError) as refused:
        ControlServer(str(tmp_path / "missing" / "activate.sock"), selectors.DefaultSelector(), Nothing(), print)
    assert "missing/activate.sock" in str(refused.value) and "\n" not in str(refused.value)


def test_a_command_that_fails_costs_its_request_alone_and_the_log_says_where(server: Server, path: str) -> None:
    answer = ask(path, b"joblens/1\0level\0job=bug\0")
    assert answer == b"joblens/1\0refused\0reason=joblensd failed on this request: its log says how\0"
    assert "RuntimeError: a bug" in server.log[0] and "control_socket.py" in server.log[0]
    assert ask(path, GOOD) == TRACED


# -- a share for each user ------------------------------------------------------------------------------------


class Purse:
    """A share of the time that is spent with the first request, until it is filled again."""

    def __init__(self) -> None:
        self.is_empty = False

    def spend(self, began: float) -> None:
        self.is_empty = True

    def pause(self, now: float) -> float:
        return 7.0 if self.is_empty else 0.0


def test_who_has_had_his_share_waits_and_nobody_else_does(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    purses: list[Purse] = []
    asked: list[int] = []

    class Basic(Nothing):
        def answer(self, request: Request) -> dict[str, str]:
            asked.append(request.uid)
            return {"level": "basic"}

    def fill() -> Purse:
        purses.append(Purse())
        return purses[-1]

    uids: dict[socket.socket, int] = {}  # the fourth is another user's
    monkeypatch.setattr(server_module, "_peer", lambda it: (1, uids.setdefault(it, int(len(uids) > 2))))
    selector = selectors.DefaultSelector()
    server = ControlServer(path, selector, Basic(), print, fill)

    def serve() -> None:
        for key, _ in selector.select(0):
            key.data()

    talkers = [client(path) for _ in range(4)]
    for talker in talkers:
        talker.send(GOOD)
    serve()
    assert asked == [0, 1] and server.timeout(time.monotonic()) == 7.0
    server.resume(time.monotonic())
    assert asked == [0, 1], "the flood waits"
    purses[0].is_empty = False
    server.resume(time.monotonic())
    assert asked == [0, 1, 0] and talkers[1].recv(100) == TRACED, "one at a time, the longest waiting first"
    server.expire(time.monotonic() + 2 * server_module.PATIENCE)
    assert received(talkers[2]) == b"" and server.timeout(time.monotonic()) == 3600.0
    server.close()
    for talker in talkers:
        talker.close()


# -- version 2 ------------------------------------------------------------------------------------------------


def test_each_version_is_answered_in_its_own(server: Server, path: str) -> None:
    assert end_of(ask(path, *request("level", job=b"12.0"))) == frames.Words("done", {"level": b"basic"})
    refused = end_of(ask(path, *request("level", job=b"12.0", level=b"trace")))
    assert refused == frames.Words("refused", {"reason": b"above the site's cap"})
    assert ask(path, b"joblens/3\0level\0").startswith(b"joblens/1\0refused\0reason=the protocol is")


def test_a_request_larger_than_a_packet_arrives_in_several(server: Server, path: str) -> None:
    packets = request("dance", job=b"x" * 60_000)
    assert len(packets) == 4
    assert end_of(ask(path, *packets)).fields["reason"] == b"no such verb: dance"
    packets = request("level", job=b"12.0", junk=b"x" * 60_000)
    assert end_of(ask(path, *packets)).fields["reason"] == b"level has no argument junk"


def test_half_a_request_is_let_go(server: Server, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE", 1.0)
    with client(path) as half:
        half.send(request("level", job=b"x" * 60_000)[0])
        assert ask(path, GOOD) == TRACED
        assert half.recv(1) == b""
    assert server.run(lambda: len(server.server._unfinished)) == 0


def test_a_user_has_few_halves_of_requests(server: Server, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE", 20.0)
    half, rest = request("level", job=b"x" * 20_000)
    halves = [client(path) for _ in range(server_module.MAX_UNFINISHED_OF_A_USER)]
    for connection in halves:
        connection.send(half)
    while server.run(lambda: len(server.server._unfinished)) < len(halves):
        time.sleep(0.01)
    assert b"unfinished requests" in end_of(ask(path, half)).fields["reason"]
    halves[0].send(rest)
    assert b"job: has 20000 bytes" in end_of(halves[0].recv(4096)).fields["reason"]
    for connection in halves:
        connection.close()


# -- the wrapper's helper -------------------------------------------------------------------------------------


def test_the_helper_of_the_wrapper_is_answered() -> None:
    """The C program that every job starts with, of this version; its packets are those of 0.1 (test_wrapper.py)."""
    folder = Path(tempfile.mkdtemp(prefix="joblens-", dir="/tmp"))  # a socket's path has at most 107 bytes
    try:
        site = Site(folder, "sh", os.getuid())
        site.be_patient()
        server = Server(str(site.socket))
        environment = {"_CONDOR_SLOT": "slot1_1", "_CONDOR_SCRATCH_DIR": "/var/lib/condor/execute/dir_1"}
        # It looks at the environment that its parent was started with: here a shell's that was given a PWD.
        shell = ["/bin/sh", "-c", '"$0"; exit $?', str(site.helper)]
        trace = run(shell, env={**environment, "PWD": "/"})
        assert trace.returncode == 100, "it ran to its end, with nothing to remark"
        assert [(it.verb, it.arguments, it.uid) for it in server.asked] == [
            ("activate", {"slot": "slot1_1", "scratch": "/var/lib/condor/execute/dir_1"}, os.getuid())
        ]
        server.stop()
    finally:
        shutil.rmtree(folder)


# -- hostile --------------------------------------------------------------------------------------------------


def packets_of(chance: random.Random) -> list[bytes]:
    """Noise, good packets, and good packets with bytes changed, cut, repeated or in another order."""
    good = [GOOD, b"joblens/1\0level\0job=12.0\0level=io\0", *request("level", job=b"1" * chance.randrange(40_000))]
    kind = chance.randrange(4)
    if kind == 0:
        return [chance.randbytes(chance.randrange(300)) for _ in range(chance.randrange(1, 3))]
    if kind == 1:
        header = b"joblens/2\0" + chance.choice([b"Q", b"D", b"E", b"x"])
        return [header + chance.randbytes(chance.randrange(30)) for _ in range(chance.randrange(1, 3))]
    packet = bytearray(chance.choice(good))
    for _ in range(chance.randrange(3)):
        packet[chance.randrange(len(packet))] = chance.randrange(256)
    changed = bytes(packet[: chance.choice([len(packet), chance.randrange(1, len(packet) + 1)])])
    return [changed] if kind == 2 else [changed, chance.choice(good), changed][: chance.randrange(1, 4)]


def received(connection: socket.socket) -> bytes:
    """A packet, or nothing; a connection that is closed with unread packets of ours is reset."""
    try:
        return connection.recv(1 << 17)
    except ConnectionResetError:
        return b""


def test_ten_thousand_random_packets_are_answered_or_hung_up_on(server: Server, path: str) -> None:
    """No exception, no hang, no answer to what was not asked, and nothing is left behind."""
    chance = random.Random(20220609)
    sent = answered = 0
    while sent < 10_000:
        with client(path) as connection:
            before = len(server.asked)
            for packet in packets_of(chance):
                sent += 1
                try:
                    connection.send(packet)
                except OSError:  # it has been answered already
                    break
            connection.shutdown(socket.SHUT_WR)
            answer = received(connection)
            if not answer:
                continue
            answered += 1
            words = frames.decode_packet(answer) if frames.version_of(answer) == 1 else end_of(answer)
            if words.word != "refused":
                asked = server.asked[before:]
                assert [VERBS[it.verb].granted for it in asked] == [words.word]
            assert received(connection) == b"", "one request has one answer"
    assert answered > 1000
    assert server.log == []
    assert server.run(lambda: (len(server.server._unfinished), len(server.server._streams))) == (0, 0)
    assert ask(path, GOOD) == TRACED
