"""Which remote endpoints a run talked to: from the kernel's table of entries to the column `endpoints` of the rows.

The kernel adds what a connection carried to its slot's total, and then to its endpoint's entry if there is one. Here
the entries are read *before* the totals, so that they never hold more; the rest is what the total has beyond those that
are listed. Dropping an entry, not finding room for one, or a walk that misses something therefore moves bytes into
the rest and changes no sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from condor_joblens.common.endpoint_names import Names
from condor_joblens.model.endpoints import ENDPOINT, FAILURES, LISTED, NUMBERS, Scope
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend import Backend

KEPT = 64
"""Entries that a run keeps in the kernel from one round to the next: there is always room for new ones."""

CACHED_NAMES = 65536

AT_A_TIME = 128
"""Runs that are listed in one go: a run's list has three kilobytes, and there are some copies of it meanwhile."""

TOTALS = {
    "sent_bytes": ("tcp_sent_bytes",),
    "received_bytes": ("tcp_received_bytes",),
    "connections": ("tcp_connected", "tcp_accepted"),
    "retransmits": ("tcp_retransmits",),
    "refused": ("tcp_refused",),
    "timed_out": ("tcp_timed_out",),
    "unreachable": ("tcp_unreachable",),
}
"""Column of an entry -> those of the row whose sum is its total. (`failed_otherwise`: what Tcp.Failed leaves.)"""

COLUMNS = {
    "tcp_refused": "refused",
    "tcp_timed_out": "timed_out",
    "tcp_unreachable": "unreachable",
    "tcp_loopback_sent_bytes": "loopback_sent_bytes",
    "tcp_loopback_received_bytes": "loopback_received_bytes",
}
UDP_COLUMNS = {
    "udp_sent_bytes": "udp_sent_bytes",
    "udp_received_bytes": "udp_received_bytes",
    "udp_sends": "udp_sends",
    "udp_receives": "udp_receives",
    "udp_dns_queries": "dns_queries",
    "udp_dns_answers": "dns_answers",
}
"""Column of the row <- field of the counters, for runs that are or were at level io."""

_OPEN = {name: f"open_{name}" for name in NUMBERS if f"open_{name}" in (map_layout.ENDPOINT.names or ())}
_GREATEST = np.iinfo("u4").max


@dataclass
class Entries:
    """What m entries of the kernel's table hold, of whichever runs, or what groups of them do together."""

    owner: np.ndarray  # i8 (m,): cgroup id, or the position of a run
    address: np.ndarray  # u8 (m, 2): network order
    port: np.ndarray  # i8 (m,)
    numbers: np.ndarray  # i8 (m, len(NUMBERS))
    rtt: np.ndarray  # i8 (m, 3), in microseconds: sum, of how many connections, and the mean that is listed already

    def __getitem__(self, chosen: Any) -> Entries:
        return Entries(
            self.owner[chosen], self.address[chosen], self.port[chosen], self.numbers[chosen], self.rtt[chosen]
        )

    def grouped(self, how: Any = np.add) -> Entries:
        """One entry for each endpoint of an owner, with their numbers added (or by another ufunc), in that order."""
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
        """The same with the greatest of each owner first, and each one's rank within its owner (0: the greatest)."""
        amount, connections = self.numbers[:, 0] + self.numbers[:, 1], self.numbers[:, 2]
        failed = self.numbers[:, -len(FAILURES) :].sum(axis=1)
        order = np.lexsort((-failed, -connections, -amount, self.owner))
        its = self[order]
        starts = np.flatnonzero(np.diff(its.owner, prepend=its.owner[:1] - 1)) if len(order) else order
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        return its, rank


def joined(*parts: Entries) -> Entries:
    """All entries of several."""
    columns = ("owner", "address", "port", "numbers", "rtt")
    return Entries(*(np.concatenate([getattr(part, column) for part in parts]) for column in columns))


