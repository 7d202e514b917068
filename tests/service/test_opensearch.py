"""The OpenSearch sink with a real OpenSearch, and with Elasticsearch: what arrives, what is refused, what it says of
wrong settings."""

from __future__ import annotations

import http.server
import json
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from servers import SECONDS, OpenSearch, certificate, free_port
from sinks import complaints, deliver, make, record, samples, start, until
from stand_in import Front

from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.opensearch import OpenSearchSink


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode() if body else b""
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def documents(server: OpenSearch, index: str) -> dict[str, Any]:
    """All documents of an index pattern, by id; of more than 10000 it would not give the others."""
    ask(f"{server.url}/{index}/_refresh", {})
    found = ask(f"{server.url}/{index}/_search?size=10000")["hits"]["hits"]
    assert len({hit["_id"] for hit in found}) == len(found)
    return {hit["_id"]: hit["_source"] for hit in found}


def event(number: int, **more: Any) -> Record:
    found = record(number, **more).fields()
    fields = {"Type": "event", "Id": found["Id"], "Schema": 1, "Node": "node1", "Time": 1.7e9 + number, **more}
    return Record(RecordKind.EVENT, found["Id"], "k", 1.7e9, json.dumps(fields).encode())


@pytest.fixture(params=["opensearch", "elasticsearch"])
def cluster(request: pytest.FixtureRequest) -> OpenSearch:
    server: OpenSearch = request.getfixturevalue(request.param)
    return server


@pytest.mark.sampled(1)
def test_records_arrive_whole_once_and_a_replay_changes_nothing(cluster: OpenSearch, folder: Path) -> None:
    sink = make(OpenSearchSink, URL=cluster.url, INDEX="whole", DEAD_LETTERS=str(folder / "whole"))
    start(sink)
    batch = [
        *samples(20),
        *samples(20, 2),
        *samples(3, 9, RecordKind.JOB),
        *(event(n, Kind="Exec") for n in range(50)),
    ]
    deliver(sink, batch)  # a node that has just started may make its indices more slowly than the sink waits
    assert deliver(sink, batch) == []
    sink.start()  # as after a restart: the templates are there already
    assert deliver(sink, batch[:5]) == []
    sink.close(1)
    assert documents(cluster, "whole-*") == {one.id: one.fields() for one in batch}
    assert set(documents(cluster, "whole-samples-2023.11.14")) == {one.id for one in samples(20) + samples(20, 2)}
    assert not (folder / "whole").exists()


@pytest.mark.sampled(1)
def test_a_document_that_is_refused_is_kept_with_the_reason_and_alone(cluster: OpenSearch, folder: Path) -> None:
    letters = folder / f"letters-{cluster.name}"
    sink = make(OpenSearchSink, URL=cluster.url, INDEX="letters", DEAD_LETTERS=str(letters))
    start(sink)
    deliver(sink, [event(1)])  # the index is made in its own time
    batch = [event(1), event(2, Unheard="of"), event(3), event(4, Pid="no number"), event(5)]
    outcome = sink.deliver(batch)
    sink.close(1)
    assert list(outcome.refused) == [1, 3] and not outcome.retry
    kept = [json.loads(line) for line in letters.read_text().splitlines()]
    assert [one["Record"] for one in kept] == [batch[1].fields(), batch[3].fields()]
    assert "strict_dynamic_mapping_exception" in kept[0]["Reason"] and "Pid" in kept[1]["Reason"]
    assert set(documents(cluster, "letters-*")) == {"event-1", "event-3", "event-5"}


