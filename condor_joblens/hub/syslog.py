"""A copy of each row of the audit in the machine's log, whence a site sends it to another machine."""

from __future__ import annotations

import contextlib
import logging.handlers
import socket
import sys

from condor_joblens.common.errors import JobLensError, printable

DEFAULT = "/dev/log"
_MOST = 900
"""Characters of a line: RFC 5426 wants 480 bytes to be taken, and all that is around takes 1024."""


class Syslog:
    """Sends lines as joblens-hub, facility authpriv. What can't be sent is said once, and costs nobody an answer."""

    def __init__(self, address: str) -> None:
        """address: a socket's path, or HOST:PORT by UDP. Raises JobLensError."""
        host, _, port = address.rpartition(":")
        is_file = address.startswith("/")
        if not is_file and not (host and port.isascii() and port.isdecimal()):
            raise JobLensError(f"{printable(address)} is neither a socket's path nor HOST:PORT")
        self._address: str | tuple[str, int] = address if is_file else (host.strip("[]"), int(port))
        self._has_failed = False

    def __call__(self, line: str) -> None:
        """One line."""
        try:
            handler = logging.handlers.SysLogHandler(
                self._address, logging.handlers.SysLogHandler.LOG_AUTHPRIV, socket.SOCK_DGRAM
            )
            with contextlib.closing(handler):
                handler.ident, handler.append_nul = "joblens-hub: ", False
                handler.handleError = self._failed  # type: ignore[method-assign]
                handler.handle(logging.LogRecord("hub", logging.NOTSET, "", 0, printable(line, _MOST), None, None))
        except OSError as error:
            self._say(str(error))

    def _failed(self, record: logging.LogRecord) -> None:
        self._say(str(sys.exc_info()[1]))

    def _say(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            print(f"joblens-hub: no copy of the audit at {self._address}: {why}", file=sys.stderr, flush=True)
