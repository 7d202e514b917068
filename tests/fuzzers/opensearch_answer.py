"""What an OpenSearch node answers to a bulk: words about each document, or an error. The library reads JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from opensearchpy import Connection
from opensearchpy.serializer import JSONSerializer

from condor_joblens.sinks import Record, RecordKind, opensearch

_RECORDS = 3
_BATCH = [Record(RecordKind.EVENT, f"n/{number}", "n", 1.5, b"{}") for number in range(_RECORDS)]
_STATUS = (200, 200, 200, 401, 403, 404, 413, 429, 503)
_ERROR = {"type": "mapper_parsing_exception", "reason": "no number"}


def _items(*items: Any) -> bytes:
    return b"\0" + json.dumps({"errors": True, "items": list(items)}).encode()


SEEDS = [
    b'\0{"errors":false}',
    _items(*({"create": {"status": status, "error": _ERROR}} for status in (201, 400, 429))),
    _items({"create": {"status": [1], "error": [2]}}, {"create": {"status": {"a": 1}}}, {"create": {"status": None}}),
    _items({"create": 1}, [], {}),
    b'\4{"error":{"type":"security_exception"},"status":403}',
    b"\6too long",
    b"\0" + b"[" * 3000,
    b'\0{"errors":1,"items":[' + b",".join([b'{"create":{"status":' + b"9" * 5000 + b"}}"] * 3) + b"]}",
]
WORDS = [
    b'"errors":true',
    b'"items":[',
    b'{"create":',
    b'"status":',
    b'"error":',
    b'"type":',
    b'"reason":',
    b"NaN",
    b"1e999",
]


def _node(status: int, body: bytes) -> Any:
    def bulk(**arguments: Any) -> Any:
        text = body.decode("utf-8", "surrogatepass" if status == 200 else "replace")
        if status != 200:
            Connection(host="node")._raise_error(status, text, "application/json")
        return JSONSerializer().loads(text)

    return SimpleNamespace(bulk=bulk, close=lambda: None)


def check(data: bytes) -> None:
    """Each document is delivered, refused or kept, with a reason on one line."""
    settings: Any = {"url": ["http://node:9200"], "dead_letters": "", "index": "joblens", "user": "", "profiles": False}
    context: Any = SimpleNamespace(log=lambda line: None)
    sink = opensearch.OpenSearchSink(settings, context)
    status, body = _STATUS[data[0] % len(_STATUS)] if data else 200, data[1:]
    try:
        body.decode()
    except UnicodeDecodeError:
        status = 503 if status == 200 else status  # the library refuses it before it is ours
    sink._client = _node(status, body)
    done = sink._bulk(_BATCH)
    assert set(done.retry) | set(done.refused) <= set(range(_RECORDS))
    assert not set(done.retry) & set(done.refused) and 0 <= done.after <= 60
    assert bool(done.reason) == bool(done.retry)
    for reason in (done.reason, *done.refused.values()):
        assert reason.isprintable() and len(reason) < 2000
