"""Live runs as they were a moment ago: a table in the store's memory, which all pages over all runs share.

To find the newest record of each run is most of what such a page costs the store. So at a large site it is done once
for all pages, beside them, and only as long as somebody looks at one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.store.client import Store, StoreNoTable, StoreTooMuch, StoreUnfit
from condor_joblens.hub.store.schema import LIVE, SNAPSHOTS, snapshot_of_live
from condor_joblens.hub.store.snapshots import drop, snapshots
from condor_joblens.hub.web.states import AT_MOST

T = TypeVar("T")

LEAST_ROWS = 20_000
"""Of LIVE, from which on a snapshot pays. Of fewer, each question finds the newest records itself, in some 20 ms."""

OFTEN, MOST_SECONDS = 120.0, 40.0
"""One that took a tenth of a second to make serves for twelve, and so on, but for no longer than this."""

SHARE = 10.0
"""Unless it takes so long that it would keep the store busy: it serves for ten times as long as it took, at least."""

LATE_SECONDS = 5.0
"""That the next one may be late, until pages go without."""

WANTED_SECONDS = 90.0
"""For which they are made after somebody has looked. Pages that stay open look once a minute (shared.py)."""

FIRST_SECONDS = 1.0
"""From the first look to the first one: that page's own questions come first."""

WITHOUT_SECONDS = 60.0
"""Until it is looked again whether one would pay, or can be made."""

TOO_MUCH_SECONDS = 600.0
"""The same after one that took more than it may."""

_DROP_SECONDS = 5.0
"""For which the former one is there still: an answer asks several questions."""

_LEFT_SECONDS = 600
"""After which one that another process has left is nobody's."""


@dataclass(frozen=True)
class Snapshot:
    """One of them."""

    table: str  # its name
    rows: int
    time: float  # epoch seconds
    is_unique: bool  # of each run one node tells

    @property
    def source(self) -> str:
        """What a query selects from. If the store has restarted, the table is empty or gone, and the query fails."""
        is_whole = f"(SELECT throwIf(count() != {self.rows}, 'a snapshot is gone') FROM {self.table}) = 0"
        return f"(SELECT * FROM {self.table} WHERE {is_whole})"


class LiveSnapshots:
    """Of one process; any thread may ask."""

    def __init__(self, store: Store, least_rows: int = LEAST_ROWS, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._least_rows, self._clock = store, least_rows, clock
        self._lock = threading.Lock()
        self._newest: Snapshot | None = None
        self._until = self._wanted = 0.0  # by the clock
        self._keeper: threading.Thread | None = None
        self._said = ""

    def answered(self, find: Callable[[Snapshot | None], T]) -> T:
        """What is found by the newest one; or by none, if it is too old or gone: the tables are asked then."""
        snapshot = self.newest()
        if snapshot:
            try:
                return find(snapshot)
            except StoreNoTable:  # the store has begun anew, or somebody was forgotten
                self._forget(snapshot)
        return find(None)

    def newest(self) -> Snapshot | None:
        """None: there is none that is new enough. Others are made from now on."""
        with self._lock:
            self._wanted = self._clock()
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, name="live snapshots", daemon=True)
                self._keeper.start()
            return self._newest if self._clock() < self._until else None

    def _forget(self, gone: Snapshot) -> None:
        with self._lock:
            if self._newest is gone:
                self._newest, self._until = None, 0.0

    def _keep(self) -> None:
        """Makes one after the other, until nobody wants them."""
        time.sleep(FIRST_SECONDS)
        try:
            while self._is_wanted():
                time.sleep(self.renew())
        except BaseException:
            with self._lock:
                self._keeper = None  # whoever looks next begins anew
            raise

    def _is_wanted(self) -> bool:
        """If not, there is none any more, and no keeper."""
        with self._lock:
            if self._clock() - self._wanted <= WANTED_SECONDS:
                return True
            last, self._newest, self._until, self._keeper = self._newest, None, 0.0, None
        self._drop(last)
        return False

    def renew(self) -> float:
        """Makes the next one, if that pays; seconds until the one after it."""
        try:
            made, took = self._made()
        except JobLensError as error:
            is_for_long = isinstance(error, (StoreUnfit, StoreTooMuch))
            if is_for_long and str(error) != self._said:  # all others are told to who asks, too
                self._said = str(error)
                print(f"joblens-hub: pages over all runs go without a snapshot: {error}", file=sys.stderr, flush=True)
            return TOO_MUCH_SECONDS if is_for_long else WITHOUT_SECONDS
        serves = max(SHARE * took, min(OFTEN * took, MOST_SECONDS), 1.0) if made else WITHOUT_SECONDS
        with self._lock:
            former, self._newest = self._newest, made
            self._until = self._clock() + serves + LATE_SECONDS
        if former:
            pause = min(_DROP_SECONDS, serves)
            time.sleep(pause)
            self._drop(former)
            serves -= pause
        return serves

    def _made(self) -> tuple[Snapshot | None, float]:
        """And the seconds that it took; None, if it would not pay. Raises JobLensError."""
        (there,) = self._store.ask(
            "SELECT total_rows AS n FROM system.tables WHERE database = currentDatabase() AND name = {table:String}",
            table=LIVE.name,
        )
        if int(there["n"] or 0) < self._least_rows:
            return None, 0.0
        self._drop_left()
        now, begin = time.time(), self._clock()
        name = f"{SNAPSHOTS}{now:.0f}_{os.urandom(6).hex()}"
        self._store.change(snapshot_of_live(name, now - AT_MOST))
        (counts,) = self._store.ask(f"SELECT count() AS n, uniqExact(RunHash) AS runs FROM {name}")
        return Snapshot(name, counts["n"], now, counts["n"] == counts["runs"]), self._clock() - begin

    def _drop_left(self) -> None:
        """What processes have left that are no more: each name has a time. Raises JobLensError."""
        for name in snapshots(self._store):
            when = name.removeprefix(SNAPSHOTS).partition("_")[0]
            if when.isdecimal() and int(when) < time.time() - _LEFT_SECONDS:
                drop(self._store, name)

    def _drop(self, one: Snapshot | None) -> None:
        if one is None:
            return
        try:
            drop(self._store, one.table)
        except JobLensError:
            return  # the next one drops it, or whoever comes later
