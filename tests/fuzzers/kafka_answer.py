"""What the process with Kafka's client says to the sink, and what a broker says to `joblens doctor`.

A broker's answers to the client itself are read by kafka-python, in that process.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from typing import Any
from unittest.mock import patch

from condor_joblens.common.errors import JobLensError
from condor_joblens.sinks import kafka_diagnosis, server_diagnosis
from condor_joblens.sinks.kafka_confined import ConfinedProducer

_MESSAGES = [("topic", b"key", b"{}")] * 3
_SETTINGS = {"timeout": 0.05}


def _frame(said: Any) -> bytes:
    text = json.dumps(said).encode()
    return b"\0" + struct.pack(">II", len(text), 0) + text


SEEDS = [
    _frame({"log": ["a line"], "failed": [[0, True, "refused"], [2, False, "not now"]]}),
    _frame({"log": [], "error": "no broker"}),
    _frame({"log": [], "failed": [[7, True, "who?"]]}),
    _frame({"log": [], "failed": [[-9, None, None]]}),
    _frame({"log": 3, "failed": [[1.5, "", []]]}),
    _frame([]),
    b"\0" + struct.pack(">II", 1 << 31, 1 << 31),
    b"\0" + struct.pack(">II", 3000, 0) + b"[" * 3000,
    b"\1" + struct.pack(">iih", 6, 7, 33) + struct.pack(">i", 1) + struct.pack(">h", 5) + b"PLAIN",
    b"\1" + struct.pack(">iihih", 6, 7, 0, 1, -1) + b"x",
]
WORDS = [b'"log":[', b'"failed":[[', b'"error":', b"true", b"NaN", b"-1", b"1e999", b"\xff\xff", b"\\ud800"]


def check(data: bytes) -> None:
    """Whatever it is, each message has a result, or the sink says in a line why not; an answer to doctor is a line."""
    if data[:1] == b"\1":
        _check_broker(data[1:])
    else:
        _check_process(data[1:])


def _check_process(said: bytes) -> None:
    lines: list[str] = []
    producer = ConfinedProducer(_SETTINGS, ["topic"], lines.append)
    producer._seconds = 0.2
    producer._to, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        try:
            results = producer.send(_MESSAGES)
        except JobLensError as error:
            results = [error] * len(_MESSAGES)
        finally:
            producer.close(0)
    assert len(results) == len(_MESSAGES)
    for text in (*lines, *(str(result) for result in results if result is not None)):
        assert text.isprintable() and len(text) < 2000


def _check_broker(answer: bytes) -> None:
    server = server_diagnosis.Server("JOBLENS_SINK_KAFKA_", "SERVERS", "broker:9092", "broker", 9092)
    connection: Any = None
    with patch.object(server_diagnosis, "exchange", lambda *arguments: answer):
        for mechanism in ("", "PLAIN"):
            with contextlib.suppress(JobLensError):
                _checked(lambda mechanism=mechanism: kafka_diagnosis._handshake(connection, server, mechanism))


def _checked(ask: Any) -> None:
    try:
        ask()
    except JobLensError as error:
        assert str(error).isprintable() and len(str(error)) < 2000
        raise
