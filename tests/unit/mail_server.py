"""A real mail server for tests: aiosmtpd at a free port of this machine, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from aiosmtpd.smtp import SMTP


class MailServer:
    """Keeps what it takes: to whom, and the text. `answer` is what it says to each."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], str]] = []
        self.answer = "250 OK"
        self._loop = asyncio.new_event_loop()
        server = self._loop.run_until_complete(
            self._loop.create_server(lambda: SMTP(self, hostname="localhost", loop=self._loop), "127.0.0.1", 0)
        )
        self.port: int = server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """As aiosmtpd asks."""
        if self.answer.startswith("250"):
            self.mails.append((envelope.rcpt_tos, envelope.content.decode()))
        return self.answer

    def stop(self) -> None:
        """For good."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()
