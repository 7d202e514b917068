"""From entries to the list of a row, without a kernel: the sum is the total, whatever comes in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from properties import examples

from condor_joblens.model import metrics
from condor_joblens.model.endpoints import LISTED, NUMBERS, Scope, records
from condor_joblens.sample import endpoint_rows
from condor_joblens.sample.endpoint_lists import KEPT, EndpointLists
from condor_joblens.tracer import map_layout

CGROUP = 77
FIELDS = ("sent_bytes", "received_bytes", "connections", "retransmits", "refused", "timed_out", "failed_otherwise")


class Table:
    """The kernel's table, by hand: whatever is dropped is gone."""

    room = 4096

    def __init__(self) -> None:
        self.entries: dict[bytes, np.ndarray] = {}

    def add(self, address: int, port: int = 80, cgroup: int = CGROUP, **numbers: int) -> None:
        key = np.zeros(1, map_layout.ENDPOINT_KEY)
        key["cgroup_id"], key["address"], key["port"] = cgroup, (0, address), port
        value = self.entries.setdefault(key.tobytes(), np.zeros(1, map_layout.ENDPOINT))
        for name, number in numbers.items():
            value[name] += np.uint64(number)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        keys = np.frombuffer(b"".join(self.entries), map_layout.ENDPOINT_KEY)
        return keys, np.concatenate([np.zeros(0, map_layout.ENDPOINT), *self.entries.values()])

    def put(self, keys: np.ndarray, values: np.ndarray) -> None:
        for key, value in zip(keys.reshape(-1, 1), values.reshape(-1, 1)):
            self.entries[key.tobytes()] = value.copy()

    def drop(self, keys: np.ndarray) -> int:
        return sum(self.entries.pop(key.tobytes(), None) is not None for key in keys.reshape(-1, 1))


class Run:
    """A run at level io whose connections close one after another."""

    def __init__(self) -> None:
        self.table = Table()
        tracer: Any = SimpleNamespace(
            endpoints=self.table, connections_round=1, drop_endpoints=lambda keys: self.table.drop(keys)
        )
        self.listings = EndpointLists(tracer)
        self.rows = metrics.empty_rows(1)
        self.rows["complete"] = True
        for column in ("connected", "accepted", "failed", "refused", "timed_out", "unreachable"):
            self.rows[f"tcp_{column}"] = 0
        for column in ("sent_bytes", "received_bytes", "retransmits"):
            self.rows[f"tcp_{column}"] = 0

    def total(self, **numbers: int) -> None:
        for name, number in numbers.items():
            if name == "connections":
                self.rows["tcp_connected"] += number
            elif name in ("refused", "timed_out", "failed_otherwise"):
                self.rows["tcp_failed"] += number
                if name != "failed_otherwise":
                    self.rows[f"tcp_{name}"] += number
            else:
                self.rows[f"tcp_{name}"] += number

    def take(self) -> None:
        self.listings.read()
        runs, cgroups = np.array([0]), np.array([CGROUP], "u8")
        self.listings.update(self.rows, runs, cgroups, None)
        sums = endpoint_rows.totals(self.rows, runs)[0]
        for position, name in enumerate(NUMBERS):
            assert self.rows["endpoints"][0][name].astype("i8").sum() == sums[position], name

    def listed(self) -> dict[int, int]:
        entries = self.rows["endpoints"][0][:LISTED]
        used = entries[entries["scope"] != Scope.NONE]
        return {int.from_bytes(entry["address"].tobytes()[8:], "little"): int(entry["sent_bytes"]) for entry in used}


events = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.dictionaries(st.sampled_from(FIELDS), st.integers(0, 1000), max_size=4),
        st.sampled_from(["counted", "late", "total alone", "measure", "evict"]),
    ),
    max_size=60,
)


@settings(max_examples=examples(150))
@given(events)
def test_the_sum_is_the_total_and_nothing_listed_shrinks(happening: list[tuple[int, dict[str, int], str]]) -> None:
    """Also where an entry comes before its total, which a kernel never does, is dropped, or never made."""
    run, owed = Run(), []
    before: dict[int, int] = {}
    for address, numbers, how in happening:
        if how == "measure":
            run.take()
            for total in owed:
                run.total(**total)
            owed.clear()
            now = run.listed()
            assert all(now[address] >= before[address] for address in now.keys() & before.keys())
            before = now
        elif how == "evict":
            run.table.entries.clear()
        elif how == "late":
            run.table.add(address, **numbers)
            owed.append(numbers)
        else:
            run.total(**numbers)
            if how == "counted":
                run.table.add(address, **numbers)
    run.take()


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60, unique=True))
def test_the_greatest_are_listed_and_in_order(sizes: list[int]) -> None:
    run = Run()
    for address, size in enumerate(sizes, 1):
        run.table.add(address, sent_bytes=size, connections=1)
        run.total(sent_bytes=size, connections=1)
    run.take()
    assert list(run.listed().values()) == sorted(sizes, reverse=True)[:LISTED]


