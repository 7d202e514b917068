"""The list of remote endpoints in a row: the greatest entries, and as its last one the rest.

The rest is what the run's totals have beyond the entries that are listed. So the sum of a list is the total, always.
"""

from __future__ import annotations

import numpy as np

from condor_joblens.model.endpoints import ENDPOINT, FAILURES, LISTED, NUMBERS, Scope
from condor_joblens.sample.endpoint_entries import Entries, is_loopback

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

_GREATEST = np.iinfo("u4").max


def listed(listing: np.ndarray, owners: np.ndarray) -> Entries:
    """The entries in `listing` (n, LISTED + 1) without the rests; `owners` (n,) are what they get as owners."""
    used = (listing["scope"] == Scope.OUTSIDE) | (listing["scope"] == Scope.LOOPBACK)
    used[:, LISTED] = False
    its = listing[used]
    address = np.ascontiguousarray(its["address"]).view("u8").reshape(-1, 2)
    numbers = np.stack([its[name].astype("i8") for name in NUMBERS], axis=1)
    rtt: np.ndarray = np.zeros((len(its), 3), "i8")
    rtt[:, 2] = np.nan_to_num(its["rtt_seconds"]) * 1e6
    return Entries(np.repeat(owners, used.sum(axis=1)), address, its["port"].astype("i8"), numbers, rtt)


def new_listing(count: int, found: Entries) -> np.ndarray:
    """The lists of `count` runs, shape (count, LISTED + 1), still without names and rests.

    `found` has one entry for each endpoint; its owners are positions of runs.
    """
    listing: np.ndarray = np.zeros((count, LISTED + 1), ENDPOINT)
    listing["rtt_seconds"] = np.nan
    listing["scope"][:, LISTED] = Scope.REST
    its, rank = found.ranked()
    its, rank = its[rank < LISTED], rank[rank < LISTED]
    where = (its.owner, rank)
    listing["address"][where] = np.ascontiguousarray(its.address).view("V16")[:, 0]
    listing["port"][where] = its.port
    listing["scope"][where] = np.where(is_loopback(its.address), Scope.LOOPBACK, Scope.OUTSIDE)
    for position, name in enumerate(NUMBERS):
        listing[name][where] = _fitted(its.numbers[:, position], name)
    total, count, before = its.rtt.T
    mean = np.where(count > 0, total / np.maximum(count, 1), before) * 1e-6
    listing["rtt_seconds"][where] = np.where(mean > 0, mean, np.nan)
    return listing


def _fitted(numbers: np.ndarray, name: str) -> np.ndarray:
    fitted: np.ndarray = np.clip(numbers, 0, None if ENDPOINT[name].itemsize == 8 else _GREATEST)
    return fitted


def totals(rows: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """The totals of `runs` (n,) that their lists sum up to, i8 of shape (n, len(NUMBERS)); absent numbers are 0."""
    sums: np.ndarray = np.zeros((len(runs), len(NUMBERS)), "i8")
    for position, name in enumerate(NUMBERS):
        for column in TOTALS.get(name, ()):
            sums[:, position] += np.maximum(rows[column][runs], 0)
    causes = [NUMBERS.index(name) for name in FAILURES[:-1]]
    sums[:, -1] = np.maximum(np.maximum(rows["tcp_failed"][runs], 0) - sums[:, causes].sum(axis=1), 0)
    return sums


def set_rests(listing: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Sets the rest of each list (n, LISTED + 1) to what it lacks of its totals `sums` (n, len(NUMBERS)).

    Returns by how much a list exceeds its totals, shape (n, len(NUMBERS)).
    """
    excess: np.ndarray = np.zeros(sums.shape, "i8")
    for position, name in enumerate(NUMBERS):
        rest = sums[:, position] - listing[name][:, :LISTED].astype("i8").sum(axis=1)
        listing[name][:, LISTED] = _fitted(rest, name)
        excess[:, position] = np.maximum(-rest, 0)
    return excess
