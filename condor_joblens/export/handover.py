"""What joblens-export's supervisor hands to the exporter: the configuration, and the socket of the Prometheus page.

Each message is one byte with descriptors: a file in memory that has the macros as JSON, then the listening socket, if
there is one. Messages go one way. The supervisor runs as root, so it reads nothing that the exporter writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Mapping
from typing import Optional

from condor_joblens.common import descriptors
from condor_joblens.common.page_address import page_address

_MOST = 2  # descriptors of a message


def send(to: socket.socket, macros: Mapping[str, str], listener: Optional[socket.socket]) -> None:
    """Hands these over, without waiting: an exporter that takes nothing is hung, or gone."""
    file = os.memfd_create("joblens-export", os.MFD_CLOEXEC)
    try:
        os.write(file, json.dumps(dict(macros)).encode())
        to.setblocking(False)
        with contextlib.suppress(OSError):
            descriptors.send(to, b"+", [file] if listener is None else [file, listener.fileno()])
    finally:
        os.close(file)


class Handover:
    """The exporter's end of it; from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._from = socket.socket(fileno=descriptor)
        self._from.setblocking(False)
        self._lock = threading.Lock()
        self._macros: dict[str, str] = {}
        self._listener: Optional[socket.socket] = None

    def macros(self) -> dict[str, str]:
        """HTCondor's configuration, as the supervisor has read it last."""
        with self._lock:
            self._take()
            return self._macros

    def listen(self, address: str) -> Optional[socket.socket]:
        """A socket that listens at HOST:PORT; None while the supervisor has none, which then says why in the log."""
        with self._lock:
            self._take()
            if self._listener is None or page_address(self._macros) != address:
                return None
            return self._listener.dup()

    def _take(self) -> None:
        """The newest of what has come."""
        while True:
            try:
                byte, found = descriptors.receive(self._from, 1, _MOST)
            except BlockingIOError:
                return
            if not byte or not found:
                return  # the supervisor has ended
            with open(found[0], "rb") as file:
                file.seek(0)
                self._macros = json.load(file)
            if self._listener is not None:
                self._listener.close()
            self._listener = socket.socket(fileno=found[1]) if found[1:] else None
