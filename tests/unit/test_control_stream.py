"""Streams of the control socket: in order, to their end, for as long as their reader takes them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control_socket import Server, ask, client, end_of, request

from condor_joblens.common.errors import JobLensError, UsageError
from condor_joblens.control import client as control_client
from condor_joblens.control import frames
from condor_joblens.control import server as server_module
from condor_joblens.control import stream as stream_module
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request

WATCH = {"job": "12.0", "schema": "1"}
GOOD = b"joblens/1\0activate\0slot=slot1_1\0"
TRACED = b"joblens/1\0traced\0level=basic\0"

MakeServer = Callable[..., Server]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "activate.sock")


@pytest.fixture
def serve(path: str) -> Iterator[MakeServer]:
    servers = []

    def make(begin: Callable[[Request, Stream], None] | None = None) -> Server:
        servers.append(Server(path, begin))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()


def until(condition: Callable[[], object]) -> None:
    """Waits; the test's own limit ends it."""
    while not condition():
        time.sleep(0.01)


def read(connection: socket.socket) -> list[tuple[bytes, bytes]]:
    """The messages that come until the server closes."""
    assembler, found = frames.Assembler(frames.DATA + frames.END, frames.MAX_ANSWER), []
    while packet := connection.recv(1 << 17):
        message = assembler.add(packet)
        if message is not None:
            found.append(message)
    return found


def test_what_is_sent_arrives_in_order_and_then_the_end(serve: MakeServer, path: str) -> None:
    sent = [b"a", b"b" * 100_000, b"\0" * frames.MAX_ANSWER, *[b"%d" % number for number in range(1000)]]

    def begin(request: Request, stream: Stream) -> None:
        """Sends when there is room, as whoever has much to say must."""
        left = list(sent)

        def more() -> None:
            while left:
                if not stream.send(left.pop(0)):
                    return
            stream.end({"reason": "that was all"})

        stream.on_room = more
        more()

    serve(begin)
    assert list(control_client.stream(path, "watch", WATCH)) == sent


def test_a_stream_can_go_on_long_after_its_request(serve: MakeServer, path: str) -> None:
    server = serve()
    chunks = control_client.stream(path, "watch", WATCH)
    threading.Thread(target=lambda: (until(lambda: server.streams), server.run(send_three))).start()

    def send_three() -> None:
        (stream,) = server.streams
        assert all(stream.send(data) for data in (b"1", b"2", b"3"))

    assert [next(chunks) for _ in range(3)] == [b"1", b"2", b"3"]
    server.run(lambda: server.streams[0].end({}))
    assert list(chunks) == []


def test_a_refused_stream_is_an_end_with_the_reason(serve: MakeServer, path: str) -> None:
    def begin(request: Request, stream: Stream) -> None:
        raise Refused("no job 12.0 runs on this node")

    server = serve(begin)
    with pytest.raises(JobLensError, match=r"^joblensd refuses: no job 12\.0 runs on this node$"):
        list(control_client.stream(path, "watch", WATCH))
    until(lambda: not server.server._streams)


def test_a_stream_that_fails_is_refused_and_logged(serve: MakeServer, path: str) -> None:
    server = serve(lambda request, stream: 1 / 0)
    with pytest.raises(JobLensError, match="failed on this request"):
        list(control_client.stream(path, "watch", WATCH))
    assert "ZeroDivisionError" in server.log[0]


def test_a_client_that_leaves_cancels_the_stream(serve: MakeServer, path: str) -> None:
    left = threading.Event()

    def begin(request: Request, stream: Stream) -> None:
        stream.on_close = left.set
        stream.send(b"first")

    server = serve(begin)
    chunks = control_client.stream(path, "watch", WATCH)
    assert next(chunks) == b"first"
    chunks.close()
    assert left.wait(20)
    assert server.run(lambda: server.streams[0].send(b"more")) is False
    assert server.run(lambda: len(server.server._streams)) == 0


def test_a_client_that_talks_into_its_stream_loses_it(serve: MakeServer, path: str) -> None:
    server = serve(lambda request, stream: stream.send(b"first") and None)
    with client(path) as connection:
        connection.send(request("watch", job=b"12.0", schema=b"1")[0])
        connection.recv(100)
        connection.send(b"more!")
        until(lambda: not server.run(lambda: server.streams[0].is_open))


