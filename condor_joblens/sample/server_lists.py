"""Which file servers runs ask: keeps the column `servers` of rows, and the kernel's table small.

As of endpoints, the kernel adds to a slot's totals first, and then to the entry of the server. Here the entries are
read *before* the totals, so that they never hold more. What an entry has not is in the rest, and no sum changes.
"""

from __future__ import annotations

import numpy as np

from condor_joblens.common.endpoint_names import Names
from condor_joblens.model.servers import LISTED, NUMBERS, SECONDS, SERVER, Scope
from condor_joblens.sample.collector import Table
from condor_joblens.sample.server_names import ServerNames
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend_protocol import Backend

KEPT = map_layout.MAX_SERVERS // 2
"""Entries of a slot that stay in the kernel from one round to the next: there is always room for new ones."""

KEPT_UNATTRIBUTED = map_layout.MAX_SERVERS_UNATTRIBUTED // 2
NANO = 1e-9
BYTES_A_REQUEST = 16384
"""Bytes that weigh as much as a request where servers are ranked."""


class ServerLists:
    """The lists of a node's runs, and that of nobody's requests."""

    def __init__(self, tracer: Backend, names: Names) -> None:
        self.names = ServerNames(tracer, names)
        self._tracer = tracer
        self._keys: np.ndarray = np.zeros(0, map_layout.SERVER_KEY)
        self._numbers: np.ndarray = np.zeros((0, len(NUMBERS)))
        self._marks: dict[int, bytes] = {}  # run -> its totals when it was last listed

    def read(self) -> None:
        """Reads the kernel's entries; to be called before the totals are read."""
        keys, values = self._tracer.servers.read()
        self._keys, self._numbers = keys, numbers_of(values["numbers"])
        self._keep_small()

    def update(self, table: Table, runs: np.ndarray, totals: np.ndarray) -> None:
        """Lists the servers of `runs` (n,), whose rows have these `totals` by now, shape (n, len(NUMBERS)).

        To be called after `read`. Only runs that have asked something since are looked at.
        """
        marks = [mark.tobytes() for mark in totals]
        due = [place for place, run in enumerate(runs.tolist()) if self._marks.get(run, b"") != marks[place]]
        if not due:
            return
        chosen = runs[due]
        if not (len(self._keys) or totals[due].any() or table.state["servers_before"]["scope"][chosen].any()):
            table.rows["servers"][chosen] = _OF_NONE
            self._marks.update((int(runs[place]), marks[place]) for place in due)
            return
        listing = self._listing(table.state["cgroup_id"][chosen], table.state["servers_before"][chosen])
        excess = set_rests(listing, totals[due])
        table.rows["servers"][chosen] = listing
        for place, exceeds in zip(due, excess.tolist()):
            if exceeds:  # its total comes in the next round
                self._marks.pop(int(runs[place]), None)
            else:
                self._marks[int(runs[place])] = marks[place]

    def are_listed(self, runs: np.ndarray) -> np.ndarray:
        """Which of `runs` (n,) have a list by their totals, be it an empty one; shape (n,)."""
        found: np.ndarray = np.fromiter((run in self._marks for run in runs.tolist()), "?", len(runs))
        return found

    def unattributed(self) -> np.ndarray:
        """What was asked for nobody, of all servers that have an entry: model.servers.SERVER, shape (n,)."""
        owner, name, place, numbers = self._entries(np.zeros(1, "u8"))
        return _grouped_and_ranked(owner, name, place, numbers)[0]

    def _listing(self, cgroup_ids: np.ndarray, before: np.ndarray) -> np.ndarray:
        """The lists of n cgroups, shape (n, LISTED + 1), without rests; `before` are those that they go on from."""
        listing: np.ndarray = np.zeros((len(cgroup_ids), LISTED + 1), SERVER)
        if not len(self._keys) and not before["scope"].any():
            return listing
        parts = [self._entries(cgroup_ids), listed(before)]
        owner, name, place, numbers = (np.concatenate(columns) for columns in zip(*parts))
        entries, owners, rank = _grouped_and_ranked(owner, name, place, numbers)
        fits = rank < LISTED
        listing[owners[fits], rank[fits]] = entries[fits]
        return listing

    def _entries(self, cgroup_ids: np.ndarray) -> tuple[np.ndarray, ...]:
        """The kernel's entries of `cgroup_ids` (n,): place among them, name, class and numbers of each."""
        order = np.argsort(cgroup_ids)
        at = order[np.minimum(np.searchsorted(cgroup_ids, self._keys["cgroup_id"], sorter=order), len(order) - 1)]
        own = cgroup_ids[at] == self._keys["cgroup_id"]
        names: np.ndarray = np.array(self.names.of(self._keys[own]), SERVER["name"])
        return at[own], names, self._keys["class"][own].astype("u1"), self._numbers[own]

    # -- a run that goes on ----------------------------------------------------------------------------------

    def rebase(self, table: Table, run: int) -> None:
        """The run's list goes on from where it is, whatever the kernel's entries hold: its totals do as well."""
        self.read()
        before = table.rows["servers"][run : run + 1].copy()
        before["scope"][before["scope"] == Scope.REST] = Scope.NONE
        now = self._entries(table.state["cgroup_id"][run : run + 1])
        parts = [listed(before), (*now[:3], -now[3])]
        entries, _, rank = _grouped_and_ranked(*(np.concatenate(columns) for columns in zip(*parts)))
        self._go_on_from(table, run, entries[rank < LISTED])

    def carry(self, table: Table, run: int, before: np.ndarray) -> None:
        """The run goes on from the list `before` (shape (LISTED + 1,)), which it had in another cgroup."""
        self._go_on_from(table, run, before[before["scope"] == Scope.SERVER])

    def _go_on_from(self, table: Table, run: int, entries: np.ndarray) -> None:
        self.forget(table, run)
        table.state["servers_before"][run, : len(entries)] = entries

    def forget(self, table: Table, run: int) -> None:
        """The run's list begins with what the kernel has."""
        table.state["servers_before"][run] = np.zeros(1, SERVER)
        self._marks.pop(run, None)

    # -- the kernel's table ------------------------------------------------------------------------------------

    def _keep_small(self) -> None:
        """Drops the smallest entries of whoever has many: they are in the rest from then on."""
        if len(self._keys) <= min(KEPT, KEPT_UNATTRIBUTED):
            return
        owners, counts = np.unique(self._keys["cgroup_id"], return_counts=True)
        for owner in owners[counts > np.where(owners == 0, KEPT_UNATTRIBUTED, KEPT)].tolist():
            own = np.flatnonzero(self._keys["cgroup_id"] == owner)
            kept = KEPT if owner else KEPT_UNATTRIBUTED
            smallest = own[np.argsort(-_weight(self._numbers[own]))][kept:]
            self._tracer.drop_servers(self._keys[smallest])


