"""What is wrong with a server that does not answer as it should: looked at step by step, said in one line.

Client libraries retry and say "unable to connect" in the end. Each function here does one step by itself. Its
JobLensError names the knob by which the server was found, the server, the cause and the remedy.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import macro_of

SECONDS = 3.0
"""How long a server may take to answer one step."""

_REMEDIES = {
    errno.ECONNREFUSED: "nothing listens there: is the server running, and is the port right?",
    errno.EHOSTUNREACH: "there is no way to that host: look at routes and firewalls",
    errno.ENETUNREACH: "there is no way to that network: look at routes and firewalls",
    errno.EACCES: "it is forbidden: look at this machine's firewall",
}

_CLIENTS_CERTIFICATE = (
    "CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
)  # fmt: skip
"""Alerts by which a server says that it wants a certificate of us, or another one."""

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNSUPPORTED_PROTOCOL")


def split(address: str, port: int | None = None) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `[IPv6]:PORT`, or `HOST` where there is a default port."""
    host, colon, number = address.rpartition(":")
    if not colon and port is not None:
        return address, port
    if not (colon and host and number.isascii() and number.isdigit() and 0 < int(number) < 65536):
        raise JobLensError(f"{printable(address)} is no HOST:PORT, e.g. broker.example.org:9092")
    return host.strip("[]"), int(number)


@dataclass(frozen=True)
class Server:
    """A server as a sink's configuration names it."""

    macro: str  # JOBLENS_SINK_KAFKA_
    knob: str  # SERVERS
    value: str  # broker:9092
    host: str
    port: int

    def fault(self, what: str) -> JobLensError:
        """What is wrong with it; its remedy stands behind the last colon."""
        return JobLensError(f"{self.macro}{self.knob}: {printable(self.value, 200)} {what}")

    def has_ended(self) -> JobLensError:
        """It closed the connection, though it agreed on TLS."""
        pair = f"{self.macro}CERTIFICATE and {self.macro}KEY"
        return self.fault(f"ends the connection after the TLS handshake: does it want a client certificate? set {pair}")


def connect(server: Server) -> socket.socket:
    """A connection. Raises JobLensError that says whether the name, the way or the port is wrong."""
    try:
        socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise server.fault(f"does not resolve ({reason}): correct the name, or the DNS") from None
    try:
        return socket.create_connection((server.host, server.port), timeout=SECONDS)
    except (socket.timeout, TimeoutError):  # the same from Python 3.10 on
        raise server.fault(
            f"does not answer within {SECONDS:g} s: is a firewall between, or does the machine hang?"
        ) from None
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "is it the right address?")
        raise server.fault(f"can't be reached ({error.strerror or error}): {remedy}") from None


def encrypt(plain: socket.socket, tls: ssl.SSLContext, server: Server) -> ssl.SSLSocket:
    """TLS on a connection. Raises JobLensError that says whose certificate or protocol is wrong."""
    try:
        return tls.wrap_socket(plain, server_hostname=server.host)
    except ssl.SSLCertVerificationError as error:
        raise server.fault(
            f"shows a certificate that is not trusted ({printable(error.verify_message)}): set {server.macro}AUTHORITY "
            "to the authority that signed it, or connect by the name in it"
        ) from None
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
        raise server.fault(
            "ends the TLS handshake: it does not speak TLS at this port, or wants a client certificate "
            f"({server.macro}CERTIFICATE)"
        ) from None
    except ssl.SSLError as error:
        raise _complaint(error, server) from None
    except OSError as error:
        raise server.fault(f"does not end the TLS handshake ({error.strerror or error}): look at its log") from None


def _complaint(error: ssl.SSLError, server: Server) -> JobLensError:
    """What a server has against TLS with us."""
    reason = error.reason or str(error)
    if reason in _NO_TLS:
        return server.fault("does not speak TLS at this port: name its TLS port, if this is the plain one")
    _, _, alert = reason.rpartition("ALERT_")
    if alert in _CLIENTS_CERTIFICATE:
        alert = alert.lower().replace("_", " ")
        pair = f"{server.macro}CERTIFICATE and {server.macro}KEY"
        return server.fault(f"wants a client certificate that it trusts ({alert}): set {pair} to one")
    return server.fault(f"does not agree on TLS with us ({printable(reason)}): look at its log")


def exchange(connection: socket.socket, request: bytes, server: Server, most: int = 4096) -> bytes:
    """What is answered first; empty where the connection is closed instead. Raises JobLensError on silence, and where
    a server finds only now, as TLS 1.3 has it, that it does not like our certificate."""
    try:
        with contextlib.suppress(ConnectionError):  # it may have said why before it closed
            connection.sendall(request)
        return connection.recv(most)
    except (socket.timeout, TimeoutError):  # the same from Python 3.10 on
        raise server.fault("takes the connection and then says nothing: does it hang?") from None
    except ssl.SSLError as error:
        if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            return b""
        raise _complaint(error, server) from None
    except OSError:
        return b""


def close(connection: socket.socket) -> None:
    """Closes without complaint."""
    with contextlib.suppress(OSError):
        connection.close()


def walk(sink: str, url: str, tls: ssl.SSLContext | None, kind: str) -> None:
    """Walks to a web server as a client would. Raises JobLensError at the first step that fails.

    url: of the sink's knob URL, as parsers.urls gives it; tls: None for http; kind: what should be there.
    """
    scheme, _, rest = url.partition("://")
    host, port = split(rest.partition("/")[0], 443 if scheme == "https" else 80)
    server = Server(macro_of(sink), "URL", url, host, port)
    connection = connect(server)
    try:
        if tls is not None:
            connection = encrypt(connection, tls, server)
        answer = exchange(connection, f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode(), server)
    finally:
        close(connection)
    if answer[:2] == b"\x15\x03" or b"HTTPS" in answer or b"plain HTTP request" in answer:
        raise server.fault("wants TLS: write https:// instead of http://")
    if not answer and tls is not None:
        raise server.has_ended()
    if answer[:5] != b"HTTP/":
        raise server.fault(f"does not answer in HTTP: is it {kind}'s port?")
