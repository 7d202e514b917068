"""How long a connection to the hub may say nothing: uvicorn's protocol, which else would wait for ever for a request.

Everybody can connect who reaches the port, also without a token or a session. So nobody is to keep others out by
connections on which nothing happens.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""From a connection, or from an answer, to the next whole head of a request."""

ANSWER_SECONDS = 90.0
"""From there until the answer is sent; what asks the store has 60."""

CROWD = 0.75
"""Of all connections that may be: if there are more, the one that has said nothing for the longest time is closed."""


class PatientProtocol(H11Protocol):  # type: ignore[misc]
    """Closes a connection on which nothing happens."""

    _seen: tuple[object, bool] = (None, True)
    _since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Once a connection."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._later(REQUEST_SECONDS)
        self._make_room()

    def _make_room(self) -> None:
        """Not by closing ourselves: where all others are busy, whoever comes is to be heard all the same."""
        most = CROWD * self.limit_concurrency
        if len(self.connections) > most:
            others = [each for each in self.connections if each is not self and not each.transport.is_closing()]
            oldest = min(others, key=lambda one: one.silent_since, default=self)
            if len(others) >= most and oldest.silent_since < float("inf"):
                oldest.transport.abort()

    @property
    def silent_since(self) -> float:
        """Since when it owes us a request; infinite: it does not."""
        return self._since if self._is_silent() else float("inf")

    def _is_silent(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _later(self, seconds: float) -> None:
        self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        seen, now = (self.cycle, self._is_silent()), self.loop.time()
        if seen != self._seen:
            self._seen, self._since = seen, now
        left = self._since + (REQUEST_SECONDS if seen[1] else ANSWER_SECONDS) - now
        if left <= 0:
            self.transport.abort()
        else:
            self._later(min(left, REQUEST_SECONDS))
