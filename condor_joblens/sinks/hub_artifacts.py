"""Artifacts to the hub: what an event announces, read on the node and posted in chunks.

The event waits in the spool until the hub has the artifact whole. For what the node has deleted by then nobody waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.sinks import ReadArtifact, Record, RecordKind

CHUNK = 512 << 10
"""Bytes of an artifact in a post."""

PATH = "/v1/artifacts"
SECONDS = 15.0
"""For the artifacts of one batch: the others are handed in again."""

_MOST_POSTS = 64
"""Of one artifact, with those that the hub asks for again; the largest has 8."""

_MARK = b'"Kind":"Artifact"'

Post = Callable[[bytes], "tuple[int, bytes, float]"]
"""Posts a body: status, content, and for how long the hub wants to be left alone."""


class NotNow(Exception):
    """The hub does not take it for now; the reason, and for how long it wants to be left alone."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


class NeverSent(Exception):
    """It is gone, or the hub refuses it for good."""


@dataclass(frozen=True)
class Waiting:
    """Events whose artifacts the hub does not have yet, by their positions, and why."""

    positions: Sequence[int] = ()
    reason: str = ""
    after: float = 0.0


class ArtifactPosts:
    """For one thread."""

    def __init__(
        self,
        kinds: Sequence[str],
        read: ReadArtifact,
        post: Post,
        why: Callable[[int, bytes], str],
        log: Callable[[str], None],
    ) -> None:
        """kinds: of artifacts that are sent. why: what a status of the hub means, in words."""
        self._kinds, self._read, self._post, self._why, self._log = frozenset(kinds), read, post, why, log

    def deliver(self, batch: Sequence[Record], clock: Callable[[], float] = time.monotonic) -> Waiting:
        """Those that the batch announces. Raises what `post` raises."""
        announced = self.announced(batch)
        end = clock() + SECONDS
        for number, place in enumerate(announced):
            if clock() > end:
                return Waiting(announced[number:], "more artifacts wait for their turn")
            try:
                self._deliver(str(batch[place].fields().get("Artifact", "")))
            except NotNow as error:
                return Waiting(announced[number:], str(error), error.after)
            except NeverSent as error:
                self._log(f"an artifact is not sent to the hub: {printable(str(error), 300)}")
        return Waiting()

    def announced(self, batch: Sequence[Record]) -> list[int]:
        """Positions of the events that announce one that is sent."""
        return [place for place, record in enumerate(batch) if self._is_wanted(record)]

    def _is_wanted(self, record: Record) -> bool:
        if not self._kinds or record.kind is not RecordKind.EVENT or _MARK not in record.json:
            return False
        return record.fields().get("ArtifactKind") in self._kinds

    def _deliver(self, name: str) -> None:
        """Raises NotNow, NeverSent, and what `post` raises."""
        try:
            about, content = self._read(name)
        except JobLensError as error:
            raise NeverSent(str(error)) from None
        if about["sinks"] and "hub" not in about["sinks"]:
            return
        place = 0
        for _ in range(_MOST_POSTS):
            head = json.dumps({**about["head"], "Offset": place}).encode()
            status, said, after = self._post(head + b"\n" + content[place : place + CHUNK])
            if status not in (200, 409):
                self._stop(name, status, said, after)
            answer = _answer(said)
            if answer is None or not 0 <= answer[0] <= len(content):
                raise NotNow("the hub does not say what it has of an artifact: is it the hub's port?")
            place, is_whole = answer
            if is_whole:
                return
        raise NotNow(f"the hub asks for {name} again and again")

    def _stop(self, name: str, status: int, said: bytes, after: float) -> None:
        """Raises NotNow, or NeverSent."""
        if status in (404, 405):
            raise NeverSent(f"{name}: the hub takes no artifacts: it is older than this node")
        if status in (400, 413, 422):
            raise NeverSent(f"{name} is refused: {printable(said[:300].decode('utf-8', 'replace'), 200)}")
        raise NotNow(self._why(status, said), after)


def _answer(content: bytes) -> tuple[int, bool] | None:
    """How much the hub has, and whether that is all."""
    try:
        found: dict[str, Any] = json.loads(content)
        return int(found["have"]), bool(found["whole"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
