"""What nodes speak to: POST /v1/records, gzip lines of JSON, with a node's token. An ASGI application.

POST /v1/artifacts has a line of JSON, and behind it a chunk of an artifact as it is.

200 says that the store has all records but those that `refused` names, by their position, each with the reason. 429 and
503 say: not now, and nothing is promised. What one node may take at a time, and all nodes together, is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from condor_joblens import __version__
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.tokens import Who, digest
from condor_joblens.hub.artifacts import MOST_CHUNK, Artifacts, Refused
from condor_joblens.hub.ingest.gather import Gatherer
from condor_joblens.hub.ingest.records import MOST_BYTES, NotAPost, Post, read, unpacked
from condor_joblens.hub.store.client import StoreGone

MOST_PACKED = 4 << 20
"""Bytes of a body as it comes."""

MOST_HEAD = 16 << 10
"""Bytes of what stands before a chunk of an artifact."""

AT_ONCE = 8
"""Chunks of artifacts that are worked on at a time."""

CHECKED_AT_ONCE = 2
"""Posts that are unpacked and checked at a time: each takes some tens of megabytes at most. Others wait, packed."""

COMING = 512
"""Posts of all nodes that come, are worked on or wait for the store. Some nodes that send slowly must not keep the
others out."""

MOST_HELD = 64 << 20
"""Bytes of bodies that have come and are not unpacked yet."""

MOST_REASONS = 16 << 10
"""Bytes of an answer that say why records are refused; of more records it is not said. Nodes read 64 KiB."""

PERIOD_HEADER = "joblens-period"
"""Of a post: seconds between a run's samples, where the node's sink leaves out those between. Such runs are silent for
longer before the hub takes note."""

LONGEST_PERIOD = 86400

SECONDS = 20.0
"""For a body to come."""

KEEP_SECONDS = 25.0
"""For the store to have it; nodes wait for 30."""

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class _Refusal(Exception):
    def __init__(self, status: int, reason: str, after: int = 0) -> None:
        super().__init__(reason)
        self.status, self.after = status, after


def _too_many() -> _Refusal:
    return _Refusal(503, "too many posts at a time", 1)


class _Room:
    """For the bodies of all requests together, as they come: who sends slowly takes no more than he has sent."""

    def __init__(self, size: int) -> None:
        self._left = size

    @contextlib.contextmanager
    def some(self) -> Iterator[Callable[[int], None]]:
        """For one body: what takes so many bytes more, or raises _Refusal. They are free when it is left."""
        taken = 0

        def hold(count: int) -> None:
            nonlocal taken
            if count > self._left:
                raise _too_many()
            self._left -= count
            taken += count

        try:
            yield hold
        finally:
            self._left += taken


class App:
    """For one process."""

    def __init__(
        self, gatherer: Gatherer, tokens: Callable[[], dict[str, Who]], artifacts: Artifacts | None = None
    ) -> None:
        """tokens: asked at each post, by SHA-256."""
        self._gatherer, self._tokens, self._artifacts = gatherer, tokens, artifacts
        self._task: asyncio.Task[None] | None = None
        self._busy: Counter[str] = Counter()  # posts of each node that come, or are worked on
        self._working = 0  # chunks of artifacts
        self._room = _Room(MOST_HELD)
        self._checking = asyncio.Semaphore(CHECKED_AT_ONCE)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                status, answer, after = *await self._answer(scope, receive), 0
            except _Refusal as refusal:
                status, answer, after = refusal.status, {"error": str(refusal)}, refusal.after
            body = json.dumps(answer).encode()
            head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            if after:
                head.append((b"retry-after", str(after).encode()))
            if status not in (200, 409, 429):  # of the body nothing may have been read
                head.append((b"connection", b"close"))
            await send({"type": "http.response.start", "status": status, "headers": head})
            await send({"type": "http.response.body", "body": body})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._task = asyncio.create_task(self._gatherer.run())
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._task:
                    self._task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await self._task
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(self, scope: Any, receive: Receive) -> tuple[int, dict[str, Any]]:
        """Raises _Refusal."""
        head = {name.lower(): value for name, value in scope["headers"]}
        who = self._who(head.get(b"authorization", b""))
        node = who.name
        if scope["path"] == "/v1/alive" and scope["method"] in ("GET", "HEAD"):
            return 200, {"hub": __version__, "node": node}
        take = {"/v1/records": self._post, "/v1/artifacts": self._artifact}.get(scope["path"])
        if take is None:
            raise _Refusal(404, "there is /v1/records, /v1/artifacts, and /v1/alive")
        if scope["method"] != "POST":
            raise _Refusal(405, "records and artifacts are posted")
        if take == self._artifact and not who.is_node:
            raise _Refusal(403, "artifacts are nodes'")
        if take == self._post and head.get(b"content-encoding", b"").lower() != b"gzip":
            raise _Refusal(415, "the body is to be packed by gzip")
        # on a machine of both roles two programs post, and the exporter has its next post ready at once:
        # joblens-eventlog would hardly ever find a moment without one
        if self._busy[node] >= who.is_node + who.is_access_point:
            raise _Refusal(429, f"another post of {node} is worked on", 1)
        if sum(self._busy.values()) >= COMING or (take == self._artifact and self._working >= AT_ONCE):
            raise _too_many()
        self._busy[node] += 1
        try:
            return await take(head, receive, who)
        finally:
            self._busy[node] -= 1
            if not self._busy[node]:
                del self._busy[node]

    async def _post(self, head: dict[bytes, bytes], receive: Receive, who: Who) -> tuple[int, dict[str, Any]]:
        """Raises _Refusal."""
        post = await self._checked(head, receive, who)
        if post.rows:
            await self._keep(post)
        return 200, {"refused": _reasons(post)}

    async def _checked(self, head: dict[bytes, bytes], receive: Receive, who: Who) -> Post:
        """Raises _Refusal."""
        period = _period(head)
        with self._room.some() as hold:
            body = await _whole_body(head, receive, MOST_PACKED, hold)
            async with self._checking:
                if self._gatherer.is_full:  # asked when the body is there: who still sends it could not hear us
                    raise _too_many()
                try:
                    return await asyncio.to_thread(lambda: read(unpacked(body), who.name, period=period, role=who.role))
                except NotAPost as error:
                    raise _Refusal(413 if "more than" in str(error) else 400, str(error)) from None

    async def _keep(self, post: Post) -> None:
        """Raises _Refusal."""
        try:
            await asyncio.wait_for(self._gatherer.keep(post), KEEP_SECONDS)
        except asyncio.TimeoutError:
            raise _Refusal(503, "the store takes too long", 5) from None
        except StoreGone as error:
            raise _Refusal(503, str(error), 5) from None

    async def _artifact(self, head: dict[bytes, bytes], receive: Receive, who: Who) -> tuple[int, dict[str, Any]]:
        """409: this chunk is not the one that is wanted. Raises _Refusal."""
        artifacts = self._artifacts
        if artifacts is None:
            raise _Refusal(404, "this hub takes no artifacts")
        with self._room.some() as hold:
            body = await _whole_body(head, receive, MOST_CHUNK + MOST_HEAD, hold)
        about, _, chunk = body.partition(b"\n")
        if self._working >= AT_ONCE:
            raise _too_many()
        self._working += 1
        try:
            said = json.loads(about[:MOST_HEAD])
            if not isinstance(said, dict):
                raise ValueError
            have, is_whole = await asyncio.to_thread(artifacts.put, who.name, said, chunk)
        except (ValueError, RecursionError):
            raise _Refusal(422, "the head of the artifact is no JSON") from None
        except Refused as error:
            raise _Refusal(error.status, str(error)) from None
        except (JobLensError, OSError) as error:
            raise _Refusal(503, f"artifacts can't be kept now: {error}", 5) from None
        finally:
            self._working -= 1
        wanted = said.get("Offset") == have - len(chunk) or is_whole
        return (200 if wanted else 409), {"have": have, "whole": is_whole}

    def _who(self, authorization: bytes) -> Who:
        """Whose token is shown. Raises _Refusal."""
        kind, _, token = authorization.decode("latin-1").partition(" ")
        who = self._tokens().get(digest(token.strip())) if kind.lower() == "bearer" else None
        if who is None or not (who.is_node or who.is_access_point):
            raise _Refusal(401, "no node and no access point has this token")
        return who


def _period(head: dict[bytes, bytes]) -> float:
    """Seconds between a run's samples, of the sink that posts; 0: it takes all. Raises _Refusal."""
    text = head.get(PERIOD_HEADER.encode(), b"0")
    found = float(text) if re.fullmatch(rb"[0-9]{1,6}(\.[0-9]{1,6})?", text) else -1.0
    if not 0 <= found <= LONGEST_PERIOD:
        raise _Refusal(400, f"{PERIOD_HEADER} is a number of seconds, up to {LONGEST_PERIOD}")
    return found


