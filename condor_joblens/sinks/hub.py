"""Records to the hub: gzip lines of JSON over HTTPS, with the node's token. Nothing but Python's own library."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from condor_joblens.common import readiness
from condor_joblens.common.compression import gzipped_pieces
from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import (
    DeliveryResult,
    Diagnosis,
    Record,
    Sink,
    SinkContext,
    SinkKnob,
    hub_artifacts,
    macro_of,
    not_now,
    parsers,
    secret,
    server_diagnosis,
    tls,
)
from condor_joblens.sinks.hub_artifacts import ArtifactPosts, Waiting

_SECONDS = 10.0  # for the connection
_WHOLE_SECONDS = 30.0  # for a request, from the connection to the end of the answer, which comes when the store has all
_MOST_BYTES = 4 << 20  # of lines in a post, before gzip; the hub takes 16 MiB
_MOST_ANSWER = 64 << 10  # as it comes: nothing is unpacked
_LONGEST_PAUSE = 60.0
KINDS = ("profile", "off_cpu", "hang", "traceback", "recorder")
"""Of artifacts, that the hub can show. They name functions, files and arguments of jobs, so they are asked for."""

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class HubSink(Sink):
    """Delivered is what the hub answered with 200: its store has it then. It tells records that come twice by Id."""

    name = "hub"
    knobs = (
        SinkKnob("URL", None, parsers.urls, "URL", "where the hub takes records: https://hub.example.org:8766"),
        SinkKnob("TOKEN_FILE", None, secret.path, "file", "this node's token, from `joblens-hub token node NAME`"),
        SinkKnob("ARTIFACTS", "", parsers.some_of(*KINDS), "words", f"which artifacts go there: {', '.join(KINDS)}"),
        *tls.client_knobs("hubs"),
    )

    def __init__(self, settings: Mapping[str, Any], context: SinkContext) -> None:
        super().__init__(settings, context)
        self._url: str = settings["url"][0]
        self._connection: _Connection | None = None
        self._artifacts = ArtifactPosts(
            settings.get("artifacts", ()),
            context.artifact,
            lambda body: self._ask("POST", hub_artifacts.PATH, body, "application/octet-stream", "identity"),
            self._why,
            context.log,
        )

    def start(self) -> None:
        """Looks whether token and certificates can be read; the hub is looked for with the first batch."""
        self._token()
        self._made()

    def deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """In posts of some megabytes, in order: the first that is not taken ends it."""
        refused: dict[int, str] = {}
        begin = 0
        while begin < len(batch):
            end, size = begin, 0
            while end < len(batch) and (end == begin or size + len(batch[end].json) <= _MOST_BYTES):
                size += len(batch[end].json) + 1
                end += 1
            part = batch[begin:end]
            outcome = self._deliver(part)
            refused.update((begin + place, why) for place, why in outcome.refused.items())
            if outcome.retry:  # of what it has taken in part no artifact has been sent
                again = sorted({*outcome.retry, *self._artifacts.announced(part)})
                waiting = Waiting(again, outcome.reason, outcome.after)
            else:
                waiting = self._deliver_artifacts(part)
            if waiting.positions:
                left = [*(begin + place for place in waiting.positions), *range(end, len(batch))]
                refused = {place: why for place, why in refused.items() if place not in left}
                return DeliveryResult(left, refused, waiting.reason, waiting.after)
            begin = end
        return DeliveryResult(refused=refused)

    def close(self, seconds: float) -> None:
        """Ends the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def check(self) -> Iterator[Diagnosis]:
        """The way to the hub, then whether it knows our token."""
        try:
            self.start()
            server_diagnosis.walk(self.name, self._url, self._tls(), "the hub")
            status, content, _ = self._ask("GET", "/v1/alive", b"")
            said = self._why(status, content)
            if status != 200:
                raise JobLensError(said)
            node = json.loads(content).get("node")
            if node != self.context.node:
                raise JobLensError(
                    f"{macro_of(self.name, 'TOKEN_FILE')}: the token is that of {printable(str(node))}, and this node "
                    f"is {printable(self.context.node)}: make one for it (joblens-hub token node NAME)"
                )
            yield Diagnosis(True, f"{self._url} takes this node's records")
        except JobLensError as error:
            yield Diagnosis.of(error)
        except (OSError, http.client.HTTPException, ValueError, AttributeError, RecursionError):
            yield Diagnosis.of(JobLensError(f"{self._where} does not answer as the hub does: is it the hub's port?"))
        finally:
            self.close(0)

    # --- requests

    def _deliver_artifacts(self, batch: Sequence[Record]) -> Waiting:
        """What events announce. Where one could not be sent, its event comes again."""
        try:
            return self._artifacts.deliver(batch)
        except JobLensError as error:
            reason = str(error)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = self._unreachable(error)
        return Waiting(self._artifacts.announced(batch), reason)

    def _deliver(self, batch: Sequence[Record]) -> DeliveryResult:
        """What is too long together is sent in halves."""
        body = gzipped_pieces(piece for record in batch for piece in (record.json, b"\n"))
        try:
            status, content, after = self._ask("POST", "/v1/records", body)
        except JobLensError as error:
            return not_now(batch, str(error))
        except (OSError, http.client.HTTPException, ValueError) as error:
            return not_now(batch, self._unreachable(error))
        if status == 413 and len(batch) > 1:
            half = len(batch) // 2
            first = self._deliver(batch[:half])
            if first.retry:
                rest = [*first.retry, *range(half, len(batch))]
                return DeliveryResult(rest, first.refused, first.reason, first.after)
            second = self._deliver(batch[half:])
            refused = {**first.refused, **{half + place: why for place, why in second.refused.items()}}
            return DeliveryResult([half + place for place in second.retry], refused, second.reason, second.after)
        if status == 413:
            return DeliveryResult(refused={0: "the hub takes no record of that size"})
        if status != 200:
            return not_now(batch, self._why(status, content), after)
        refused_ones = _refused(content, len(batch))
        if refused_ones is None:
            return not_now(batch, f"{self._where} does not answer as the hub does: is it the hub's port?")
        return DeliveryResult(refused=refused_ones)

    def _ask(
        self, method: str, path: str, body: bytes, kind: str = "application/x-ndjson", encoding: str = "gzip"
    ) -> tuple[int, bytes, float]:
        """Status, content, and for how long the hub wants to be left alone. Raises JobLensError, OSError,
        HTTPException, ValueError."""
        head = {
            "Authorization": f"Bearer {self._token()}",
            "Content-Type": kind,
            "Content-Encoding": encoding,
            "Accept-Encoding": "identity",
            "JobLens-Period": f"{self.settings.get('period') or 0:.3f}",
        }
        connection, self._connection = self._connection, None  # one that fails is not used again
        if connection is not None and not connection.is_quiet():
            connection.close()
            connection = None
        connection = connection or self._made()
        watch = threading.Timer(_WHOLE_SECONDS, connection.end)
        watch.daemon = True
        watch.start()
        try:
            connection.request(method, self._path + path, body, head)
            answer = connection.getresponse()
            content = answer.read(_MOST_ANSWER + 1)
            if len(content) > _MOST_ANSWER:
                raise ValueError("its answer is too long")
            wait = answer.headers.get("Retry-After", "")
            pause = min(_LONGEST_PAUSE, float(wait)) if wait.isascii() and wait.isdecimal() and len(wait) < 9 else 0.0
            if not answer.will_close and answer.isclosed():
                self._connection = connection
            return answer.status, content, pause
        finally:
            watch.cancel()
            if self._connection is not connection:
                connection.close()

    def _made(self) -> _Connection:
        """Raises JobLensError."""
        url = urllib.parse.urlsplit(self._url)
        context = self._tls()
        if context is None and url.hostname not in _LOOPBACK:
            raise JobLensError(f"{self._where} is not encrypted, and all between would see the token: write https://")
        return _Connection(url.hostname or "", url.port or (80 if context is None else 443), context)

    def _token(self) -> str:
        """Raises JobLensError."""
        found = secret.read(self.settings["token_file"])
        if not (found.isascii() and found.isprintable() and " " not in found):
            raise JobLensError(
                f"{self.settings['token_file']} has no token: write one line, what joblens-hub token says"
            )
        return found

    @property
    def _path(self) -> str:
        return urllib.parse.urlsplit(self._url).path.rstrip("/")

    @property
    def _where(self) -> str:
        return f"{macro_of(self.name, 'URL')}: {self._url}"

    def _tls(self) -> ssl.SSLContext | None:
        return tls.client(self.name, self.settings, "" if self._url.startswith("https:") else "URL = http://...")

    def _unreachable(self, error: Exception) -> str:
        try:
            server_diagnosis.walk(self.name, self._url, self._tls(), "the hub")
        except JobLensError as reason:
            return str(reason)
        said = printable(f"{type(error).__name__}: {error}", 200)
        return f"{self._where} does not answer ({said}): look at its log"

    def _why(self, status: int, content: bytes) -> str:
        said = printable(content[:300].decode("utf-8", "replace"), 200)
        if status in (401, 403):
            file = macro_of(self.name, "TOKEN_FILE")
            return f"{self._where} refuses us ({status}): make a token for this node, and correct what stands in {file}"
        if status in (429, 503):
            return f"{self._where} takes nothing for now ({status}, {said})"
        if status in (404, 405):
            return f"{self._where} has no /v1/records: name the address at which the hub takes records"
        return f"{self._where} answers {status} ({said}): look at its log"