def numbers_of(counted: np.ndarray) -> np.ndarray:
    """The kernel's words, u8 of shape (n, len(NUMBERS)), as floats with their time in seconds."""
    numbers: np.ndarray = counted.astype("f8")
    numbers[:, SECONDS] *= NANO
    return numbers


def listed(listings: np.ndarray) -> tuple[np.ndarray, ...]:
    """The entries of lists (n, LISTED + 1) without the rests: place of the list, name, class and numbers of each."""
    owner, place = np.nonzero(listings["scope"] == Scope.SERVER)
    entries = listings[owner, place]
    numbers = np.stack([entries[name].astype("f8") for name in NUMBERS], axis=1)
    return owner, entries["name"], entries["class"], numbers


def set_rests(listings: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Sets the rest of each list (n, LISTED + 1) to what it lacks of `totals` (n, len(NUMBERS)).

    Returns whether a list has more requests than its total, shape (n,).
    """
    listings["scope"][:, LISTED] = Scope.REST
    exceeds: np.ndarray = np.zeros(len(listings), "?")
    for position, name in enumerate(NUMBERS):
        rest = totals[:, position] - listings[name][:, :LISTED].sum(axis=1)
        listings[name][:, LISTED] = np.maximum(rest, 0)
        if position != SECONDS:
            exceeds |= rest < 0
    return exceeds


def _weight(numbers: np.ndarray) -> np.ndarray:
    weight: np.ndarray = numbers[:, 0] + (numbers[:, 1] + numbers[:, 2]) / BYTES_A_REQUEST
    return weight


def _grouped_and_ranked(
    owner: np.ndarray, name: np.ndarray, place: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One entry (SERVER) for each server of an owner, the owner's place, and its rank there: 0 is the greatest."""
    entries: np.ndarray = np.zeros(0, SERVER)
    if not len(owner):
        return entries, np.zeros(0, "i8"), np.zeros(0, "i8")
    order = np.lexsort((name, place, owner))
    owner, name, place, numbers = owner[order], name[order], place[order], numbers[order]
    new: np.ndarray = np.ones(len(order), "?")
    new[1:] = (owner[1:] != owner[:-1]) | (name[1:] != name[:-1]) | (place[1:] != place[:-1])
    starts = np.flatnonzero(new)
    numbers = np.add.reduceat(numbers, starts, axis=0)
    owner, name, place = owner[starts], name[starts], place[starts]
    order = np.lexsort((-_weight(numbers), owner))
    owner, name, place, numbers = owner[order], name[order], place[order], numbers[order]
    firsts = np.flatnonzero(np.diff(owner, prepend=owner[:1] - 1))
    rank = np.arange(len(owner)) - np.repeat(firsts, np.diff(firsts, append=len(owner)))
    entries = np.zeros(len(owner), SERVER)
    entries["name"], entries["class"], entries["scope"] = name, place, Scope.SERVER
    for position, column in enumerate(NUMBERS):
        entries[column] = numbers[:, position]
    return entries, owner, rank


_OF_NONE: np.ndarray = np.zeros((1, LISTED + 1), SERVER)
"""The list of a run that has asked no server."""
set_rests(_OF_NONE, np.zeros((1, len(NUMBERS))))