def _reasons(post: Post) -> dict[str, str]:
    """Position of each refused record -> why."""
    found, left = {}, MOST_REASONS
    for position, why in sorted(post.refused.items()):
        left -= len(json.dumps(why))
        found[str(position)] = why if left >= 0 else "so is this"
    return found


async def _whole_body(head: dict[bytes, bytes], receive: Receive, most: int, hold: Callable[[int], None]) -> bytes:
    """hold: is told of bytes as they come, and raises _Refusal if there is no room. Raises _Refusal."""
    try:
        return await asyncio.wait_for(_body(head, receive, most, hold), SECONDS)
    except asyncio.TimeoutError:
        raise _Refusal(408, f"the body did not come within {SECONDS:g} s") from None


async def _body(head: dict[bytes, bytes], receive: Receive, most: int, hold: Callable[[int], None]) -> bytes:
    """Raises _Refusal."""
    length = head.get(b"content-length", b"0")
    too_long = _Refusal(413, f"more than {most} bytes, or {MOST_BYTES >> 20} MiB unpacked: send less at once")
    if not length.isdigit() or int(length) > most:
        raise too_long
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refusal(400, "the connection ended within the body")
        piece = message.get("body", b"")
        if len(body) + len(piece) > most:
            raise too_long
        hold(len(piece))
        body += piece
        if not message.get("more_body"):
            return bytes(body)
