"""The sink of the hub against servers that answer what a test says."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.model.metrics import empty_rows
from condor_joblens.sinks import Record, RecordKind, SinkContext
from condor_joblens.sinks.hub import HubSink
from condor_joblens.sinks.registry import configure


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the class says, and keeps what came."""

    protocol_version = "HTTP/1.1"
    status, answer, wait, most = 200, {"refused": {}}, "", 1 << 30
    took: list[tuple[str, list[Any]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        lines = gzip.decompress(body).splitlines()
        status = 413 if len(lines) > self.most else self.status
        if status == 200:
            self.took.append((self.headers["Authorization"], [json.loads(line) for line in lines]))
        content = json.dumps(self.answer).encode()
        self.send_response(status)
        if self.wait:
            self.send_header("Retry-After", self.wait)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[tuple[type[Hub], str]]:
    kind = type("OneHub", (Hub,), {"took": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kind, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def made(tmp_path: Path, url: str) -> HubSink:
    token = tmp_path / "token"
    token.write_text("swordfish\n")
    token.chmod(0o640)
    (config,), problems = configure(["hub"], {"JOBLENS_SINK_HUB_URL": url, "JOBLENS_SINK_HUB_TOKEN_FILE": str(token)})
    assert not problems
    return HubSink(config.settings, SinkContext(lambda line: None, lambda: (empty_rows(0), 0.0), tuple, "node1"))


def events(count: int) -> list[Record]:
    return [Record(RecordKind.EVENT, f"e{n}", "run", 1.0, json.dumps({"Id": f"e{n}"}).encode()) for n in range(count)]


def test_records_are_lines_of_gzip_with_the_token(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    kind, url = hub
    sink = made(tmp_path, url)
    sink.start()
    for _ in range(2):  # the second by the same connection
        assert sink.deliver(events(3)).retry == ()
    sink.close(1)
    assert kind.took == [("Bearer swordfish", [{"Id": f"e{n}"} for n in range(3)])] * 2


@pytest.mark.parametrize("status", [429, 503, 500, 401, 404])
def test_what_the_hub_does_not_take_now_waits(tmp_path: Path, hub: tuple[type[Hub], str], status: int) -> None:
    kind, url = hub
    kind.status, kind.wait = status, "7"
    found = made(tmp_path, url).deliver(events(3))
    assert (list(found.retry), found.refused, found.after) == ([0, 1, 2], {}, 7.0)
    assert str(status) in found.reason or "has no /v1/records" in found.reason


def test_what_the_hub_refuses_is_named_and_the_others_are_delivered(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    kind, url = hub
    kind.answer = {"refused": {"1": "it has no \x1bTime"}}
    found = made(tmp_path, url).deliver(events(3))
    assert (list(found.retry), found.refused) == ([], {1: "it has no \\x1bTime"})


@pytest.mark.parametrize("answer", [{}, [], {"refused": {"7": "x"}}, {"refused": [1]}, {"refused": {"x": "y"}}])
def test_what_is_no_answer_of_a_hub_delivers_nothing(
    tmp_path: Path, hub: tuple[type[Hub], str], answer: dict[str, Any]
) -> None:
    kind, url = hub
    kind.answer = answer
    found = made(tmp_path, url).deliver(events(3))
    assert list(found.retry) == [0, 1, 2] and "is it the hub's port?" in found.reason


def test_what_is_too_long_goes_in_halves(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    kind, url = hub
    kind.most = 2
    assert made(tmp_path, url).deliver(events(7)).retry == ()
    assert [line["Id"] for _, lines in kind.took for line in lines] == [f"e{n}" for n in range(7)]
    kind.most = 0
    found = made(tmp_path, url).deliver(events(2))
    assert list(found.refused) == [0, 1]


def test_a_token_does_not_go_in_clear_over_the_network(tmp_path: Path) -> None:
    sink = made(tmp_path, "http://hub.example.org:8766")
    with pytest.raises(JobLensError, match="write https://"):
        sink.start()
    assert list(sink.deliver(events(1)).retry) == [0]
