"""The remote endpoints of a run: how a row lists them, and the same as plain values for whoever shows them.

A row has the LISTED endpoints with most bytes. Its last entry is the rest: whatever the run's totals (`Tcp.*`) have and
the others have not. So the sum over all entries is always the total.
"""

from __future__ import annotations

import enum
import ipaddress
from functools import lru_cache
from typing import Any, Union

import numpy as np

LISTED = 16
"""How many endpoints a row lists, beside the rest."""


class Scope(enum.IntEnum):
    """What an entry is."""

    NONE = 0  # nothing: there are fewer endpoints, or the run is not watched so closely
    OUTSIDE = 1  # an address beyond this machine's loopback
    LOOPBACK = 2  # 127.0.0.0/8 and ::1
    REST = 3  # everything that the other entries have not


COUNTS: tuple[str, ...] = ("sent_bytes", "received_bytes", "connections", "retransmits")
FAILURES: tuple[str, ...] = ("refused", "timed_out", "unreachable", "failed_otherwise")
NUMBERS: tuple[str, ...] = COUNTS + FAILURES
"""The columns of an entry that are sums: counters of the run, and of one listed endpoint while it is listed."""

ENDPOINT: np.dtype[Any] = np.dtype(
    [
        ("name", "S32"),  # from JOBLENS_ENDPOINT_NAMES; empty: it has none there
        ("address", "V16"),  # IPv6 in network order; IPv4 as ::ffff:a.b.c.d
        ("port", "u2"),  # 0: connections that the run accepted from there
        ("scope", "u1"),  # enum Scope
        ("sent_bytes", "i8"),  # payload, each byte once
        ("received_bytes", "i8"),
        ("connections", "u4"),  # that came about: open ones and those that have closed
        ("retransmits", "u4"),  # segments sent again
        ("refused", "u4"),  # connections that did not come about: by the other side,
        ("timed_out", "u4"),  # without an answer,
        ("unreachable", "u4"),  # as a router or this machine's own kernel said,
        ("failed_otherwise", "u4"),  # given up by the program itself, or without a local port
        ("rtt_seconds", "f4"),  # mean of the last smoothed round-trip times; NaN: unknown
    ],
    align=True,
)
"""One entry."""


MEANINGS: dict[str, str] = {
    "Name": "the site's name for it (JOBLENS_ENDPOINT_NAMES); absent where it has none",
    "Address": "the other end's address; IPv4 is IPv4, also on a socket of IPv6",
    "Port": "its port; absent where the job accepted the connections",
    "SentBytes": "payload sent there, each byte once",
    "ReceivedBytes": "payload received from there",
    "Connections": "connections that came about, open ones and those that have closed",
    "Failed": "connections that the job tried to make and could not",
    "RttSeconds": "mean over its connections of their last smoothed round-trip times",
    "Refused": "those of Failed that the other side refused",
    "TimedOut": "those that got no answer until the kernel gave up",
    "Unreachable": "those of which a router or the kernel said that there is no way",
    "FailedOtherwise": "all others: given up by the program itself, or without a free local port",
    "Retransmits": "segments that had to be sent again",
}
"""Names of an entry in ads and JSON -> what they mean."""


_V4 = bytes(10) + b"\xff\xff"


def address_of(packed: bytes) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address]:
    """The address that an entry's 16 bytes mean."""
    is_v4 = packed.startswith(_V4)
    return ipaddress.IPv4Address(packed[len(_V4) :]) if is_v4 else ipaddress.IPv6Address(packed)


@lru_cache(maxsize=4096)
def _in_words(packed: bytes) -> str:
    """The same as text: a job's end waits for it."""
    return str(address_of(packed))


def where(packed: bytes, port: int) -> str:
    """Address and port as a person writes them: `192.0.2.7:1094`, `[2001:db8::1]:1094`; without a port the address."""
    address = address_of(packed)
    if not port:
        return str(address)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def records(listing: np.ndarray) -> list[dict[str, Any]]:
    """The entries of a row's column `endpoints`, shape (LISTED + 1,), most bytes first and the rest last.

    Names are as in the ad: Name, Address, Port, Scope, the counts, Failed and its causes, RttSeconds. Name is absent if
    the site has none, Port for accepted connections, RttSeconds if unknown. The rest lacks the first three. The list is
    empty for a run that is not watched by endpoint.
    """
    return [_record(*values) for values in listing.tolist() if values[3] != Scope.NONE]


def _record(
    name: bytes, packed: bytes, port: int, scope: int,
    sent: int, received: int, connections: int, retransmits: int,
    refused: int, timed_out: int, unreachable: int, otherwise: int, rtt: float,
) -> dict[str, Any]:  # fmt: skip
    record: dict[str, Any] = {}
    if name:
        record["Name"] = name.decode("ascii", "replace")
    if scope != Scope.REST:
        record["Address"] = _in_words(packed)
        if port:
            record["Port"] = port
    record["Scope"] = Scope(scope).name.lower()
    record.update(SentBytes=sent, ReceivedBytes=received, Connections=connections, Retransmits=retransmits)
    record.update(Failed=refused + timed_out + unreachable + otherwise)
    record.update(Refused=refused, TimedOut=timed_out, Unreachable=unreachable, FailedOtherwise=otherwise)
    if rtt == rtt:
        record["RttSeconds"] = round(rtt, 6)
    return record