@settings(max_examples=examples(50))
@given(
    st.lists(st.integers(1, 2**48), min_size=1, max_size=6, unique=True),
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 30), st.sampled_from([0, 80, 443]), st.integers(0, 99))),
)
def test_each_of_many_runs_has_its_own_endpoints(cgroups: list[int], carried: list[tuple[int, int, int, int]]) -> None:
    """Entries of runs that are not asked about, or of none, lie among theirs."""
    run = Run()
    rows = np.repeat(run.rows, len(cgroups))
    truth: list[dict[tuple[int, int], int]] = [{} for _ in cgroups]
    for place, address, port, size in carried:
        known = place < len(cgroups)
        cgroup = cgroups[place] if known else 2**50 + place
        run.table.add(address, port, cgroup, sent_bytes=size, connections=1)
        if known:
            rows["tcp_sent_bytes"][place] += size
            rows["tcp_connected"][place] += 1
            truth[place][address, port] = truth[place].get((address, port), 0) + size
    asked = np.arange(len(cgroups))[::2]
    run.listings.read()
    run.listings.update(rows, asked, np.array(cgroups, "u8")[asked], None)
    for place in range(len(cgroups)):
        entries = rows["endpoints"][place]
        if place % 2:
            assert not entries["scope"].any()
            continue
        used = entries[:LISTED][entries["scope"][:LISTED] != Scope.NONE]
        keys = [(int.from_bytes(entry["address"].tobytes()[8:], "little"), int(entry["port"])) for entry in used]
        found = dict(zip(keys, used["sent_bytes"].tolist()))
        assert len(found) == len(used) == min(LISTED, len(truth[place]))
        assert found.items() <= truth[place].items()
        assert sorted(found.values()) == sorted(truth[place].values())[-LISTED:]
        assert entries["sent_bytes"].sum() == sum(truth[place].values())


def test_a_table_that_a_run_fills_is_emptied_of_the_smallest() -> None:
    run = Run()
    for address in range(1, 129):
        run.table.add(address, sent_bytes=address)
        run.total(sent_bytes=address)
    run.take()
    assert len(run.table.entries) == KEPT
    assert list(run.listed()) == list(range(128, 112, -1))
    # what was dropped comes back, and is counted from there on
    run.table.add(1, sent_bytes=1000)
    run.total(sent_bytes=1000)
    run.take()
    assert run.listed()[1] == 1000


def test_the_round_trip_time_is_the_last_that_is_known() -> None:
    run = Run()
    for rtt, mean in ((500, 500), (100, 300), (0, 300)):
        run.table.add(5, sent_bytes=1, rtt_us=rtt, rtt_count=rtt > 0)
        run.total(sent_bytes=1)
        run.take()
        assert round(run.rows["endpoints"]["rtt_seconds"][0, 0] * 1e6) == mean
    run.table.entries.clear()
    run.total(sent_bytes=1)
    run.take()
    assert round(run.rows["endpoints"]["rtt_seconds"][0, 0] * 1e6) == 300


def test_a_run_that_goes_on_elsewhere_is_not_counted_twice() -> None:
    run = Run()
    run.table.add(5, sent_bytes=100)
    run.total(sent_bytes=100)
    run.take()
    before = run.rows["endpoints"][0].copy()
    after = Run()
    after.rows["tcp_sent_bytes"] = 100
    for _ in range(2):
        after.listings.carry(after.rows, 0, CGROUP, before)
    after.table.add(5, sent_bytes=11)
    after.total(sent_bytes=11)
    after.take()
    assert after.listed() == {5: 111}


def test_what_was_there_before_the_run_is_not_its() -> None:
    run = Run()
    run.table.add(5, sent_bytes=100)
    run.listings.rebase(run.rows, 0, CGROUP)
    run.table.add(5, sent_bytes=11)
    run.total(sent_bytes=11)
    run.take()
    assert run.listed() == {5: 11}


def test_a_run_without_connections_has_a_rest_of_nothing_and_one_below_io_no_list() -> None:
    run = Run()
    assert records(run.rows["endpoints"][0]) == []
    run.take()
    (rest,) = records(run.rows["endpoints"][0])
    assert rest["Scope"] == "rest" and rest["SentBytes"] == rest["Connections"] == rest["Failed"] == 0
