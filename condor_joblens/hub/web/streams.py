"""Pages that renew themselves: server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html.

Each period it is looked at anew who the viewer is. A session that has ended ends the stream, and so does a person who
may see something else now. Then the browser asks for the page again. A viewer has a bounded number of streams.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Optional

PERIOD = 2.0
"""Seconds between two looks at what is new."""

ALIVE_PERIODS = 8
"""After so many without news a comment is sent, so that a proxy between keeps the connection."""

LONGEST = 60.0
"""Seconds of a stream: then the browser asks for another. What takes longer than 90 is cut off (patience.py)."""

MOST_OF_A_VIEWER = 16
MOST = 320
"""Of all viewers. The server takes 512 connections, and of more than 384 it closes silent ones (patience.py). Below
that, who asks for a page beside the streams has time to ask."""

SOON = b"retry: 200\n\n"
"""Milliseconds until the browser asks again."""

OVER = b"event: over\ndata:\n\n"


Look = Callable[[], Optional[bytes]]
"""What is new, as an event; None: he may see it no more. Called in a thread; it says itself what it can't tell."""


class Streams:
    """Those that are open. Any thread may ask."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, login: str, look: Look, period: float = PERIOD) -> Stream | None:
        """One more of this viewer, whose place is taken from now on; None: he or all together have too many."""
        with self._lock:
            if self._open[login] >= MOST_OF_A_VIEWER or sum(self._open.values()) >= MOST:
                return None
            self._open[login] += 1
        return Stream(look, period, lambda: self._give_back(login))

    def _give_back(self, login: str) -> None:
        with self._lock:
            self._open[login] -= 1
            if not self._open[login]:
                del self._open[login]


class Stream:
    """Events for one page: what `look` gives whenever it is another one, and `over` once that is None."""

    def __init__(self, look: Look, period: float, over: Callable[[], None]) -> None:
        self._look, self._period = look, period
        # once: when it ends, when Django closes the answer, or when an answer that nobody ever read is forgotten
        self._over = weakref.finalize(self, over)

    def close(self) -> None:
        """Its place is free. Django calls it at the end of an answer, also of one that was never begun."""
        self._over()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """For one event loop."""
        try:
            said, quiet = b"", 0
            clock = asyncio.get_running_loop().time
            end = clock() + LONGEST
            while (found := await asyncio.to_thread(self._look)) is not None:
                if found != said:
                    said, quiet = found, 0
                    yield found
                else:
                    quiet += 1
                    if quiet % ALIVE_PERIODS == 0:
                        yield b":\n\n"
                if clock() > end:
                    yield SOON
                    return
                # all at the same moments, so that an answer serves all of them
                await asyncio.sleep(self._period - clock() % self._period if self._period else 0)
            yield OVER
        finally:
            self.close()


def event(name: str, text: str) -> bytes:
    """As the browser reads it: each line of the text is a line of data. A carriage return would end one too."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n{''.join(f'data: {line}{chr(10)}' for line in lines)}\n".encode()
