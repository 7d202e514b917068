"""When snapshots of live runs are made, used and dropped: with a store that only says so."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from condor_joblens.hub.store.client import StoreGone, StoreNoTable, StoreTooMuch, StoreUnfit
from condor_joblens.hub.store.schema import SNAPSHOTS
from condor_joblens.hub.web import live_snapshots
from condor_joblens.hub.web.live_snapshots import (
    LATE_SECONDS,
    MOST_SECONDS,
    TOO_MUCH_SECONDS,
    WITHOUT_SECONDS,
    LiveSnapshots,
    Snapshot,
)


class Said:
    """A store, with a clock that goes on by `took` for each snapshot."""

    def __init__(self, rows: int = 200_000, took: float = 0.3) -> None:
        self.rows, self.took, self.now = rows, took, 1000.0
        self.there: set[str] = set()
        self.error: Exception | None = None

    def ask(self, query: str, **values: Any) -> list[dict[str, Any]]:
        return [{"n": self.rows, "runs": self.rows}]

    def change(self, statement: str) -> None:
        if self.error:
            raise self.error
        words = statement.split()
        if words[0] == "CREATE":
            self.there.add(words[2])
            self.now += self.took
        else:
            self.there.remove(words[4])

    def tables(self) -> set[str]:
        return {*self.there, "live", "samples"}


def of(store: Said) -> LiveSnapshots:
    found = LiveSnapshots(store, clock=lambda: store.now)  # type: ignore[arg-type]
    found._keeper = threading.current_thread()  # none is begun
    return found


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SECONDS", "_DROP_SECONDS"):
        monkeypatch.setattr(live_snapshots, name, 0.0)


@pytest.mark.parametrize(
    ("took", "serves"), [(0.001, 1.0), (0.1, 12.0), (0.3, 36.0), (0.7, MOST_SECONDS), (5.0, 50.0), (0.0, 1.0)]
)
def test_one_serves_the_longer_the_more_it_takes(took: float, serves: float) -> None:
    store = Said(took=took)
    snapshots = of(store)
    assert snapshots.newest() is None
    assert snapshots.renew() == pytest.approx(serves)
    assert snapshots.newest() is not None
    store.now += serves + LATE_SECONDS - 0.01
    assert snapshots.newest() is not None, "the next one may be late"
    store.now += 0.02
    assert snapshots.newest() is None, "what is too old is not shown"


def test_the_former_one_goes_when_the_next_is_there() -> None:
    store = Said()
    snapshots = of(store)
    snapshots.renew()
    first = snapshots.newest()
    snapshots.renew()
    second = snapshots.newest()
    assert first and second and first.table != second.table and store.there == {second.table}


def test_a_small_site_has_none_also_if_it_was_larger() -> None:
    store = Said()
    snapshots = of(store)
    snapshots.renew()
    store.rows = 100
    assert snapshots.renew() == WITHOUT_SECONDS
    assert snapshots.newest() is None and store.there == set()


def test_what_is_not_known_to_be_left_stays() -> None:
    store = Said()
    old, new = (f"{SNAPSHOTS}{time.time() - age:.0f}_ab" for age in (700, 500))
    other = f"{SNAPSHOTS}of_somebody"
    store.there = {old, new, other}
    snapshots = of(store)
    snapshots.renew()
    assert old not in store.there and {new, other} < store.there


@pytest.mark.parametrize("error", [StoreUnfit("it may not create tables"), StoreTooMuch("it takes too long")])
def test_a_store_that_refuses_is_named_once(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    store = Said()
    store.error = error
    snapshots = of(store)
    assert [snapshots.renew() for _ in range(3)] == [TOO_MUCH_SECONDS] * 3
    assert capsys.readouterr().err.count(str(error)) == 1
    store.error = StoreGone("it is away")
    assert snapshots.renew() == WITHOUT_SECONDS
    assert not capsys.readouterr().err and snapshots.newest() is None


def test_an_answer_by_one_that_is_gone_is_found_without_it() -> None:
    snapshots, asked = of(Said()), list[bool]()
    snapshots.renew()

    def find(snapshot: Snapshot | None) -> str:
        asked.append(snapshot is not None)
        if snapshot:
            raise StoreNoTable("it is gone")
        return "by the tables"

    assert snapshots.answered(find) == "by the tables" == snapshots.answered(find)
    assert asked == [True, False, False], "and it is not asked again"


def test_they_are_made_only_while_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Said(took=0.001)
    snapshots = LiveSnapshots(store, clock=lambda: store.now)  # type: ignore[arg-type]
    monkeypatch.setattr(live_snapshots, "WANTED_SECONDS", 10.0)
    assert snapshots.newest() is None
    keeper = snapshots._keeper
    assert keeper is not None
    until(lambda: snapshots.newest() is not None)
    store.now += 11
    keeper.join(10)
    assert not keeper.is_alive() and store.there == set() and snapshots._keeper is None
    assert snapshots.newest() is None and snapshots._keeper is not None, "whoever looks then begins anew"


def until(holds: Any) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
