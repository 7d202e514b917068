"""Texts of a job as they may be shown: without secrets, on one line, for a share of the time."""

from __future__ import annotations

import time
from collections.abc import Iterable

from condor_joblens.common.redact import WITHHELD, Redactor
from condor_joblens.tracing.answers import deadline

LOOK_SHARE = 0.05
"""Of the time, that it may take to look for secrets; what was not used before is left for a burst."""

MOST_LOOK_SECONDS = 0.5
MOST_KNOWN = 2_000
"""Command lines that were looked at and are remembered: a loop has the same ones again and again."""


class Lines:
    """Command lines as they may be shown."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bool], str] = {}
        self._left, self._last = deadline(MOST_LOOK_SECONDS), time.monotonic()

    def of(self, hits: Iterable[tuple[bytes, bool]]) -> list[str]:
        """Each of these: words with a NUL behind each, and whether more of them would follow."""
        now = time.monotonic()
        self._left = min(deadline(MOST_LOOK_SECONDS), self._left + deadline((now - self._last) * LOOK_SHARE))
        self._last, began = now, time.thread_time()
        redactor = Redactor(self._left)
        lines = [self._one(redactor, text, is_cut) for text, is_cut in hits]
        self._left -= time.thread_time() - began
        return lines

    def _one(self, redactor: Redactor, text: bytes, is_cut: bool) -> str:
        known = self._known.get((text, is_cut))
        if known is not None:
            return known
        line = redactor.line(text, is_cut)
        if line != WITHHELD:
            while len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[text, is_cut] = line
        return line
