"""What policies remember across jobs: which job was the first with a key. Gone when the child is."""

from __future__ import annotations

DAY = 86400.0
MAX_KEYS = 10_000


class SeenKeys:
    """A bounded table key -> (the first job that had it, when it was met last)."""

    def __init__(self) -> None:
        self._met: dict[str, tuple[str, float]] = {}

    def seen(self, key: str, days: float, job: str, now: float) -> bool:
        """Whether another job had `key` within `days`; from now on this job had it."""
        first, last = self._met.get(key, (job, now))
        if now - last > days * DAY:
            first = job
        self.learn(key, first, now)
        return first != job

    def learn(self, key: str, job: str, now: float) -> None:
        """A job had this key."""
        self._met.pop(key, None)  # the last met is the last in order
        self._met[key] = (job, now)

    def keep_within_bounds(self) -> None:
        """Forget what was met longest ago."""
        while len(self._met) > MAX_KEYS:
            del self._met[next(iter(self._met))]