def test_who_reads_nothing_is_dropped_at_the_bound_and_delays_nobody(serve: MakeServer, path: str) -> None:
    """A sender that does not look whether there is room."""
    server = serve()
    closed: list[bool] = []
    with client(path) as connection:
        connection.send(request("watch", job=b"12.0", schema=b"1")[0])
        until(lambda: server.streams)
        (stream,) = server.streams
        stream.on_close = lambda: closed.append(True)
        sent = queued = 0
        while server.run(lambda: stream.is_open):
            server.run(lambda: stream.send(b"x" * 10_000))
            sent += 10_000
            queued = max(queued, server.run(lambda: stream._queued))
            assert sent < 10_000_000, "never without limit"
        assert closed == [True]
        assert 0 < queued <= stream_module.MAX_QUEUED
        assert ask(path, GOOD) == TRACED
        assert frames.END not in [kind for kind, _ in read(connection)], "it can see that there is more"


def test_who_looks_for_room_sends_no_more_than_the_kernel_holds(serve: MakeServer, path: str) -> None:
    server = serve()
    with client(path) as connection:
        connection.send(request("watch", job=b"12.0", schema=b"1")[0])
        until(lambda: server.streams)
        (stream,) = server.streams
        sent = 0
        for _ in range(1000):
            if server.run(lambda: stream.has_room):
                server.run(lambda: stream.send(b"x" * 6000))
                sent += 1
        assert 0 < sent < 1000 and server.run(lambda: stream.is_open)
        server.run(lambda: stream.end({}))
        found = read(connection)
        assert [kind for kind, _ in found] == [frames.DATA] * sent + [frames.END]


def test_a_quick_reader_does_not_keep_the_loop_from_its_other_work(serve: MakeServer, path: str) -> None:
    turns: list[int] = []
    chunk, chunks = b"x" * 50_000, 200

    def begin(request: Request, stream: Stream) -> None:
        left = [chunk] * chunks

        def more() -> None:
            turns.append(0)
            while left:
                turns[-1] += len(left[0])
                if not stream.send(left.pop()):
                    return
            stream.end({})

        stream.on_room = more
        more()

    serve(begin)
    assert sum(map(len, control_client.stream(path, "watch", WATCH))) == chunks * len(chunk)
    assert max(turns) <= stream_module.MAX_A_TURN + len(chunk)


def test_who_takes_nothing_for_too_long_is_dropped(
    serve: MakeServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "PATIENCE", 0.2)

    def begin(request: Request, stream: Stream) -> None:
        while stream.has_room:
            stream.send(b"x" * 6000)

    server = serve(begin)
    with client(path) as connection:
        connection.send(request("watch", job=b"12.0", schema=b"1")[0])
        until(lambda: server.streams and not server.run(lambda: server.streams[0].is_open))
    assert ask(path, GOOD) == TRACED


