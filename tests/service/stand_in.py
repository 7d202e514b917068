"""What stands before a server in tests: an interpreter for the broker that librdkafka has for tests, which answers
kafka-python's first question oddly, and TLS that wants a certificate."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from pathlib import Path

_API_VERSIONS = 18


class Relay:
    """Stands before a server at `target`, and hands on bytes."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()
            _copy(client, server)


class Front(Relay):
    """Speaks TLS, with those alone who show a certificate that `trusted` has signed."""

    def __init__(self, target: tuple[str, int], own: tuple[Path, Path], trusted: Path) -> None:
        """own: certificate and key."""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*own)
        self._tls.load_verify_locations(trusted)
        self._tls.verify_mode = ssl.CERT_REQUIRED
        super().__init__(target)

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            super()._serve(self._tls.wrap_socket(client, server_side=True))


class Proxy(Relay):
    """Answers ApiVersions of version 3 as the protocol has it: ask for less."""

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as broker:
            threading.Thread(target=_copy, args=(broker, client), daemon=True).start()
            while (request := _frame(client)) is not None:
                key, version, correlation = struct.unpack(">hhi", request[:8])
                if key == _API_VERSIONS and version > 2:
                    # version 0 of the answer: error 35, and that versions 0 to 2 of this one question are known
                    answer = struct.pack(">ihi3h", correlation, 35, 1, _API_VERSIONS, 0, 2)
                    client.sendall(struct.pack(">i", len(answer)) + answer)
                else:
                    broker.sendall(struct.pack(">i", len(request)) + request)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def _frame(connection: socket.socket) -> bytes | None:
    try:
        head = _exactly(connection, 4)
        return None if head is None else _exactly(connection, struct.unpack(">i", head)[0])
    except OSError:
        return None


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