def entries(keys: np.ndarray, values: np.ndarray, open_in: int | None = None) -> Entries:
    """What the kernel's entries hold of closed connections, or of those that were open in the walk `open_in`.

    Of layout.ENDPOINT_KEY and layout.ENDPOINT, shape (m,) both; the owners are cgroup ids.
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


def listed(listing: np.ndarray, owners: np.ndarray) -> Entries:
    """The entries that are listed, of shape (n, LISTED + 1), without the rest; `owners` has shape (n,)."""
    used = (listing["scope"] == Scope.OUTSIDE) | (listing["scope"] == Scope.LOOPBACK)
    used[:, LISTED] = False
    its = listing[used]
    address = np.ascontiguousarray(its["address"]).view("u8").reshape(-1, 2)
    numbers = np.stack([its[name].astype("i8") for name in NUMBERS], axis=1)
    rtt: np.ndarray = np.zeros((len(its), 3), "i8")
    rtt[:, 2] = np.nan_to_num(its["rtt_seconds"]) * 1e6
    return Entries(np.repeat(owners, used.sum(axis=1)), address, its["port"].astype("i8"), numbers, rtt)


def new_listing(count: int, found: Entries) -> np.ndarray:
    """The listings of `count` runs, shape (count, LISTED + 1), names and rests apart.

    `found` has one entry an endpoint; its owners are positions of runs.
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


def is_loopback(address: np.ndarray) -> np.ndarray:
    """Whether addresses, u8 of shape (m, 2) in network order, are in 127.0.0.0/8 or ::1; shape (m,)."""
    octets = np.ascontiguousarray(address).view("u1").reshape(-1, 16)
    four = (octets[:, :10] == 0).all(axis=1) & (octets[:, 10:12] == 255).all(axis=1) & (octets[:, 12] == 127)
    found: np.ndarray = four | ((octets[:, :15] == 0).all(axis=1) & (octets[:, 15] == 1))
    return found


def _fitted(numbers: np.ndarray, name: str) -> np.ndarray:
    fitted: np.ndarray = np.clip(numbers, 0, None if ENDPOINT[name].itemsize == 8 else _GREATEST)
    return fitted


def columns(ended: np.ndarray, connections: np.ndarray | None, with_udp: bool) -> dict[str, np.ndarray]:
    """The columns that runs at level io have besides, each of shape (n,): see kernel.columns for the arguments."""
    found = {}
    for column, its in (*COLUMNS.items(), *(UDP_COLUMNS.items() if with_udp else ())):
        is_open = connections is not None and its in map_layout.TOTALS
        total = ended[its] + connections[its] if is_open else ended[its]  # type: ignore[index]
        found[column] = total.astype("i8")
    return found