class _Connection(http.client.HTTPConnection):
    """Can be ended from another thread, also within the TLS handshake."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        super().__init__(host, port, timeout=_SECONDS)
        self._context = context
        self._watched: socket.socket | None = None
        self._is_over = False

    def connect(self) -> None:
        """Raises OSError."""
        plain = socket.create_connection((self.host, self.port), _SECONDS)
        self._watched = plain.dup()
        if self._is_over:
            self.end()
        if self._context is not None:
            plain = self._context.wrap_socket(plain, server_hostname=self.host)
        plain.settimeout(_WHOLE_SECONDS)
        self.sock = plain

    def end(self) -> None:
        """Whatever is waited for ends."""
        self._is_over = True
        if self._watched is not None:
            with contextlib.suppress(OSError):
                self._watched.shutdown(socket.SHUT_RDWR)

    def is_quiet(self) -> bool:
        """Whether it is open, and nothing has come that nobody asked for."""
        return self._watched is not None and not readiness.readable([self._watched], 0)

    def close(self) -> None:
        """For good: it connects no more."""
        super().close()
        if self._watched is not None:
            self._watched.close()


def _refused(content: bytes, count: int) -> dict[int, str] | None:
    """Position -> why, of an answer to `count` records; None if it is not the hub's."""
    try:
        refused = json.loads(content)["refused"]
        found = {int(place): printable(str(why), 200) for place, why in refused.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return found if all(0 <= place < count for place in found) else None