def test_a_stream_to_which_nothing_is_sent_may_last(
    serve: MakeServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (stream_module, server_module):
        monkeypatch.setattr(module, "PATIENCE", 3.0)
    server = serve(lambda request, stream: stream.send(b"first") and None)
    chunks = control_client.stream(path, "watch", WATCH)
    assert next(chunks) == b"first"
    time.sleep(3.5)
    server.run(lambda: server.streams[0].send(b"second"))
    assert next(chunks) == b"second"


def test_a_user_has_few_streams_and_gets_them_back(serve: MakeServer, path: str) -> None:
    server = serve(lambda request, stream: stream.send(b"first") and None)
    held = [control_client.stream(path, "watch", WATCH) for _ in range(server_module.MAX_STREAMS_OF_A_USER)]
    assert {next(chunks) for chunks in held} == {b"first"}
    with pytest.raises(JobLensError, match="a user has at most 8 streams"):
        next(control_client.stream(path, "watch", WATCH))
    assert ask(path, GOOD) == TRACED
    held.pop().close()
    until(lambda: server.run(lambda: len(server.server._streams)) < 8)
    assert next(control_client.stream(path, "watch", WATCH)) == b"first"


def test_streams_end_when_joblensd_does(path: str) -> None:
    server = Server(path, lambda request, stream: stream.send(b"first") and None)
    chunks = control_client.stream(path, "watch", WATCH)
    assert next(chunks) == b"first"
    server.stop()
    with pytest.raises(JobLensError, match="joblensd stops"):
        next(chunks)


SLOW = """
import socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
connection.send(bytes.fromhex(sys.argv[2]))
print(len(connection.recv(100000)), flush=True)
sys.stdin.read()
"""


def test_a_reader_that_is_stopped_or_killed_costs_its_stream_alone(
    serve: MakeServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "PATIENCE", 0.2)
    server = serve(lambda request, stream: stream.send(b"first") and None)
    (packet,) = request("watch", job=b"12.0", schema=b"1")
    command = [sys.executable, "-c", textwrap.dedent(SLOW), path, packet.hex()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as stopped, subprocess.Popen(command, **pipes) as killed:
        for process in (stopped, killed):
            assert process.stdout is not None and process.stdout.readline()
        stopped.send_signal(signal.SIGSTOP)
        os.kill(killed.pid, signal.SIGKILL)

        def send() -> bool:
            for stream in server.streams:
                if stream.has_room:
                    stream.send(b"x" * 6000)
            return any(stream.is_open for stream in server.streams)

        until(lambda: not server.run(send))
        assert ask(path, GOOD) == TRACED
        stopped.kill()


# -- the client -----------------------------------------------------------------------------------------------


class Old:
    """joblensd 0.1, as far as a client sees it."""

    def __init__(self, path: str, answers: list[bytes]) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen()
        self._answers = answers
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        connection.recv(1 << 17)
        for answer in self._answers:
            connection.send(answer)
        connection.close()

    def stop(self) -> None:
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize(
    "answers, reason",
    [
        ([b"joblens/1\0refused\0reason=the protocol is joblens/1\0"], "joblensd is older than this command"),
        ([], "has ended the stream"),
        ([b"garbage"], "another protocol"),
        ([b"joblens/2\0Q\1\0\0\0x"], "another protocol"),
        ([b"joblens/2\0D\2\0\0\0x"], "has ended the stream"),
        ([b"joblens/2\0E\1\0\0\0x"], "another protocol"),
        (list(frames.frames(frames.END, frames.encode_words("traced", {}))), "makes no sense"),
        (list(frames.frames(frames.END, frames.encode_words("refused", {}))), "does not say why"),
    ],
)
def test_an_answer_that_is_none_is_one_line_with_the_remedy(path: str, answers: list[bytes], reason: str) -> None:
    old = Old(path, answers)
    with pytest.raises(JobLensError, match=reason) as error:
        list(control_client.stream(path, "watch", WATCH))
    assert "\n" not in str(error.value)
    old.stop()


def test_without_an_answer_the_client_gives_up(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(path)
        silent.listen()
        for call in (control_client.ask, lambda *it: list(control_client.stream(*it))):
            with pytest.raises(JobLensError, match=r"no answer within 0\.1 s"):
                call(path, "watch", WATCH, 0.1)


def test_what_is_too_long_is_not_sent(path: str) -> None:
    for call in (control_client.ask, lambda *it: list(control_client.stream(*it))):
        with pytest.raises(UsageError, match=r"^job: has 70000 bytes: write 1 to 256$"):
            call(path, "watch", {**WATCH, "job": "x" * 70_000})
    with pytest.raises(JobLensError, match="write less"):
        control_client.ask(path, "tail", {"job": "1", "lines": "1", "file": "x" * 4096})
    with pytest.raises(JobLensError, match="write less"):
        list(control_client.stream(path, "warrant", {"packet": b"x" * 70_000}, server=control_client.RELAY))


def test_an_end_is_words(serve: MakeServer, path: str) -> None:
    serve(lambda request, stream: stream.end({"reason": "all is said"}))
    packet = ask(path, *request("watch", job=b"12.0", schema=b"1"))
    assert end_of(packet) == frames.Words("over", {"reason": b"all is said"})
