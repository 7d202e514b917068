"""The activation socket: whoever connects, and whatever they say, a good client is answered."""

from __future__ import annotations

import os
import resource
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from condor_joblens.common.errors import JobLensError
from condor_joblens.jobs import activation
from condor_joblens.jobs.activation import ActivationSocket, Refused, Request, pack, parse

GOOD = b"joblens/1\0activate\0slot=slot1_1\0scratch=/var/lib/condor/execute/dir_1\0"
TRACED = b"joblens/1\0traced\0level=basic\0"


# -- packets ------------------------------------------------------------------------------------------------


def test_a_request_is_taken_apart() -> None:
    assert parse(GOOD, 7, 1000) == Request(
        "activate", {"slot": "slot1_1", "scratch": "/var/lib/condor/execute/dir_1"}, 7, 1000
    )


def test_what_is_no_claim_and_what_is_unknown_is_left_alone() -> None:
    assert parse(b"joblens/1\0activate\0nothing\0later=1\0slot=a=b\0", 1, 1).claims == {"later": "1", "slot": "a=b"}


@pytest.mark.parametrize(
    "packet, reason",
    [
        (b"joblens/1\0activate", "NUL-terminated"),
        (b"", "NUL-terminated"),
        (b"\0", "protocol"),
        (b"joblens/2\0activate\0", "protocol"),
        (b"joblens/1\0", "verb"),
        (b"GET / HTTP/1.1\r\n\r\n\0", "protocol"),
        (GOOD + b"x" * 4096 + b"\0", "4096 bytes"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(packet: bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        parse(packet, 1, 1)


@given(st.binary(max_size=5000))
@example(b"joblens/1\0\0")
@example(b"joblens/1\0activate\0=\0")
def test_any_bytes_are_a_request_or_refused(packet: bytes) -> None:
    try:
        request = parse(packet, 1, 2)
    except Refused:
        return
    assert (request.pid, request.uid) == (1, 2)


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    claims = parse(b"joblens/1\0activate\0scratch=/a\xff\n\0", 1, 1).claims
    assert os.fsencode(claims["scratch"]) == b"/a\xff\n"


@given(st.text(), st.dictionaries(st.text(), st.text()))
@example("refused", {"reason": "x" * 1000})
@example("refused", {"reason": "é" * 400})
@example("refused", {"reason": "\udcff"})
def test_an_answer_is_always_a_packet(verb: str, fields: dict[str, str]) -> None:
    packet = pack(verb, fields)
    assert len(packet) <= activation.MAX_ANSWER_BYTES
    assert packet.startswith(b"joblens/1\0") and packet.endswith(b"\0")


NAMES = st.from_regex("[a-z]{1,8}", fullmatch=True)
VALUES = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=20)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_packed_can_be_parsed(fields: dict[str, str]) -> None:
    assert parse(pack("traced", fields), 1, 1) == Request("traced", fields, 1, 1)


# -- the socket ---------------------------------------------------------------------------------------------


class Server:
    """The socket in a loop of its own, as in the agent."""

    def __init__(self, path: str) -> None:
        self.asked: list[Request] = []
        self._selector = selectors.DefaultSelector()
        self._wake, wakes = socket.socketpair()
        self._selector.register(wakes, selectors.EVENT_READ, lambda: None)
        self._over = False
        self._socket = ActivationSocket(path, self._selector, self._answer)
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def _answer(self, request: Request) -> dict[str, str]:
        self.asked.append(request)
        if request.claims.get("level") == "trace":
            raise Refused("above the site's cap")
        return {"level": "basic"}

    def _loop(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.05):
                key.data()
            self._socket.expire(activation.time.monotonic())

    def connections(self) -> int:
        return len(self._socket._connections)

    def stop(self) -> None:
        self._over = True
        self._wake.send(b"!")
        self._thread.join()
        self._socket.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "activate.sock")


@pytest.fixture
def server(path: str) -> Iterator[Server]:
    server = Server(path)
    yield server
    server.stop()


def client(path: str, seconds: float = 20) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(seconds)
    connection.connect(path)
    return connection


def ask(path: str, packet: bytes) -> bytes:
    with client(path) as connection:
        connection.send(packet)
        return connection.recv(4096)


def test_who_asks_is_known_from_the_kernel(server: Server, path: str) -> None:
    assert ask(path, GOOD) == TRACED
    (request,) = server.asked
    assert (request.pid, request.uid) == (os.getpid(), os.getuid())


def test_each_verb_is_granted_with_its_word_and_refused_with_the_reason(server: Server, path: str) -> None:
    assert ask(path, b"joblens/1\0level\0job=12.0\0clear=1\0") == b"joblens/1\0done\0level=basic\0"
    assert ask(path, b"joblens/1\0level\0level=trace\0") == b"joblens/1\0refused\0reason=above the site's cap\0"


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
    monkeypatch.setattr(activation, "PATIENCE", 0.2)
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
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", file.fileno()))]
        if is_linux(6, 16):
            with pytest.raises(PermissionError):
                connection.sendmsg([GOOD], rights)
        else:
            connection.sendmsg([GOOD], rights)
            assert connection.recv(4096) == TRACED
    assert ask(path, GOOD) == TRACED


def is_linux(*least: int) -> bool:
    return tuple(int(part) for part in os.uname().release.split(".")[:2]) >= least


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
        assert server.connections() <= activation.MAX_CONNECTIONS + 64
    finally:
        for connection in crowd:
            connection.close()


def test_a_second_server_says_that_there_is_one(server: Server, path: str) -> None:
    with pytest.raises(JobLensError, match="another joblensd") as refused:
        ActivationSocket(path, selectors.DefaultSelector(), lambda request: {})
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


def test_where_no_socket_can_be_made_one_line_says_so(tmp_path: Path) -> None:
    with pytest.raises(JobLensError) as refused:
        ActivationSocket(str(tmp_path / "missing" / "activate.sock"), selectors.DefaultSelector(), lambda request: {})
    assert "missing/activate.sock" in str(refused.value) and "\n" not in str(refused.value)
