"""Web servers that may be hostile: no answer takes more memory or time than one of ours is worth.

At most some kilobytes of an answer are read, as they come: nothing is decompressed, as nothing compressed was asked
for. And there is one deadline for the whole request. A timeout alone is for each piece that arrives: a server that
sends a byte a second would hold us for ever.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

MOST_BYTES = 64 << 10
"""Of an answer, as it comes."""

_request = threading.local()


class AnswerTooLong(HTTPError):
    """The server answers with more than it may."""


class TooSlow(HTTPError):
    """The whole request takes longer than it may."""


class _Watch:
    """The connections of one request; at its deadline they are shut down, which ends any wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.is_over = False

    def add(self, descriptor: int) -> None:
        """Watches a connection, by a descriptor of its own: the other one may be closed and be another's by then."""
        with self._lock, contextlib.suppress(OSError):
            copy = socket.socket(fileno=os.dup(descriptor))
            self._sockets.append(copy)
            if self.is_over:
                copy.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """The time is up."""
        with self._lock:
            self.is_over = True
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """The request has ended."""
        with self._lock:
            for each in self._sockets:
                each.close()


class _Watched:
    """Of a connection's class: tells the watch of its thread's request which socket it uses."""

    sock: Any

    def _new_conn(self) -> Any:
        made = super()._new_conn()  # type: ignore[misc]
        _tell(made)  # before the TLS handshake, which may take for ever too
        return made

    def putrequest(self, *arguments: Any, **more: Any) -> Any:
        if self.sock is not None:
            _tell(self.sock)
        return super().putrequest(*arguments, **more)  # type: ignore[misc]


def _tell(made: socket.socket) -> None:
    watch = getattr(_request, "watch", None)
    if watch is not None:
        watch.add(made.fileno())


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[_Watch]:
    watch = _request.watch = _Watch()
    timer = threading.Timer(seconds, watch.end)
    timer.daemon = True
    timer.start()
    try:
        yield watch
    finally:
        timer.cancel()
        _request.watch = None
        watch.close()


def bind(pool: Any, seconds: float) -> Any:
    """The pool (urllib3.HTTPConnectionPool), whose `urlopen` is bounded from now on; `seconds` for a whole request.

    `urlopen` raises AnswerTooLong or TooSlow, besides what it raised before. The room for an answer grows a little with
    the request: a server may have a few words for each of a thousand documents.
    """
    plain = pool.ConnectionCls
    pool.ConnectionCls = type(f"Watched{plain.__name__}", (_Watched, plain), {})
    urlopen = pool.urlopen

    def bounded(method: str, url: str, body: Any = None, *arguments: Any, **more: Any) -> urllib3.HTTPResponse:
        most = MOST_BYTES + (len(body) // 8 if isinstance(body, (bytes, bytearray)) else 0)
        more.update(preload_content=False, decode_content=False)
        with _deadline(seconds) as watch:
            try:
                answer = urlopen(method, url, body, *arguments, **more)
                content = _read(answer, most)
            except (HTTPError, OSError):
                if watch.is_over:
                    raise TooSlow(f"the whole request took more than {seconds:g} s") from None
                raise
            if watch.is_over:  # it looks as if the answer had ended there
                answer.close()
                raise TooSlow(f"the whole request took more than {seconds:g} s")
        return urllib3.HTTPResponse(
            io.BytesIO(content),
            answer.headers,
            answer.status,
            reason=answer.reason,
            preload_content=True,
            decode_content=False,
        )

    pool.urlopen = bounded
    return pool


def _read(answer: Any, most: int) -> bytes:
    content = bytearray()
    while len(content) <= most:
        more = answer.read(most + 1 - len(content), decode_content=False)
        if not more:
            answer.release_conn()
            return bytes(content)
        content += more
    answer.close()
    raise AnswerTooLong(f"it answers with more than {most} bytes")