class Moody(http.server.BaseHTTPRequestHandler):
    """A cluster that has too much to do for a while: the first bulks are answered 429 and 503, in whole or in part."""

    protocol_version = "HTTP/1.1"
    target = ""
    moods: list[Any]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mood = self.moods.pop(0) if "_bulk" in self.path and self.moods else None
        if isinstance(mood, int):
            return self._answer(mood, b'{"error":{"type":"es_rejected_execution_exception","reason":"queue"}}')
        if mood == "some":  # every other document is not taken
            lines = body.split(b"\n")
            kept = [line for n in range(0, len(lines) - 1, 4) for line in lines[n : n + 2]]
            body = b"\n".join([*kept, b""])
        status, answer = self._forward(body)
        if mood == "some":
            rejected = {"create": {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "q"}}}
            items = [{"create": {"status": 201}} if n % 2 == 0 else rejected for n in range(len(lines) // 2)]
            answer = json.dumps({"errors": True, "items": items}).encode()
        return self._answer(status, answer)

    do_PUT = do_POST

    def do_GET(self) -> None:
        self._answer(*self._forward(None))

    def _forward(self, body: bytes | None) -> tuple[int, bytes]:
        headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        request = urllib.request.Request(self.target + self.path, body, headers, method=self.command)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Not a word."""


def test_a_cluster_that_has_too_much_to_do_is_asked_again_and_nothing_is_lost(
    opensearch: OpenSearch, serve: Any
) -> None:
    moods: list[Any] = [429, "some", 503, "some", 429]
    url = serve(type("Busy", (Moody,), {"target": opensearch.url, "moods": moods}))
    batch, first = samples(101), make(OpenSearchSink, URL=opensearch.url, INDEX="busy")
    start(first)
    deliver(first, batch[:1])  # the index is made in its own time, and makes no reason below
    first.close(1)
    sink = make(OpenSearchSink, URL=url, INDEX="busy")
    start(sink)
    reasons = deliver(sink, batch)
    sink.close(1)
    assert len(reasons) == 5 and not moods
    assert "too much to do (429, " in reasons[0] and "too much to do (503, " in reasons[2]
    assert documents(opensearch, "busy-*") == {one.id: one.fields() for one in batch}


def test_a_node_that_is_killed_under_load_loses_nothing(opensearch: OpenSearch) -> None:
    sink = make(OpenSearchSink, URL=opensearch.url, INDEX="killed")
    start(sink)
    sent: list[Record] = []
    reasons: list[str] = []
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            batch = samples(50, len(sent) // 50)
            deliver(sink, batch, SECONDS, reasons)  # as long as the node may take to be there again
            sent.extend(batch)
            time.sleep(0.2)  # or a busy machine sends more than `documents` can give

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        until(lambda: len(sent) >= 300, "the first records", SECONDS, reasons)
        opensearch.kill()
        until(lambda: reasons, "somebody to notice", SECONDS)
        opensearch.start()
        before = len(sent)
        until(lambda: len(sent) >= before + 300, "more records", SECONDS, reasons)
    finally:
        stop.set()
        thread.join(SECONDS)
    sink.close(1)
    assert documents(opensearch, "killed-*") == {one.id: one.fields() for one in sent}


def test_by_client_certificate(opensearch: OpenSearch, folder: Path) -> None:
    # it has no TLS without its security plug-in, so somebody stands before it
    theirs, their_key = certificate(folder / "tls", "localhost")
    ours, our_key = certificate(folder / "tls", "joblens")
    stranger, strangers_key = certificate(folder / "tls", "stranger")
    front = Front(("127.0.0.1", opensearch.port), (theirs, their_key), ours)
    trusted = {"URL": f"https://{front.address}", "AUTHORITY": str(theirs), "INDEX": "mutual"}
    try:
        sink = make(OpenSearchSink, CERTIFICATE=str(ours), KEY=str(our_key), **trusted)
        start(sink)
        deliver(sink, [event(1)])
        assert all(one.ok for one in sink.check())
        sink.close(1)
        assert set(documents(opensearch, "mutual-*")) == {"event-1"}
        for shown in ({}, {"CERTIFICATE": str(stranger), "KEY": str(strangers_key)}):
            sink = make(OpenSearchSink, **trusted, **shown)
            with pytest.raises(Exception, match="client certificate"):
                sink.start()
            assert any("client certificate" in line for line in complaints(sink))
    finally:
        front.close()


# Wrong settings, each named by its own cause


class Locked(Moody):
    """Wants a password."""

    def do_POST(self) -> None:
        self._answer(401, b'{"error":"Unauthorized"}')

    do_GET = do_PUT = do_POST


class Forbidding(Moody):
    """Lets nobody make a template."""

    def do_POST(self) -> None:
        self._answer(403, b'{"error":{"type":"security_exception","reason":"no permissions for [indices:admin]"}}')

    do_GET = do_PUT = do_POST


class Page(Moody):
    """A web site."""

    def do_POST(self) -> None:
        self._answer(200, b"<html>Welcome</html>")

    do_GET = do_PUT = do_POST


@pytest.mark.parametrize(
    "case, cause",
    [
        ("name", "does not resolve"),
        ("port", "nothing listens there"),
        ("tls", "does not speak TLS"),
        ("password", "refuses the user nobody"),
        ("right", "does not let the user nobody do that"),
        ("web", "does not answer as OpenSearch does"),
        ("transport", "does not answer in HTTP"),
    ],
)
def test_a_wrong_setting_is_named_by_its_cause(case: str, cause: str, serve: Any, request: Any) -> None:
    url = {
        "name": lambda: "http://no-such-host.invalid:9200",
        "port": lambda: f"http://127.0.0.1:{free_port()}",
        "tls": lambda: request.getfixturevalue("opensearch").url.replace("http:", "https:"),
        "password": lambda: serve(Locked),
        "right": lambda: serve(Forbidding),
        "web": lambda: serve(Page),
        "transport": lambda: f"http://127.0.0.1:{request.getfixturevalue('opensearch').transport}",
    }[case]()
    sink = make(OpenSearchSink, URL=url)
    with pytest.raises(Exception, match=cause):
        sink.start()
        outcome = sink.deliver([event(1)])
        raise AssertionError(outcome.reason)
    assert any(cause in line for line in complaints(make(OpenSearchSink, URL=url)))


def test_what_is_right_is_said_to_be(opensearch: OpenSearch) -> None:
    found = list(make(OpenSearchSink, URL=opensearch.url, INDEX="right").check())
    assert found and all(one.ok for one in found), found
