"""What `joblens-hub login` prints, by what the hub answers."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from condor_joblens.hub import login

ANSWER = b'{"path": "/login?code=x7", "address": "https://jobs.example.org"}'
Answers = Callable[[bytes], str]


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    """Makes a hub that says this of everybody; its socket."""
    servers = []

    def begin(said: bytes) -> str:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while self.rfile.readline().strip():
                    pass
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

        path = str(tmp_path / "pages.sock")
        servers.append(socketserver.ThreadingUnixStreamServer(path, Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return path

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("more", "printed"),
    [
        ([], "https://jobs.example.org/login?code=x7\n"),
        (["--address", "http://localhost:9000/"], "http://localhost:9000/login?code=x7\n"),
    ],
)
def test_the_address_is_the_hubs_or_the_one_that_is_said(
    answers: Answers, capsys: pytest.CaptureFixture[str], more: list[str], printed: str
) -> None:
    assert login.main(["--socket", answers(ANSWER), *more]) == 0
    assert capsys.readouterr().out == printed


def test_who_is_not_known_is_told_who_names_people(answers: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    assert login.main(["--socket", answers(b'{"error": "nobody here has this login"}')]) == 1
    assert "nobody here has this login: the administrator names people" in capsys.readouterr().err


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'"path"', b'{"path": 1}', b'{"path": "/x"}'])
def test_an_answer_that_is_none_is_one_line(answers: Answers, capsys: pytest.CaptureFixture[str], said: bytes) -> None:
    assert login.main(["--socket", answers(said)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_hub_that_does_not_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert login.main(["--socket", str(tmp_path / "none")]) == 1
    assert "is the hub running?" in capsys.readouterr().err
