"""The file servers of a run: how a row lists them, and the same as plain values for whoever shows them.

A row has the LISTED servers of which most was asked. Its last entry is the rest: whatever the run's totals (`Server.*`)
have and the others have not. So the sum over all entries is always the total.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from condor_joblens.model import classes

LISTED = 6
"""How many servers a row lists, beside the rest."""

NUMBERS: tuple[str, ...] = ("requests", "sent_bytes", "received_bytes", "seconds", "errors")
"""The columns of an entry that are sums, in the kernel's order; there the third is in nanoseconds."""

SECONDS = NUMBERS.index("seconds")


REQUESTS = "requests to "
"""What the names of those parts begin with that count at level basic, and that a kernel can refuse."""


class Scope(enum.IntEnum):
    """What an entry is."""

    NONE = 0  # nothing: there are fewer servers
    SERVER = 1  # a server, or a mount of FUSE
    REST = 2  # everything that the other entries have not


SERVER: np.dtype[Any] = np.dtype(
    [
        ("name", "S56"),  # printable ASCII: the mount point, or the server's name or address
        ("class", "u1"),  # place in classes.SERVERS; of the rest without a meaning
        ("scope", "u1"),  # enum Scope
        ("requests", "i8"),  # that were answered
        ("sent_bytes", "i8"),  # of requests,
        ("received_bytes", "i8"),  # and of answers, with what the protocol adds
        ("seconds", "f8"),  # from each request to its answer, summed
        ("errors", "i8"),  # answers that are an error
    ],
    align=True,
)
"""One entry."""

MEANINGS: dict[str, str] = {
    "Name": "of FUSE the mount point; of NFS the site's name for the server (JOBLENS_ENDPOINT_NAMES), else the name in "
    "the mount, else its address",
    "Class": "as in `Server`",
    "Requests": "requests that were answered",
    "SentBytes": "bytes of the requests, with what the protocol adds",
    "ReceivedBytes": "bytes of the answers, likewise",
    "Seconds": "time from each request to its answer, summed",
    "Errors": "answers that are an error",
}
"""Names of an entry in ads and JSON -> what they mean."""

_CLASSES = tuple(classes.SERVERS)


def records(listing: np.ndarray) -> list[dict[str, Any]]:
    """The entries of a row's column `servers`, shape (LISTED + 1,), in its order and the rest last, if there is any.

    Names are those of MEANINGS; the rest lacks Name and Class. Empty for a run that has asked no server.
    """
    return [
        _record(*values)
        for values in listing.tolist()
        if values[2] == Scope.SERVER or (values[2] == Scope.REST and any(values[3:]))
    ]


def _record(
    name: bytes, place: int, scope: int, requests: int, sent: int, received: int, seconds: float, errors: int
) -> dict[str, Any]:
    record: dict[str, Any] = {}
    if scope != Scope.REST:
        record.update(Name=name.decode("ascii", "replace"), Class=_CLASSES[place])
    record.update(Requests=requests, SentBytes=sent, ReceivedBytes=received)
    record.update(Seconds=round(seconds, 6), Errors=errors)
    return record
