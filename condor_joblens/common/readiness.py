"""Waits until something can be read or written. select() refuses descriptors from 1024 on, which a large node has."""

from __future__ import annotations

import errno
import math
import os
import select
from collections.abc import Iterable, Sequence
from typing import Optional, Protocol, TypeVar, Union


class HasDescriptor(Protocol):
    """A socket, or whatever else has a descriptor."""

    def fileno(self) -> int:
        """Its descriptor."""


Waitable = Union[int, HasDescriptor]
Waited = TypeVar("Waited", bound=Waitable)


def readable(these: Sequence[Waited], seconds: Optional[float] = None) -> list[Waited]:
    """Which of them can be read, are at their end or have failed, in their order; waits so long at most, or for ever.

    Raises OSError for a descriptor that is not open.
    """
    return either(these, (), seconds)[0]


def writable(these: Sequence[Waited], seconds: Optional[float] = None) -> list[Waited]:
    """The same of those that can be written to."""
    return either((), these, seconds)[1]


def either(
    readers: Sequence[Waited], writers: Sequence[Waited], seconds: Optional[float] = None
) -> tuple[list[Waited], list[Waited]]:
    """Both at once: the first that can be read, or be written to, ends the waiting."""
    poll = select.poll()
    asked: dict[int, int] = {}
    for event, waited in ((select.POLLIN, readers), (select.POLLOUT, writers)):
        for number in _numbers(waited):
            asked[number] = asked.get(number, 0) | event
    for number, events in asked.items():
        poll.register(number, events)
    # never too early: what is above a millisecond is rounded up
    found = dict(poll.poll(None if seconds is None else math.ceil(max(seconds, 0.0) * 1000)))
    if any(events & select.POLLNVAL for events in found.values()):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    ended = select.POLLERR | select.POLLHUP
    return (
        [each for each, number in zip(readers, _numbers(readers)) if found.get(number, 0) & ~select.POLLOUT],
        [each for each, number in zip(writers, _numbers(writers)) if found.get(number, 0) & (select.POLLOUT | ended)],
    )


def _numbers(these: Iterable[Waitable]) -> list[int]:
    return [each if isinstance(each, int) else each.fileno() for each in these]
