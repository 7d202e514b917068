"""Decisions that wait for the policy child: the owners of jobs take turns, whatever one of them submits."""

from __future__ import annotations

from collections import deque

from condor_joblens.policy.requests import JobRequest


class RequestQueue:
    """A queue for each owner. They take turns; one owner's requests stay in the order in which they came."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[JobRequest]] = {}  # never empty ones; whose turn is next comes first
        self._bytes: dict[str, int] = {}  # of the owner's ads

    def __bool__(self) -> bool:
        return bool(self._queues)

    def add(self, request: JobRequest, max_bytes: int) -> list[JobRequest]:
        """Adds a request; the requests that lose their place if all ads together have more than `max_bytes`.

        The owner with most bytes loses the request that came last, which can be the added one.
        """
        self._queue(request).append(request)
        lost = []
        while sum(self._bytes.values()) > max_bytes:
            largest = max(self._bytes, key=lambda owner: self._bytes[owner])
            lost.append(self._queues[largest].pop())
            self._leave(lost[-1])
        return lost

    def put_back(self, request: JobRequest) -> None:
        """A request that was taken, and not answered by a fault of its own: its owner's next."""
        self._queue(request).appendleft(request)

    def take(self) -> JobRequest:
        """The next request. Its owner's turn comes again after all others'."""
        owner, queue = next(iter(self._queues.items()))
        request = queue.popleft()
        self._leave(request)
        if queue:
            self._queues[owner] = self._queues.pop(owner)
        return request

    def take_expired(self, before: float) -> list[JobRequest]:
        """Takes the requests that have waited since `before`, or longer."""
        expired = []
        for queue in list(self._queues.values()):
            while queue and queue[0].since < before:
                expired.append(queue.popleft())
                self._leave(expired[-1])
        return expired

    def waits_since(self) -> list[float]:
        """Since when the oldest request waits; empty if none does."""
        return [min(queue[0].since for queue in self._queues.values())] if self._queues else []

    def _queue(self, request: JobRequest) -> deque[JobRequest]:
        """The queue that the request enters."""
        owner = request.request.owner
        self._bytes[owner] = self._bytes.get(owner, 0) + len(request.request.ad)
        return self._queues.setdefault(owner, deque())

    def _leave(self, request: JobRequest) -> None:
        """The request has been taken from its queue."""
        owner = request.request.owner
        self._bytes[owner] -= len(request.request.ad)
        if not self._queues[owner]:
            del self._queues[owner], self._bytes[owner]
