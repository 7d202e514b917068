"""TLS peers that shake hands to do harm, and certificates for those that only answer so."""

from __future__ import annotations

import itertools
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from answering_servers import Talk


def dripped(content: bytes) -> Iterator[bytes]:
    """A byte now and then, for ever."""
    for byte in itertools.chain(content, itertools.repeat(0)):
        time.sleep(0.02)
        yield bytes([byte])


def hang(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def drip(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    for piece in dripped(b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb\x03\x03"):
        connection.sendall(piece)


def flood(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    while True:
        connection.sendall(b"\x16\x03\x03\x40\x00" + b"\x02\xff\xff\xff" + bytes((1 << 14) - 4))


def alerts(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    while True:
        connection.sendall(b"\x15\x03\x03\0\2\1\0")


HANDSHAKES: dict[str, Talk] = {
    "a handshake that never comes": hang,
    "a handshake that drips": drip,
    "a handshake without an end": flood,
    "alerts for ever": alerts,
}


def make_certificates(folder: Path) -> None:
    """One in ours.pem, and one of 90 kB in huge.pem, each with its key beside it."""
    names = ",".join(f"DNS:{'x' * 55}{number}.example.org" for number in range(1200))
    for name, alternatives in (("ours", "IP:127.0.0.1"), ("huge", f"IP:127.0.0.1,{names}")):
        (folder / "conf").write_text(
            f"[req]\ndistinguished_name = d\nx509_extensions = e\nprompt = no\n[d]\nCN = {name}\n"
            f"[e]\nsubjectAltName = {alternatives}\n"
        )
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-config", str(folder / "conf")]
        to = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run([*new, *to], check=True, capture_output=True)
