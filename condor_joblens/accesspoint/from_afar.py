"""Requests from afar: of people who are on other machines, whom the relay brings to a socket of its own.

Nobody believes the relay, or the server before it, about who that is. So such a request has no user. What counts is
its proof in the job's ad: HTCondor lets nobody write it who may not edit the job. What nobody has proved yet costs
little: a nonce is made from a secret, and kept nowhere. All of them together have a pace, and few places.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from condor_joblens.common.pace import Pace
from condor_joblens.control.verbs import Refused

AFAR = -1
"""Stands where a user id stands: no user has it."""

AT_ONCE = 8
"""Requests from afar that wait. Twice as many connections of the relay may have no request yet."""

IN_A_ROW, A_SECOND = 60, 2.0
"""Requests from afar after a pause, and from then on. A command has two, and one of them costs a question to the
schedd."""

USED = 1024
"""Nonces that are remembered because a warrant was given for them. Of more, nobody gets one until some are too old."""

_MARK = struct.Struct("<d16s")  # when it was made (CLOCK_MONOTONIC), and what makes it like no other
_TAG_BYTES = 16


class Nonces:
    """Nonces that are known by a secret. Each is for one job, and good for one warrant."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A nonce holds for `seconds`."""
        self._seconds, self._clock = seconds, clock
        self._secret = os.urandom(32)
        self._used: OrderedDict[bytes, float] = OrderedDict()  # until when it would be good

    def new(self, job: str) -> bytes:
        """One for the next request about this job (12.0)."""
        mark = _MARK.pack(self._clock(), os.urandom(16))
        return mark + self._tag(mark, job)

    def check(self, nonce: bytes, job: str) -> None:
        """Raises Refused if it was not given for this, has been used, or is too old. It is not used up by that."""
        mark, tag = nonce[: _MARK.size], nonce[_MARK.size :]
        if len(mark) == _MARK.size and hmac.compare_digest(tag, self._tag(mark, job)) and nonce not in self._used:
            made, _ = _MARK.unpack(mark)
            if self._clock() < made + self._seconds:
                return
        raise Refused("this nonce was not given for this, has been used, or is too old: ask for another")

    def use(self, nonce: bytes, job: str) -> None:
        """It opens nothing any more. Raises Refused as `check` does, and if there were too many."""
        self.check(nonce, job)
        now = self._clock()
        while self._used and next(iter(self._used.values())) <= now:
            self._used.popitem(last=False)
        if len(self._used) >= USED:
            raise Refused("too many have proved themselves here from afar: try again in a minute")
        self._used[nonce] = now + self._seconds

    def _tag(self, mark: bytes, job: str) -> bytes:
        return hmac.new(self._secret, mark + job.encode(), hashlib.sha256).digest()[:_TAG_BYTES]


@dataclass
class Afar:
    """What the door has for requests from afar."""

    listener: socket.socket
    relay_uid: int  # who alone may bring them, by the kernel's word; he is nobody at the users' socket
    nonces: Nonces
    _pace: Pace = field(default_factory=lambda: Pace(IN_A_ROW, A_SECOND))

    def pace(self) -> None:
        """Counts a request. Raises Refused if there were too many."""
        if not self._pace.may(""):
            raise Refused(f"{A_SECOND:g} requests a second are taken from afar, of all together: try again")
