"""The list of remote endpoints in a row: the greatest entries, and as its last one the rest.

The rest is what the run's totals have beyond the entries that are listed. So the sum of a list is the total, always.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from condor_joblens.model.endpoints import ENDPOINT, FAILURES, LISTED, NUMBERS, Scope
from condor_joblens.sample.endpoint_entries import Entries, is_loopback
from condor_joblens.sample.merged_columns import GatheredColumns

TOTALS = {
    "sent_bytes": ("tcp_sent_bytes",),
    "received_bytes": ("tcp_received_bytes",),
    "connections": ("tcp_connected", "tcp_accepted"),
    "retransmits": ("tcp_retransmits",),
    "refused": ("tcp_refused",),
    "timed_out": ("tcp_timed_out",),
    "unreachable": ("tcp_unreachable",),
}
"""Column of an entry -> columns of the row whose sum is its total. (`failed_otherwise`: the rest of Tcp.Failed.)"""

_BYTES = sum(ENDPOINT[name] == np.dtype("i8") for name in NUMBERS)
_ENDPOINT_FIELDS: Any = ENDPOINT.fields
_BLOCKS: np.dtype[Any] = np.dtype(
    {
        "names": ["bytes", "counts"],
        "formats": [("i8", (_BYTES,)), ("u4", (len(NUMBERS) - _BYTES,))],
        "offsets": [_ENDPOINT_FIELDS[NUMBERS[first]][1] for first in (0, _BYTES)],
        "itemsize": ENDPOINT.itemsize,
    }
)
"""An entry's NUMBERS, which are neighbours: one step for all of them, where there is no time for eight."""

_GREATEST = np.array([np.iinfo(ENDPOINT[name]).max for name in NUMBERS])
_COLUMNS = (*(column for columns in TOTALS.values() for column in columns), "tcp_failed")


def _matrix() -> np.ndarray:
    """What of each of _COLUMNS is in each of NUMBERS, shape (columns, numbers)."""
    found: np.ndarray = np.zeros((len(_COLUMNS), len(NUMBERS)), "i8")
    for name, columns in TOTALS.items():
        for column in columns:
            found[_COLUMNS.index(column), NUMBERS.index(name)] = 1
    found[:, -1] = -found[:, [NUMBERS.index(name) for name in FAILURES[:-1]]].sum(axis=1)
    found[-1, -1] = 1
    return found


_SUMMED, _GATHERED = _matrix(), GatheredColumns(_COLUMNS)


def listed(listing: np.ndarray, owners: np.ndarray) -> Entries:
    """The entries in `listing` (n, LISTED + 1) without the rests; `owners` (n,) are what they get as owners."""
    used = (listing["scope"] == Scope.OUTSIDE) | (listing["scope"] == Scope.LOOPBACK)
    used[:, LISTED] = False
    its = listing[used]
    address = np.ascontiguousarray(its["address"]).view("u8").reshape(-1, 2)
    rtt: np.ndarray = np.zeros((len(its), 3), "i8")
    rtt[:, 2] = np.nan_to_num(its["rtt_seconds"]) * 1e6
    return Entries(np.repeat(owners, used.sum(axis=1)), address, its["port"].astype("i8"), _numbers(its), rtt)


def new_listing(count: int, found: Entries) -> np.ndarray:
    """The lists of `count` runs, shape (count, LISTED + 1), still without names and rests.

    `found` has one entry for each endpoint; its owners are positions of runs.
    """
    listing: np.ndarray = np.zeros((count, LISTED + 1), ENDPOINT)
    listing["rtt_seconds"] = np.nan
    listing["scope"][:, LISTED] = Scope.REST
    its, rank = found.ranked()
    its, rank = its[rank < LISTED], rank[rank < LISTED]
    entries: np.ndarray = np.zeros(len(rank), ENDPOINT)
    entries["address"] = np.ascontiguousarray(its.address).view("V16")[:, 0]
    entries["port"] = its.port
    entries["scope"] = np.where(is_loopback(its.address), Scope.LOOPBACK, Scope.OUTSIDE)
    _set_numbers(entries, its.numbers)
    total, count, before = its.rtt.T
    mean = np.where(count > 0, total / np.maximum(count, 1), before) * 1e-6
    entries["rtt_seconds"] = np.where(mean > 0, mean, np.nan)
    listing[its.owner, rank] = entries
    return listing


def _numbers(entries: np.ndarray) -> np.ndarray:
    """NUMBERS of entries (ENDPOINT) as i8, with one dimension more."""
    blocks = entries.view(_BLOCKS)
    found: np.ndarray = np.concatenate([blocks["bytes"], blocks["counts"]], axis=-1, dtype="i8")
    return found


def _set_numbers(entries: np.ndarray, numbers: np.ndarray) -> None:
    """The other way round: `numbers` (n, len(NUMBERS)), as far as they fit, become those of `entries` (n,)."""
    fitted, blocks = np.minimum(np.maximum(numbers, 0), _GREATEST), entries.view(_BLOCKS)
    blocks["bytes"], blocks["counts"] = fitted[:, :_BYTES], fitted[:, _BYTES:]


def totals(rows: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """The totals of `runs` (n,) that their lists sum up to, i8 of shape (n, len(NUMBERS)); absent numbers are 0."""
    sums: np.ndarray = np.maximum(_GATHERED.of(rows, runs), 0) @ _SUMMED
    np.maximum(sums[:, -1], 0, out=sums[:, -1])
    return sums


def set_rests(listing: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Sets the rest of each list (n, LISTED + 1) to what it lacks of its totals `sums` (n, len(NUMBERS)).

    Returns by how much a list exceeds its totals, shape (n, len(NUMBERS)).
    """
    rests = sums - _numbers(listing[:, :LISTED]).sum(axis=1)
    _set_numbers(listing[:, LISTED], rests)
    excess: np.ndarray = np.maximum(-rests, 0)
    return excess