def totals(rows: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """What all entries of each of `runs` (n,) together hold, i8 of shape (n, len(NUMBERS)); absent numbers are 0."""
    sums: np.ndarray = np.zeros((len(runs), len(NUMBERS)), "i8")
    for position, name in enumerate(NUMBERS):
        for column in TOTALS.get(name, ()):
            sums[:, position] += np.maximum(rows[column][runs], 0)
    causes = [NUMBERS.index(name) for name in FAILURES[:-1]]
    sums[:, -1] = np.maximum(np.maximum(rows["tcp_failed"][runs], 0) - sums[:, causes].sum(axis=1), 0)
    return sums


def set_rests(listing: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Gives each listing (n, LISTED + 1) what it lacks of its totals (n, len(NUMBERS)); what it has too much, shape
    (n, len(NUMBERS))."""
    excess: np.ndarray = np.zeros(sums.shape, "i8")
    for position, name in enumerate(NUMBERS):
        rest = sums[:, position] - listing[name][:, :LISTED].astype("i8").sum(axis=1)
        listing[name][:, LISTED] = _fitted(rest, name)
        excess[:, position] = np.maximum(-rest, 0)
    return excess


@dataclass
class Listings:
    """Keeps the column `endpoints` of a node's rows, and the kernel's table small."""

    tracer: Backend
    names: Names = field(default_factory=Names)
    _before: tuple[np.ndarray, np.ndarray] | None = None  # the kernel's entries, before the totals were read
    _marks: dict[int, tuple[int, ...]] = field(default_factory=dict)  # run -> its numbers when it was last listed
    _named: dict[tuple[bytes, int], bytes] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether the source of this node tells of endpoints at all."""
        return self.tracer.endpoints.room > 0

    def rename(self, names: Names) -> None:
        """Takes another table of names."""
        self.names = names
        self._named.clear()
        self._marks.clear()

    def read(self) -> None:
        """Before the totals are read: what the entries hold now."""
        self._before = self.tracer.endpoints.read()

    def update(self, rows: np.ndarray, runs: np.ndarray, cgroup_ids: np.ndarray, walked: np.ndarray | None) -> None:
        """Lists the endpoints of `runs` (n,), which are at level io, in rows["endpoints"].

        After `read`, and after the totals have been merged into the rows. `walked` (layout.LIVING, shape (n,)) has the
        open connections, where these were walked over meanwhile.
        """
        if self._before is None or not len(runs):
            return
        keys, values = self._before
        self._before = None
        self._keep_small(keys, values, len(runs))
        due = self._due(rows, runs, cgroup_ids, walked)
        if not len(due):
            return
        now = None if walked is None else self.tracer.endpoints.read()
        for start in range(0, len(due), AT_A_TIME):
            part = due[start : start + AT_A_TIME]
            found = [entries(*_of(cgroup_ids[part], keys, values))]
            if now is not None:
                found.append(entries(*_of(cgroup_ids[part], *now), self.tracer.connections_round))
            self._list(rows, runs[part], _placed(joined(*found), cgroup_ids[part]).grouped())

    def _due(self, rows: np.ndarray, runs: np.ndarray, cgroup_ids: np.ndarray, walked: np.ndarray | None) -> np.ndarray:
        """Positions of the runs whose totals have changed, or whose connections can have."""
        marks = np.column_stack([cgroup_ids.astype("i8"), totals(rows, runs)]).tolist()
        is_open = np.zeros(len(runs), "?") if walked is None else walked["connections"] > 0
        due = []
        for position, (run, mark, busy) in enumerate(zip(runs.tolist(), map(tuple, marks), is_open.tolist())):
            if busy or self._marks.get(run) != mark:
                due.append(position)
                self._marks[run] = () if busy else mark
        found: np.ndarray = np.array(due, "i8")
        return found

    def _list(self, rows: np.ndarray, runs: np.ndarray, its: Entries) -> None:
        """Lists `its`, whose owners are positions in `runs`."""
        before = rows["endpoints"][runs]
        # what was listed stays so, and grows: the walk over the connections can miss one that is just closing
        shown = joined(listed(before, np.arange(len(runs))), its).grouped(np.maximum)
        listing = new_listing(len(runs), shown)
        sums = totals(rows, runs)
        excess = set_rests(listing, sums)
        # connections that are older than the tracer were not counted when they opened
        excess[~rows["complete"][runs], NUMBERS.index("connections")] = 0
        fits = ~excess.any(axis=1)
        # a total that has not come yet: the list of the round before, with all that is new in the rest
        for run in runs[~fits].tolist():
            self._marks.pop(run, None)
        listing[~fits] = before[~fits]
        listing["scope"][~fits, LISTED] = Scope.REST
        set_rests(listing, sums)
        self._name(listing)
        rows["endpoints"][runs] = listing

    def _name(self, listing: np.ndarray) -> None:
        if not self.names.entries:
            listing["name"] = b""
            return
        flat = listing.reshape(-1)
        used = np.flatnonzero((flat["scope"] == Scope.OUTSIDE) | (flat["scope"] == Scope.LOOPBACK))
        for place, address, port in zip(used.tolist(), flat["address"][used].tolist(), flat["port"][used].tolist()):
            name = self._named.get((address, port))
            if name is None:
                if len(self._named) >= CACHED_NAMES:
                    self._named.clear()
                name = self._named[address, port] = self.names.find(address, port).encode()
            flat["name"][place] = name

    def forget(self, rows: np.ndarray, run: int) -> None:
        """The run's list is empty again, or not yet made."""
        rows["endpoints"][run] = np.zeros((), ENDPOINT)
        self._marks.pop(run, None)

    # -- the kernel's table ------------------------------------------------------------------------------------

    def _keep_small(self, keys: np.ndarray, values: np.ndarray, runs: int) -> None:
        """Takes the smallest entries of a run that has many out of the table: they are in its rest from then on."""
        table = self.tracer.endpoints
        kept = KEPT if len(keys) < table.room // 2 else max(LISTED, table.room // 2 // max(1, runs))
        if np.unique(keys["cgroup_id"], return_counts=True)[1].max(initial=0) <= kept:
            return
        both = joined(entries(keys, values), entries(keys, values, self.tracer.connections_round))
        its, rank = both.grouped().ranked()
        for kind in (map_layout.ENDPOINT_COUNTED, map_layout.ENDPOINT_BASE):
            self.tracer.drop_endpoints(_keys(its[rank >= kept], kind))

    # -- a run that goes on --------------------------------------------------------------------------------------

    def go_on(self, rows: np.ndarray, run: int, cgroup_id: int) -> None:
        """The run's list goes on from where it is, whatever the kernel's entries hold after the last walk.

        Where its totals are told the same: see totals.rebase.
        """
        keys, values = self.tracer.endpoints.read()
        own = (keys["cgroup_id"] == cgroup_id) & (keys["kind"] == map_layout.ENDPOINT_COUNTED)
        keys, values = keys[own], values[own]
        now = joined(entries(keys, values), entries(keys, values, self.tracer.connections_round))
        now.numbers *= -1
        self._put_base(joined(listed(rows["endpoints"][run : run + 1], np.array([cgroup_id])), now).grouped())

    def carry(self, rows: np.ndarray, run: int, cgroup_id: int, before: np.ndarray) -> None:
        """The run goes on from the list `before` (shape (LISTED + 1,)), which it had in another cgroup.

        After its totals have been told the same; to be called again has no further effect.
        """
        if before["scope"][LISTED] != Scope.REST or not self.usable:
            return
        self._put_base(listed(before[None], np.array([cgroup_id])))
        rows["endpoints"][run] = before
        set_rests(rows["endpoints"][run : run + 1], totals(rows, np.array([run])))
        self._marks.pop(run, None)

    def _put_base(self, base: Entries) -> None:
        values: np.ndarray = np.zeros(len(base.owner), map_layout.ENDPOINT)
        for position, name in enumerate(NUMBERS):
            values[name] = base.numbers[:, position].view("u8")
        self.tracer.endpoints.put(_keys(base, map_layout.ENDPOINT_BASE), values)


def _keys(its: Entries, kind: int) -> np.ndarray:
    keys: np.ndarray = np.zeros(len(its.owner), map_layout.ENDPOINT_KEY)
    keys["cgroup_id"], keys["address"], keys["port"], keys["kind"] = its.owner, its.address, its.port, kind
    return keys


def _of(cgroup_ids: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of the kernel's entries that are of `cgroup_ids` (n,): at the end of a run the others are not looked at."""
    own = _places(keys["cgroup_id"].astype("i8"), cgroup_ids) >= 0
    return keys[own], values[own]


def _placed(its: Entries, cgroup_ids: np.ndarray) -> Entries:
    """The same entries with the positions of their owners in `cgroup_ids` (n,) as owners."""
    its.owner = _places(its.owner, cgroup_ids)
    return its


def _places(owners: np.ndarray, cgroup_ids: np.ndarray) -> np.ndarray:
    """The position of each of `owners` (m,) in `cgroup_ids` (n,), -1 where it is not there."""
    cgroup_ids = cgroup_ids.astype("i8")  # as the owners are: numpy compares different ones as floating-point
    order = np.argsort(cgroup_ids)
    place = order[np.minimum(np.searchsorted(cgroup_ids, owners, sorter=order), len(order) - 1)]
    found: np.ndarray = np.where(cgroup_ids[place] == owners, place, -1)
    return found
