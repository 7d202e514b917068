"""Entries of remote endpoints as columns: those of the kernel's table, and those that rows list.

An entry is what one owner, a cgroup or the run at some position, did with one address and port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from condor_joblens.model.endpoints import FAILURES, NUMBERS
from condor_joblens.tracer import map_layout

_OPEN = {name: f"open_{name}" for name in NUMBERS if f"open_{name}" in (map_layout.ENDPOINT.names or ())}


@dataclass
class Entries:
    """The numbers of m entries."""

    owner: np.ndarray  # i8 (m,): cgroup id, or the position of a run
    address: np.ndarray  # u8 (m, 2): network order
    port: np.ndarray  # i8 (m,)
    numbers: np.ndarray  # i8 (m, len(NUMBERS))
    rtt: np.ndarray  # i8 (m, 3), microseconds: their sum, how many connections, and the mean that is listed already

    def __getitem__(self, chosen: Any) -> Entries:
        return Entries(
            self.owner[chosen], self.address[chosen], self.port[chosen], self.numbers[chosen], self.rtt[chosen]
        )

    def grouped(self, how: Any = np.add) -> Entries:
        """One entry for each endpoint of an owner, with the numbers added, or joined by another ufunc; sorted."""
        order = np.lexsort((self.port, self.address[:, 1], self.address[:, 0], self.owner))
        its = self[order]
        if not len(order):
            return its
        new: np.ndarray = np.ones(len(order), "?")
        same = (its.owner[1:] == its.owner[:-1]) & (its.port[1:] == its.port[:-1])
        new[1:] = ~(same & (its.address[1:] == its.address[:-1]).all(axis=1))
        starts = np.flatnonzero(new)
        numbers, rtt = how.reduceat(its.numbers, starts, axis=0), how.reduceat(its.rtt, starts, axis=0)
        return Entries(its.owner[starts], its.address[starts], its.port[starts], numbers, rtt)

    def ranked(self) -> tuple[Entries, np.ndarray]:
        """Sorted by owner and amount, the greatest first; with each entry's rank within its owner (0: the greatest)."""
        amount, connections = self.numbers[:, 0] + self.numbers[:, 1], self.numbers[:, 2]
        failed = self.numbers[:, -len(FAILURES) :].sum(axis=1)
        order = np.lexsort((-failed, -connections, -amount, self.owner))
        its = self[order]
        starts = np.flatnonzero(np.diff(its.owner, prepend=its.owner[:1] - 1)) if len(order) else order
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        return its, rank


def joined(*parts: Entries) -> Entries:
    """All entries of several parts."""
    columns = ("owner", "address", "port", "numbers", "rtt")
    return Entries(*(np.concatenate([getattr(part, column) for part in parts]) for column in columns))


def entries(keys: np.ndarray, values: np.ndarray, open_in: int | None = None) -> Entries:
    """The kernel's entries of closed connections, or of those that were open in the walk `open_in`.

    From map_layout.ENDPOINT_KEY and map_layout.ENDPOINT, both of shape (m,); the owners are cgroup ids.
    """
    numbers: np.ndarray = np.zeros((len(keys), len(NUMBERS)), "i8")
    if open_in is None:
        names, rtt = {name: name for name in NUMBERS}, ("rtt_us", "rtt_count")
        present: np.ndarray = np.ones(len(keys), "?")
    else:
        names, rtt = _OPEN, ("open_rtt_us", "open_rtt_count")
        present = values["round"] == open_in
    for position, name in enumerate(NUMBERS):
        if name in names:
            numbers[:, position] = values[names[name]].view("i8") if len(values) else 0
    round_trips: np.ndarray = np.zeros((len(keys), 3), "i8")
    for position, name in enumerate(rtt):
        round_trips[:, position] = values[name]
    found = Entries(keys["cgroup_id"].astype("i8"), keys["address"], keys["port"].astype("i8"), numbers, round_trips)
    return found[present]


def is_loopback(address: np.ndarray) -> np.ndarray:
    """Whether addresses, u8 of shape (m, 2) in network order, are in 127.0.0.0/8 or ::1; shape (m,)."""
    octets = np.ascontiguousarray(address).view("u1").reshape(-1, 16)
    four = (octets[:, :10] == 0).all(axis=1) & (octets[:, 10:12] == 255).all(axis=1) & (octets[:, 12] == 127)
    found: np.ndarray = four | ((octets[:, :15] == 0).all(axis=1) & (octets[:, 15] == 1))
    return found


def keys_of(its: Entries, kind: int) -> np.ndarray:
    """The keys (map_layout.ENDPOINT_KEY, shape (m,)) of entries whose owners are cgroup ids; `kind`: endpoint_kind."""
    keys: np.ndarray = np.zeros(len(its.owner), map_layout.ENDPOINT_KEY)
    keys["cgroup_id"], keys["address"], keys["port"], keys["kind"] = its.owner, its.address, its.port, kind
    return keys


def of_cgroups(cgroup_ids: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of the kernel's entries that belong to `cgroup_ids` (n,)."""
    own = _places(keys["cgroup_id"].astype("i8"), cgroup_ids) >= 0
    return keys[own], values[own]


def by_position(its: Entries, cgroup_ids: np.ndarray) -> Entries:
    """The same entries; their owners are now the positions of the cgroups in `cgroup_ids` (n,)."""
    its.owner = _places(its.owner, cgroup_ids)
    return its


def _places(owners: np.ndarray, cgroup_ids: np.ndarray) -> np.ndarray:
    """The position of each of `owners` (m,) in `cgroup_ids` (n,), -1 if it is not there."""
    cgroup_ids = cgroup_ids.astype("i8")  # as the owners are: numpy compares different ones as floating-point
    order = np.argsort(cgroup_ids)
    place = order[np.minimum(np.searchsorted(cgroup_ids, owners, sorter=order), len(order) - 1)]
    found: np.ndarray = np.where(cgroup_ids[place] == owners, place, -1)
    return found
