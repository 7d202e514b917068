"""Artifacts by the sink of the hub: in chunks, until the hub has them; what waits is the event that announces one."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.export import artifact_files
from condor_joblens.model.metrics import empty_rows
from condor_joblens.shm.artifact_header import Artifact
from condor_joblens.shm.artifacts import FOLDER, ArtifactLimits, ArtifactWriter
from condor_joblens.sinks import Record, RecordKind, SinkContext
from condor_joblens.sinks.hub import HubSink
from condor_joblens.sinks.hub_artifacts import CHUNK
from condor_joblens.sinks.registry import configure


class Hub(http.server.BaseHTTPRequestHandler):
    """Keeps records and artifacts; `refusals` are statuses that it answers to the next chunks."""

    protocol_version = "HTTP/1.1"
    records: list[str]
    artifacts: dict[str, bytes]
    refusals: list[int]
    forgets = False
    chunks: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, said = 200, {"refused": {}}
        if self.path == "/v1/records":
            self.records += [json.loads(line)["Id"] for line in gzip.decompress(body).splitlines()]
        else:
            status, said = self.taken(body)
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if status == 429:
            self.send_header("Retry-After", "3")
        self.end_headers()
        self.wfile.write(content)

    def taken(self, body: bytes) -> tuple[int, Any]:
        if self.refusals and (status := self.refusals.pop(0)) != 200:
            return status, {"error": "no"}
        line, _, chunk = body.partition(b"\n")
        head = json.loads(line)
        self.chunks.append(len(chunk))
        have = self.artifacts.setdefault(head["Artifact"], b"")
        if len(have) < head["Length"] and head["Offset"] != len(have):
            return 409, {"have": len(have), "whole": False}
        if len(have) < head["Length"]:
            have = self.artifacts[head["Artifact"]] = have + chunk
        is_whole = len(have) == head["Length"]
        assert not is_whole or hashlib.sha256(have).hexdigest() == head["Sha256"]
        return 200, {"have": len(have), "whole": is_whole}

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[tuple[type[Hub], str]]:
    kind = type("OneHub", (Hub,), {"records": [], "artifacts": {}, "refusals": [], "chunks": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kind, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class Node:
    """A run folder with artifacts, and the sink of it."""

    def __init__(self, folder: Path, url: str, kinds: str = "profile, hang") -> None:
        self.writer = ArtifactWriter(str(folder / FOLDER), ArtifactLimits(4 << 20, 64 << 20, 1e6))
        token = folder / "token"
        token.write_text("swordfish\n")
        token.chmod(0o640)
        macros = {"URL": url, "TOKEN_FILE": str(token), "ARTIFACTS": kinds}
        (config,), problems = configure(["hub"], {f"JOBLENS_SINK_HUB_{name}": value for name, value in macros.items()})
        assert not problems
        self.said: list[str] = []
        read = artifact_files.reader(str(folder))
        context = SinkContext(self.said.append, lambda: (empty_rows(0), 0.0), tuple, "node1", artifact=read)
        self.sink = HubSink(config.settings, context)

    def artifact(self, content: bytes, kind: str = "profile", sinks: str = "") -> str:
        about = Artifact(kind, "x/y", 1, 1.0, 2.0, run="ap#7.0#17#1", owner="anna", sinks=sinks)
        return self.writer.add(about, [content]).name


def event(name: str) -> Record:
    said = {"Type": "event", "Id": f"e{name}", "Kind": "Artifact", "Artifact": name}
    said["ArtifactKind"] = name.partition(".")[2]
    line = json.dumps(said, separators=(",", ":")).encode()
    return Record(RecordKind.EVENT, f"e{name}", "ap#7.0#17", 1.0, line)


def test_an_artifact_goes_in_chunks_and_comes_equal(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    kind, url = hub
    node, content = Node(tmp_path, url), bytes(range(256)) * 5000
    large, small = node.artifact(content), node.artifact(b"x", "hang")
    other, elsewhere = node.artifact(b"y", "waits"), node.artifact(b"z", sinks="kafka, file")
    here = node.artifact(b"z", sinks="Hub")
    names = [large, small, other, elsewhere, here]
    assert node.sink.deliver([event(name) for name in names]).retry == ()
    assert kind.records == [f"e{name}" for name in names]
    assert kind.artifacts == {large: content, small: b"x", here: b"z"}
    assert max(kind.chunks) == CHUNK and kind.chunks[:3] == [CHUNK, CHUNK, len(content) - 2 * CHUNK]
    assert node.sink.deliver([event(large)]).retry == () and kind.artifacts[large] == content, "it comes again"
    assert node.said == []


@pytest.mark.parametrize("status", [429, 503, 500, 401])
def test_what_the_hub_does_not_take_now_waits_as_its_event(
    tmp_path: Path, hub: tuple[type[Hub], str], status: int
) -> None:
    kind, url = hub
    node, content = Node(tmp_path, url), bytes(3 * CHUNK)
    first, second = node.artifact(b"x"), node.artifact(content)
    kind.refusals = [200, 200, status]
    found = node.sink.deliver([event("1.waits"), event(first), event(second), event("2.waits")])
    assert list(found.retry) == [2] and str(status) in found.reason and found.after == (3.0 if status == 429 else 0.0)
    assert node.sink.deliver([event(second)]).retry == ()
    assert kind.artifacts == {first: b"x", second: content}


def test_a_hub_that_has_forgotten_a_part_gets_it_again(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    kind, url = hub
    node, content = Node(tmp_path, url), bytes(range(256)) * 6000
    name = node.artifact(content)
    kind.artifacts[name] = content[:1000]
    assert node.sink.deliver([event(name)]).retry == () and kind.artifacts[name] == content


@pytest.mark.parametrize("status, said", [(404, "older than this node"), (413, "is refused"), (422, "is refused")])
def test_what_is_never_taken_is_said_and_not_waited_for(
    tmp_path: Path, hub: tuple[type[Hub], str], status: int, said: str
) -> None:
    kind, url = hub
    node = Node(tmp_path, url)
    gone, refused, good = node.artifact(b"x"), node.artifact(b"y"), node.artifact(b"z")
    node.writer.delete(gone)
    kind.refusals = [status]
    assert node.sink.deliver([event(gone), event(refused), event(good)]).retry == ()
    assert kind.artifacts == {good: b"z"}
    assert len(node.said) == 2 and said in node.said[1]


def test_none_goes_where_nobody_asked_for_them(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    kind, url = hub
    node = Node(tmp_path, url, kinds="")
    assert node.sink.deliver([event(node.artifact(b"x"))]).retry == () and kind.artifacts == {}


def test_a_hub_that_is_gone_is_waited_for(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    kind, url = hub
    node = Node(tmp_path, url)
    names = [node.artifact(b"x"), node.artifact(b"y")]

    def fail(body: bytes) -> Any:
        raise ConnectionResetError("gone")

    post, node.sink._artifacts._post = node.sink._artifacts._post, fail
    found = node.sink.deliver([event("1.waits"), *map(event, names)])
    assert list(found.retry) == [1, 2] and found.reason
    node.sink._artifacts._post = post
    assert node.sink.deliver([event(name) for name in names]).retry == () and len(kind.artifacts) == 2


def test_a_hub_that_says_nonsense_is_no_hub(tmp_path: Path, hub: tuple[type[Hub], str]) -> None:
    kind, url = hub
    node = Node(tmp_path, url)
    name = node.artifact(b"x")
    for answer in ({}, {"have": -1, "whole": True}, {"have": 9, "whole": False}, {"have": "x"}, []):
        kind.taken = lambda self, body, answer=answer: (200, answer)  # type: ignore[method-assign,assignment,misc]
        assert list(node.sink.deliver([event(name)]).retry) == [0]


def test_without_a_folder_there_is_none() -> None:
    context = SinkContext(lambda line: None, lambda: (empty_rows(0), 0.0), tuple, "node1")
    with pytest.raises(JobLensError, match="not there"):
        context.artifact("1.profile")
