"""The remote endpoints with most bytes, as the list `Endpoint` of a run's ad."""

from __future__ import annotations

import re

import numpy as np

from condor_joblens.model.endpoints import Scope, records

MOST = 3
"""Endpoints that an ad has: the row has more."""

_ALWAYS = ("SentBytes", "ReceivedBytes", "Connections", "Failed", "RttSeconds")
_WHERE_ANY = ("Refused", "TimedOut", "Unreachable", "FailedOtherwise", "Retransmits")
_UNFIT = re.compile(r"[^A-Za-z0-9._+@/-]")  # for a string that both syntaxes of ClassAds read alike


def lists(listings: np.ndarray) -> list[list[tuple[str, int]]]:
    """For each of n rows (its column `endpoints`, shape (n, LISTED + 1)) the MOST greatest: ad and bytes carried.

    Each ad is like `[Name="squid";Address="192.0.2.7";Port=3128;SentBytes=10;...]`.
    """
    found: list[list[tuple[str, int]]] = [[] for _ in range(len(listings))]
    for row in np.flatnonzero(listings["scope"][:, 0] != Scope.NONE).tolist():
        first = listings[row, :MOST]
        found[row] = [
            (_ad(record), record["SentBytes"] + record["ReceivedBytes"])
            for record in records(first[first["scope"] != Scope.REST])
        ]
    return found


def _ad(record: dict[str, object]) -> str:
    parts = [f'Name="{_UNFIT.sub("?", str(record["Name"]))}"'] if "Name" in record else []
    parts.append(f'Address="{record["Address"]}"')
    if "Port" in record:
        parts.append(f"Port={record['Port']}")
    parts += [f"{name}={record[name]!r}" for name in _ALWAYS if name in record]
    parts += [f"{name}={record[name]}" for name in _WHERE_ANY if record.get(name)]
    return f"[{';'.join(parts)}]"
