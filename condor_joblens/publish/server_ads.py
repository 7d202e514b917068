"""The file servers of which a run asked most, as the list `Servers` of its ad."""

from __future__ import annotations

import re

import numpy as np

from condor_joblens.model.servers import SERVER, Scope, records

MOST = 3
"""Servers that an ad has: the row has more."""

_WORDS = ("Name", "Class")
_UNFIT = re.compile(rb"[^A-Za-z0-9._+@:/\[\]-]")  # for a string that both syntaxes of ClassAds read alike


def lists(listings: np.ndarray) -> list[list[tuple[str, int]]]:
    """For each of n rows (its column `servers`, shape (n, LISTED + 1)) the MOST greatest: ad, and bytes both ways.

    Each ad is like `[Name="/cvmfs/x";Class="Cvmfs";Requests=10;...]`.
    """
    found: list[list[tuple[str, int]]] = [[] for _ in range(len(listings))]
    for row in np.flatnonzero(listings["scope"][:, 0] == Scope.SERVER).tolist():
        first: np.ndarray = listings[row, :MOST].astype(SERVER)
        for entry in first:
            entry["name"] = _UNFIT.sub(b"?", entry["name"])
        found[row] = [(_ad(record), record["SentBytes"] + record["ReceivedBytes"]) for record in records(first)]
    return found


def _ad(record: dict[str, object]) -> str:
    words = [f'{name}="{record[name]}"' for name in _WORDS]
    numbers = [f"{name}={value!r}" for name, value in record.items() if name not in _WORDS]
    return f"[{';'.join([*words, *numbers])}]"
