"""A real mail server for tests: aiosmtpd at a free port of this machine, in a thread of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword


class MailServer:
    """Keeps what it takes: to whom, and the text. `answer` is what it says to each.

    With `tls`, it speaks TLS from the first byte, or by STARTTLS if `is_starttls`. With `login`, a name and a password,
    it takes mail from no one else; `shown` are those that it was shown.
    """

    def __init__(
        self, tls: ssl.SSLContext | None = None, is_starttls: bool = False, login: tuple[str, str] | None = None
    ) -> None:
        self.mails: list[tuple[list[str], str]] = []
        self.answer = "250 OK"
        self.shown: list[tuple[str, str]] = []
        self._login = login
        self._loop = asyncio.new_event_loop()
        more: dict[str, Any] = {"tls_context": tls, "require_starttls": True} if is_starttls else {}
        if login:  # of TLS from the first byte, aiosmtpd does not know
            more |= {"authenticator": self._authenticate, "auth_required": True, "auth_require_tls": is_starttls}
        server = self._loop.run_until_complete(
            self._loop.create_server(
                lambda: SMTP(self, hostname="localhost", loop=self._loop, **more),
                "127.0.0.1", 0, ssl=None if is_starttls else tls,
            )
        )  # fmt: skip
        self.port: int = server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.shown.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=self.shown[-1] == self._login, handled=False)  # the server is to answer

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
