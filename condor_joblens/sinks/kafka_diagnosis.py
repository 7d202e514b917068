"""Why a Kafka broker does not take what we send: kafka-python hides all reasons behind "Unable to bootstrap".

So the way to a broker is walked by hand, a step at a time: name, connection, TLS, Kafka's own protocol, SASL. The two
requests that this needs are the oldest and simplest of the protocol: ApiVersions and SaslHandshake.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import macro_of, server_diagnosis
from condor_joblens.sinks.server_diagnosis import Server

_API_VERSIONS, _SASL_HANDSHAKE = 18, 17
_UNSUPPORTED_MECHANISM, _ILLEGAL_SASL_STATE = 33, 34
_TLS_ALERT = b"\x15\x03"
_MACRO = macro_of("kafka")
_WEB = "answers in HTTP: name the port of a Kafka broker"


def examine(address: str, tls: ssl.SSLContext | None, mechanism: str) -> None:
    """Walks to the broker at `address` as the producer would. Raises JobLensError at the first step that fails.

    tls: None for a plain connection; mechanism: of SASL, empty for none. The password is not tried.
    """
    server = Server(_MACRO, "SERVERS", address, *server_diagnosis.split(address, 9092))
    connection: socket.socket = server_diagnosis.connect(server)
    try:
        if tls is not None:
            connection = server_diagnosis.encrypt(connection, tls, server)
        _speak(connection, server, tls is not None)
        _handshake(connection, server, mechanism)
    finally:
        server_diagnosis.close(connection)


def _request(key: int, version: int, body: bytes = b"") -> bytes:
    client = b"joblens"
    head = struct.pack(">hhih", key, version, 7, len(client)) + client
    return struct.pack(">i", len(head) + len(body)) + head + body


def _speak(connection: socket.socket, server: Server, encrypted: bool) -> None:
    try:
        answer = server_diagnosis.exchange(connection, _request(_API_VERSIONS, 0), server)
    except JobLensError:
        _is_web(server)
        raise
    if answer[:5] == b"HTTP/":
        raise server.fault(_WEB)
    if not answer and encrypted:
        raise server.has_ended()
    if answer[:2] == _TLS_ALERT or (not answer and not encrypted):
        raise server.fault(f"ends a plain connection, as it wants TLS: set {_MACRO}SECURITY = ssl or sasl_ssl")
    if len(answer) < 10 or answer[4:8] != struct.pack(">i", 7):
        raise server.fault("does not speak Kafka's protocol: is it a broker's port?")


def _is_web(server: Server) -> None:
    """A web server may wait for the end of a line: it is given one. Raises JobLensError where it is one."""
    connection = server_diagnosis.connect(server)
    try:
        answer = server_diagnosis.exchange(connection, b"HEAD / HTTP/1.0\r\n\r\n", server)
    except JobLensError:
        return
    finally:
        server_diagnosis.close(connection)
    if answer[:5] == b"HTTP/":
        raise server.fault(_WEB)


def _handshake(connection: socket.socket, server: Server, mechanism: str) -> None:
    name = mechanism.encode()
    request = _request(_SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
    answer = server_diagnosis.exchange(connection, request, server)
    if len(answer) < 10:
        if mechanism:
            raise server.fault(f"ends the connection when it is asked for SASL {mechanism}: set {_MACRO}MECHANISM")
        return
    (code,) = struct.unpack(">h", answer[8:10])
    if mechanism and code == _ILLEGAL_SASL_STATE:
        raise server.fault(f"wants no password at this port: set {_MACRO}SECURITY without sasl, or take another port")
    if mechanism and code == _UNSUPPORTED_MECHANISM:
        raise server.fault(f"does not take SASL {mechanism}, but {_mechanisms(answer)}: set {_MACRO}MECHANISM")
    if not mechanism and code in (0, _UNSUPPORTED_MECHANISM):
        raise server.fault(f"wants a user and a password ({_mechanisms(answer)}): set {_MACRO}SECURITY with sasl")


def _mechanisms(answer: bytes) -> str:
    names: list[str] = []
    position = 14
    while position + 2 <= len(answer) and len(names) < 10:
        size = max(0, *struct.unpack(">h", answer[position : position + 2]))
        names.append(printable(answer[position + 2 : position + 2 + size].decode("ascii", "replace"), 30))
        position += 2 + size
    return ", ".join(names) or "none"


class _LastWords(logging.Handler):
    """Keeps what the library logged: its exceptions don't say why."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: deque[str] = deque(maxlen=200)

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def overheard() -> Iterator[deque[str]]:
    """What kafka-python logs as a warning or worse meanwhile, from all of its threads."""
    words = _LastWords()
    logger = logging.getLogger("kafka")
    logger.addHandler(words)
    try:
        yield words.said
    finally:
        logger.removeHandler(words)


def silence() -> None:
    """Keeps kafka-python from writing to standard error: what matters of it is said in our log."""
    logger = logging.getLogger("kafka")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def refusal(said: Iterable[str], user: str) -> str:
    """Why a login failed, by what the library logged; empty where it logged nothing."""
    words = list(said)
    if any("AuthenticationFailed" in line for line in words):
        return f"the broker refuses the user {printable(user)} or his password"
    if words:  # it sees the end of the connection before the answer, at times
        return f"the broker ends the connection at the login of the user {printable(user)}: is his password right?"
    return ""
