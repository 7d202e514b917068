"""Pages that renew themselves: server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html.

Each period it is looked at anew who the viewer is. A session that has ended ends the stream, and so does a person who
may see something else now. Then the browser asks for the page again. A viewer has a bounded number of streams.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

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


class Streams:
    """Those that are open. For one event loop."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def has_place(self, login: str) -> bool:
        """For one more of this viewer."""
        return self._open[login] < MOST_OF_A_VIEWER and sum(self._open.values()) < MOST

    async def follow(
        self, login: str, look: Callable[[], bytes | None], period: float = PERIOD
    ) -> AsyncIterator[bytes]:
        """Events: what `look` gives whenever it is another one, and `over` once that is None: he may see it no more.

        look: called in a thread, each period; it says itself what it can't tell.
        """
        self._open[login] += 1
        try:
            said, quiet = b"", 0
            clock = asyncio.get_running_loop().time
            end = clock() + LONGEST
            while (found := await asyncio.to_thread(look)) is not None:
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
                await asyncio.sleep(period - clock() % period if period else 0)
            yield OVER
        finally:
            self._open[login] -= 1
            if not self._open[login]:
                del self._open[login]


def event(name: str, text: str) -> bytes:
    """As the browser reads it: each line of the text is a line of data. A carriage return would end one too."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n{''.join(f'data: {line}{chr(10)}' for line in lines)}\n".encode()
