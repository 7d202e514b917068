"""Which remote endpoints runs talk to: keeps the column `endpoints` of rows, and the kernel's table small.

The kernel adds what a connection carried to its slot's total first, and then to its endpoint's entry if there is one.
Here the entries are read *before* the totals, so that they never hold more than the totals. If an entry is dropped,
finds no room, or is missed on a walk, its bytes move into the rest, and no sum changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from condor_joblens.common.endpoint_names import Names
from condor_joblens.model.endpoints import LISTED, NUMBERS, Scope
from condor_joblens.sample.endpoint_entries import Entries, by_position, entries, joined, keys_of, of_cgroups
from condor_joblens.sample.endpoint_rows import listed, new_listing, set_rests, totals
from condor_joblens.tracer import map_layout
from condor_joblens.tracer.backend_protocol import Backend

KEPT = 64
"""Entries of a run that stay in the kernel from one round to the next: there is always room for new ones."""

CACHED_NAMES = 65536

AT_A_TIME = 128
"""Runs that are listed at a time: a run's list has three kilobytes, and several copies of it are made."""


@dataclass
class EndpointLists:
    """The lists of a node's runs."""

    tracer: Backend
    names: Names = field(default_factory=Names)
    _before: tuple[np.ndarray, np.ndarray] | None = None  # the kernel's entries, before the totals were read
    _marks: dict[int, tuple[int, ...]] = field(default_factory=dict)  # run -> its numbers when it was last listed
    _named: dict[tuple[bytes, int], bytes] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether this node's tracer counts by endpoint at all."""
        return self.tracer.endpoints.room > 0

    def rename(self, names: Names) -> None:
        """Takes another table of names."""
        self.names = names
        self._named.clear()
        self._marks.clear()

    def read(self) -> None:
        """Reads the kernel's entries; to be called before the totals are read."""
        self._before = self.tracer.endpoints.read()

    def update(self, rows: np.ndarray, runs: np.ndarray, cgroup_ids: np.ndarray, walked: np.ndarray | None) -> None:
        """Lists the endpoints of `runs` (n,), which are or were at level io, in rows["endpoints"].

        To be called after `read`, and after the totals have been merged into the rows. `walked` (map_layout.LIVING,
        shape (n,)) has the open connections, if they were walked over meanwhile.
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
            found = [entries(*of_cgroups(cgroup_ids[part], keys, values))]
            if now is not None:
                found.append(entries(*of_cgroups(cgroup_ids[part], *now), self.tracer.connections_round))
            self._list(rows, runs[part], by_position(joined(*found), cgroup_ids[part]).grouped())

    def _due(self, rows: np.ndarray, runs: np.ndarray, cgroup_ids: np.ndarray, walked: np.ndarray | None) -> np.ndarray:
        """Positions of the runs whose totals have changed, or that have open connections."""
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
        """Puts `its`, whose owners are positions in `runs`, into the lists of these."""
        before = rows["endpoints"][runs]
        # an entry that was listed stays, and only grows: the walk can miss a connection that is just closing
        if (before["scope"][:, :LISTED] != Scope.NONE).any():
            its = joined(listed(before, np.arange(len(runs))), its).grouped(np.maximum)
        listing = new_listing(len(runs), its)
        sums = totals(rows, runs)
        excess = set_rests(listing, sums)
        # connections that are older than the tracer were not counted when they opened
        excess[~rows["complete"][runs], NUMBERS.index("connections")] = 0
        fits = ~excess.any(axis=1)
        if not fits.all():
            # a total that is not there yet: the list of the round before, with all that is new in the rest
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

    def forget(self, run: int) -> None:
        """The run's list is made anew at the next call of `update`."""
        self._marks.pop(run, None)

    # -- the kernel's table ------------------------------------------------------------------------------------

    def _keep_small(self, keys: np.ndarray, values: np.ndarray, runs: int) -> None:
        """Drops the smallest entries of a run that has many: they are in its rest from then on."""
        table = self.tracer.endpoints
        kept = KEPT if len(keys) < table.room // 2 else max(LISTED, table.room // 2 // max(1, runs))
        if len(keys) <= kept or np.unique(keys["cgroup_id"], return_counts=True)[1].max() <= kept:
            return
        both = joined(entries(keys, values), entries(keys, values, self.tracer.connections_round))
        its, rank = both.grouped().ranked()
        for kind in (map_layout.ENDPOINT_COUNTED, map_layout.ENDPOINT_BASE):
            self.tracer.drop_endpoints(keys_of(its[rank >= kept], kind))

    # -- a run that goes on --------------------------------------------------------------------------------------

    def rebase(self, rows: np.ndarray, run: int, cgroup_id: int) -> None:
        """The run's list goes on from where it is, whatever the kernel's entries hold after the last walk.

        Its totals are rebased at the same time: see totals.rebase.
        """
        keys, values = self.tracer.endpoints.read()
        own = (keys["cgroup_id"] == cgroup_id) & (keys["kind"] == map_layout.ENDPOINT_COUNTED)
        keys, values = keys[own], values[own]
        now = joined(entries(keys, values), entries(keys, values, self.tracer.connections_round))
        now.numbers *= -1
        self._put_base(joined(listed(rows["endpoints"][run : run + 1], np.array([cgroup_id])), now).grouped())

    def carry(self, rows: np.ndarray, run: int, cgroup_id: int, before: np.ndarray) -> None:
        """The run goes on from the list `before` (shape (LISTED + 1,)), which it had in another cgroup.

        To be called after its totals go on from there; a second call has no further effect.
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
        self.tracer.endpoints.put(keys_of(base, map_layout.ENDPOINT_BASE), values)
