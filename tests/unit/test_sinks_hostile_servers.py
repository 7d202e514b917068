"""Servers that answer to do harm: records wait or are refused; memory is bounded, and each request ends."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from answering_servers import answering_servers, talking_servers, with_peak
from hostile_tls import HANDSHAKES

from condor_joblens.model.metrics import empty_rows
from condor_joblens.sinks import DeliveryResult, Record, RecordKind, SinkContext, hub, opensearch, otlp
from condor_joblens.sinks.registry import configure

MOST_BYTES = 16 << 20
"""Of Python's memory at any time: a hostile answer of 64 KiB as JSON takes some megabytes."""

OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"Content-Type: application/json\r\n"


def answer(body: bytes, head: bytes = OK, more: bytes = b"") -> bytes:
    return head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def drip(*parts: bytes) -> Iterator[bytes]:
    """A byte at a time, for ever."""
    for byte in itertools.chain(b"".join(parts), itertools.repeat(ord(" "))):
        yield bytes([byte])


def flood(head: bytes, piece: bytes) -> Iterator[bytes]:
    """As fast as it is taken, for ever."""
    yield head
    yield from itertools.repeat(piece)


BOMB = gzip.compress(bytes(64 << 20))
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ZEROS = b"0" * (1 << 16)

HOSTILE: dict[str, Callable[[], Iterator[bytes]]] = {
    "a body without an end": lambda: flood(OK + b"\r\n", ZEROS),
    "a body longer than all memory": lambda: flood(OK + b"Content-Length: 999999999999\r\n\r\n", ZEROS),
    "chunks without an end": lambda: flood(CHUNKED, b"10000\r\n" + ZEROS + b"\r\n"),
    "one chunk without an end": lambda: flood(CHUNKED + b"ffffffffffffff\r\n", ZEROS),
    "a chunk's length without an end": lambda: flood(CHUNKED, ZEROS),
    "trailers without an end": lambda: flood(CHUNKED + b"0\r\n", b"X: y\r\n"),
    "a gzip bomb": lambda: iter([answer(BOMB, more=b"Content-Encoding: gzip\r\n")]),
    "a deflate bomb": lambda: iter([answer(BOMB, more=b"Content-Encoding: deflate\r\n")]),
    "gzip of gzip": lambda: iter([answer(gzip.compress(BOMB), more=b"Content-Encoding: gzip, gzip\r\n")]),
    "headers without an end": lambda: flood(OK, b"X-More: y\r\n"),
    "a header without an end": lambda: flood(OK + b"X: ", ZEROS),
    "a status line without an end": lambda: flood(b"HTTP/1.1 200 ", ZEROS),
    "continue, for ever": lambda: flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a status line that drips": lambda: drip(b"HTTP/1.1 200 "),
    "headers that drip": lambda: drip(OK, b"X-More: "),
    "a body that drips": lambda: drip(OK, b"Content-Length: 60000\r\n\r\n{"),
    "nothing at all": lambda: iter(()),
    "half a body": lambda: iter([OK + b"Content-Length: 100\r\n\r\n{"]),
    "a negative length": lambda: iter([OK + b"Content-Length: -1\r\n\r\n{}"]),
    "two lengths": lambda: iter([OK + b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}"]),
    "no HTTP": lambda: iter([b"\x00\xff\x00\xff" * 100]),
    "another protocol": lambda: iter([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]),
    "deep JSON": lambda: iter([answer(b"[" * 60_000, more=JSON)]),
    "wide JSON": lambda: iter([answer(b"[" + b"{}," * 20_000 + b"{}]", more=JSON)]),
    "a long number": lambda: iter([answer(b'{"errors": ' + b"9" * 60_000 + b"}", more=JSON)]),
    "JSON of another shape": lambda: iter([answer(b'{"errors": true, "items": 7}', more=JSON)]),
    "items of another shape": lambda: iter([answer(b'{"errors": true, "items": [[], 7, null]}', more=JSON)]),
    "items without end": lambda: iter([answer(b'{"errors": true, "items": [' + b"{}," * 9000 + b"{}]}", more=JSON)]),
    "more items than documents": lambda: iter(
        [answer(json.dumps({"errors": True, "items": [{"create": {"status": 400}}] * 500}).encode(), more=JSON)]
    ),
    "a redirection elsewhere": lambda: iter([answer(b"", b"HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\n")]),
    "a redirection to a file": lambda: iter([answer(b"", b"HTTP/1.1 301 Go\r\nLocation: file:///etc/passwd\r\n")]),
    "come again in a thousand years": lambda: iter([answer(b"", b"HTTP/1.1 503 No\r\nRetry-After: 99999999999\r\n")]),
    "control characters in the reason": lambda: iter([answer(b"\x1b[2J\n\n" * 100, b"HTTP/1.1 400 \x1b[2J\r\n")]),
    "an answer nobody asked for": lambda: iter([answer(b"{}") * 50]),
}


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[], Iterator[bytes]]], str]]:
    """Starts a server that answers so to each connection; its URL."""
    with answering_servers() as start:
        yield lambda said: f"http://{start(said)}"


def made(name: str, url: str, tmp_path: Path) -> Any:
    macros = {f"JOBLENS_SINK_{name.upper()}_URL": url}
    if name == "hub":
        token = tmp_path / "token"
        token.write_text("swordfish")
        token.chmod(0o600)
        macros["JOBLENS_SINK_HUB_TOKEN_FILE"] = str(token)
    (config,), problems = configure([name], macros)
    assert not problems
    context = SinkContext(lambda line: None, lambda: (empty_rows(0), 0.0), tuple, "node")
    return config.sink({**config.settings, "dead_letters": ""}, context)


def events(count: int) -> list[Record]:
    body = {"Kind": "exec", "Time": 1.0, "Node": "node", "Text": "x" * 200}
    return [
        Record(RecordKind.EVENT, f"id{number}", "run", 1.0, json.dumps({**body, "Id": f"id{number}"}).encode())
        for number in range(count)
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["otlp", "opensearch", "hub"])
@pytest.mark.parametrize("how", HANDSHAKES)
def test_a_hostile_handshake_ends(how: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (otlp, opensearch, hub):
        monkeypatch.setattr(module, "_WHOLE_SECONDS", 1.0)
    with talking_servers() as start:
        sink = made(name, f"https://{start(HANDSHAKES[how])}", tmp_path)
        if name == "otlp":
            sink.start()
        try:
            found, peak = with_peak(lambda: sink.deliver(events(20)))
        finally:
            sink.close(1.0)
    assert peak < MOST_BYTES
    assert list(found.retry) == list(range(20)) and found.reason.isprintable()


@pytest.mark.parametrize("name", ["otlp", "opensearch", "hub"])
@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_answer_takes_little_memory_and_an_end(
    how: str, name: str, serve: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (otlp, opensearch, hub):
        monkeypatch.setattr(module, "_WHOLE_SECONDS", 1.0)
    sink = made(name, serve(HOSTILE[how]), tmp_path)
    if name == "otlp":
        sink.start()
    batch = events(20)
    try:
        found, peak = with_peak(lambda: sink.deliver(batch))
    finally:
        sink.close(1.0)
    assert peak < MOST_BYTES
    assert isinstance(found, DeliveryResult)
    assert set(found.retry) <= set(range(20)) and set(found.refused) <= set(range(20))
    assert len(found.reason) < 1000 and found.reason.isprintable() and found.after <= 60.0
    assert all(why.isprintable() and len(why) < 1000 for why in found.refused.values())
    if how not in ("an answer nobody asked for", "wide JSON"):
        assert found.retry or found.refused, "nothing of this is a word of delivery"
