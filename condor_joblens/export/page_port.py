"""The port of the Prometheus page, kept by the supervisor: as long as it lives, nobody else can listen there."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import NoReturn, Optional

from condor_joblens.common import readiness
from condor_joblens.common.listening import listen, split
from condor_joblens.common.page_address import RETRY_SECONDS, cannot_listen
from condor_joblens.common.privilege import become

PRIVILEGED_BELOW = 1024
"""Ports below this take CAP_NET_BIND_SERVICE."""

_RESOLVE_SECONDS = 5.0
_LONGEST = 64  # characters of an address


class PagePort:
    """Listens at one address, or tries to."""

    def __init__(self, log: Callable[[str], None], ids: Optional[tuple[int, int]]) -> None:
        """`ids`: user and group id of whoever may ask the name service; None: this process itself."""
        self._log, self._ids = log, ids
        self._address, self._said = "", ""
        self._next_try = 0.0
        self.listener: Optional[socket.socket] = None

    def want(self, address: str) -> None:
        """From now on it is to listen at this HOST:PORT; empty: nowhere. The old address is kept until the new one is
        bound, or proves to need the same port."""
        if address == self._address:
            return
        old, self.listener = self.listener, None
        self._address, self._said = address, ""
        if address and old is not None and split(address)[1] == split(_name_of(old))[1]:
            _end(old)
        self._listen()
        _end(old)

    def seconds(self) -> Optional[float]:
        """Until the next try; None if there is nothing to try."""
        if not self._address or self.listener is not None:
            return None
        return max(0.0, self._next_try - time.monotonic())

    def look(self) -> None:
        """Begins again if nobody listens any more: the exporter has the same socket, and can shut it down."""
        if self.listener is not None and not self.listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            self._log(f"the exporter has shut down the socket at {self._address}: another one is made")
            self.listener.close()
            self.listener, self._next_try = None, 0.0

    def try_again(self) -> bool:
        """Listens, if it is time to try that. Whether there is a socket now that was not there before."""
        if self.seconds() == 0:
            self._listen()
            return self.listener is not None
        return False

    def _listen(self) -> None:
        if not self._address:
            return
        self._next_try = time.monotonic() + RETRY_SECONDS
        try:
            self.listener = listen(self._numeric())
        except (OSError, UnicodeError) as error:
            said = cannot_listen(self._address, error)
            if isinstance(error, PermissionError) and split(self._address)[1] < PRIVILEGED_BELOW:
                said += f". A port below {PRIVILEGED_BELOW} takes a restart: condor_off -subsystem joblens_export, then"
                said += " condor_on"
            if said != self._said:
                self._log(said)
            self._said = said

    def _numeric(self) -> str:
        """The address without a name. Answers of the name service come from the network, so root does not read them."""
        host, port = split(self._address)
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return self._address
        found = _resolved(host, self._ids)
        return f"[{found}]:{port}" if ":" in found else f"{found}:{port}"


def _resolved(host: str, ids: Optional[tuple[int, int]]) -> str:
    """The address of a host, asked for by a process without privileges. Raises OSError."""
    answer, child_end = os.pipe()
    child = os.fork()
    if child == 0:
        _resolve(host, ids, child_end)
    os.close(child_end)
    try:
        ready = readiness.readable([answer], _RESOLVE_SECONDS)
        said = os.read(answer, _LONGEST).decode("ascii", "replace") if ready else ""
    finally:
        os.close(answer)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    try:
        return str(ipaddress.ip_address(said))
    except ValueError:
        raise OSError(0, f"the name {host} has no address: correct it, or the name service") from None


def _resolve(host: str, ids: Optional[tuple[int, int]], to: int) -> NoReturn:
    """In the child: writes the first address of the host."""
    try:
        if ids:
            become(*ids)
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
        os.write(to, str(found[0][4][0]).encode())
    finally:
        os._exit(0)


def _name_of(listener: socket.socket) -> str:
    name = listener.getsockname()
    return f"[{name[0]}]:{name[1]}"


def _end(listener: Optional[socket.socket]) -> None:
    """Nobody listens there any more, though the exporter may still have a copy of the socket."""
    if listener is not None:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
