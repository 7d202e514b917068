"""The list of file servers of a run: the greatest ones by name, a rest, and a sum that is always the total."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent.output.unattributed_servers import MOST, listing
from condor_joblens.common import endpoint_names
from condor_joblens.jobs.run_state import empty_state
from condor_joblens.model import classes
from condor_joblens.model.metrics import empty_rows
from condor_joblens.model.servers import LISTED, NUMBERS, SERVER, Scope, records
from condor_joblens.publish import server_ads
from condor_joblens.publish.classad import LIMIT, usage_ads
from condor_joblens.sample import server_counters, server_lists
from condor_joblens.sample.server_lists import KEPT, ServerLists
from condor_joblens.sinks import server_families
from condor_joblens.tracer import filesystems, map_layout
from condor_joblens.tracer.sensors.servers import unseen_filesystems

NFS = list(classes.SERVERS).index("Nfs")
CGROUP = 7

MOUNTS = """\
22 1 0:50 / /cvmfs/atlas.cern.ch rw - fuse.cvmfs2 cvmfs2 rw,user_id=0
23 1 0:50 / /srv/jail/cvmfs/atlas.cern.ch rw - fuse.cvmfs2 cvmfs2 rw
24 1 0:51 / /cvmfs/a\\040b rw - fuse.cvmfs2 cvmfs2 rw
25 1 0:60 / /home rw - nfs4 filer.example.org:/home rw,vers=4.2,addr=192.0.2.7
"""


class Tracer:
    """The kernel's table, as a test fills it."""

    def __init__(self) -> None:
        self.keys: np.ndarray = np.zeros(0, map_layout.SERVER_KEY)
        self.values: np.ndarray = np.zeros(0, map_layout.SERVER)
        self.servers: Any = SimpleNamespace(room=100, read=lambda: (self.keys.copy(), self.values.copy()))

    def add(self, cgroup: int, address: bytes, port: int = 0, place: int = 0, **numbers: int) -> None:
        key: np.ndarray = np.zeros(1, map_layout.SERVER_KEY)
        key["cgroup_id"], key["port"], key["class"] = cgroup, port, place
        key["address"] = np.frombuffer(address, "u8")
        value: np.ndarray = np.zeros(1, map_layout.SERVER)
        for name, number in numbers.items():
            value["numbers"][0, NUMBERS.index(name)] = number
        self.keys, self.values = np.concatenate([self.keys, key]), np.concatenate([self.values, value])

    def add_mount(self, cgroup: int, device: int, began: int = 0, **numbers: int) -> None:
        self.add(cgroup, bytes(8) + device.to_bytes(4, "little") + began.to_bytes(4, "little"), **numbers)

    def fuse_mounts(self) -> dict[int, tuple[int, str]]:
        return {50: (0, "fuse.cvmfs2"), 51: (0, "fuse.cvmfs2"), 52: (9, "fuse.squashfuse")}

    def drop_servers(self, keys: np.ndarray) -> None:
        kept = ~np.isin(self.keys["address"][:, 1], keys["address"][:, 1])
        self.keys, self.values = self.keys[kept], self.values[kept]


class Lists:
    """One run whose totals a test gives."""

    def __init__(self, names: str = "") -> None:
        self.tracer = Tracer()
        self.table: Any = SimpleNamespace(rows=empty_rows(2), state=empty_state(2))
        self.table.state["cgroup_id"][0] = CGROUP
        self.lists = ServerLists(self.tracer, endpoint_names.parse(names))  # type: ignore[arg-type]

    def take(self, **totals: float) -> list[dict[str, Any]]:
        sums = np.array([[totals.get(name, 0.0) for name in NUMBERS]])
        self.lists.read()
        self.lists.update(self.table, np.array([0]), sums)
        its = self.table.rows["servers"][0]
        for name in NUMBERS:
            if name in totals:
                assert its[name].sum() == pytest.approx(totals[name])
        return records(its)


@pytest.fixture(autouse=True)
def mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems.Mounts, "read", lambda _: MOUNTS)


def test_a_mount_is_called_by_its_shortest_path_and_the_rest_has_no_name() -> None:
    its = Lists()
    its.tracer.add_mount(CGROUP, 50, requests=5, received_bytes=1000, seconds=2_000_000_000)
    its.tracer.add_mount(CGROUP, 51, requests=2)
    its.tracer.add_mount(8, 50, requests=99)  # another job's
    found = its.take(requests=10, received_bytes=1500, seconds=3.0)
    assert [(entry.get("Name"), entry["Requests"], entry["ReceivedBytes"]) for entry in found] == [
        ("/cvmfs/atlas.cern.ch", 5, 1000), ("/cvmfs/a b", 2, 0), (None, 3, 500),
    ]  # fmt: skip
    assert found[0]["Seconds"] == 2.0 and found[0]["Class"] == "Cvmfs"


def test_a_mount_that_is_gone_or_elsewhere_is_never_called_by_anothers_name() -> None:
    its = Lists()
    its.tracer.add_mount(CGROUP, 50, began=4, requests=3)  # the number is another mount's now
    its.tracer.add_mount(CGROUP, 52, began=9, requests=2)  # in a namespace of its own
    assert [entry["Name"] for entry in its.take(requests=5)] == ["unmounted", "fuse.squashfuse"]


def test_a_server_of_nfs_has_the_sites_name_or_that_of_the_mount() -> None:
    address, other = (bytes(10) + b"\xff\xff" + bytes(four) for four in ((192, 0, 2, 7), (192, 0, 2, 8)))
    for names, expected in (("", ["filer.example.org", "192.0.2.8"]), ("192.0.2.7 = home", ["home", "192.0.2.8"])):
        its = Lists(names)
        its.tracer.add(CGROUP, address, 2049, NFS, requests=2)
        its.tracer.add(CGROUP, other, 2049, NFS, requests=1)
        assert [entry["Name"] for entry in its.take(requests=3)] == expected


def test_of_many_servers_the_greatest_are_listed_and_the_table_stays_small() -> None:
    its = Lists()
    for number in range(KEPT + 5):
        address = bytes(10) + b"\xff\xff" + bytes((10, 0, 0, number))
        its.tracer.add(CGROUP, address, 2049, NFS, requests=number + 1)
    total = (KEPT + 5) * (KEPT + 6) // 2
    found = its.take(requests=total)
    assert [entry["Requests"] for entry in found[:LISTED]] == list(range(KEPT + 5, KEPT + 5 - LISTED, -1))
    assert len(found) == LISTED + 1
    its.take(requests=total + 1)
    assert len(its.tracer.keys) == KEPT


def test_a_total_that_comes_later_is_made_good_in_the_next_round() -> None:
    its = Lists()
    its.tracer.add_mount(CGROUP, 50, requests=5)
    its.take()  # the list has more than its total
    its.lists._marks.clear()
    (only,) = its.take(requests=5)
    assert only["Requests"] == 5


def test_a_list_goes_on_under_programs_that_begin_anew() -> None:
    its = Lists()
    its.tracer.add_mount(CGROUP, 50, requests=5)
    its.take(requests=6)
    its.tracer.values["numbers"][:] = 0
    its.tracer.add_mount(CGROUP, 51, requests=1)  # before the run was taken over: not its
    its.lists.rebase(its.table, 0)
    its.tracer.values["numbers"][:, 0] += 2
    assert [(entry.get("Name"), entry["Requests"]) for entry in its.take(requests=10)] == [
        ("/cvmfs/atlas.cern.ch", 7), ("/cvmfs/a b", 2), (None, 1),
    ]  # fmt: skip


def test_a_list_goes_on_in_another_cgroup_and_begins_anew_with_another_job() -> None:
    its = Lists()
    its.tracer.add_mount(CGROUP, 50, requests=5)
    its.take(requests=5)
    before = its.table.rows["servers"][0].copy()
    its.table.state["cgroup_id"][0] = 8
    its.tracer.add_mount(8, 50, requests=2)
    its.lists.carry(its.table, 0, before)
    assert [entry["Requests"] for entry in its.take(requests=7)] == [7]
    its.lists.forget(its.table, 0)
    assert [entry["Requests"] for entry in its.take(requests=2)] == [2]


def test_the_kernels_words_are_the_columns_in_their_order() -> None:
    ended: np.ndarray = np.zeros(1, map_layout.COUNTERS)
    ended["servers"][0] = np.arange(len(server_counters.COLUMNS))
    found = server_counters.columns(ended)
    assert found["server_nfs_requests"][0] == NFS * len(NUMBERS)
    assert found["server_eos_seconds"][0] == pytest.approx((len(NUMBERS) + 3) * 1e-9)
    ended["mapped_bytes"][0] = np.arange(len(server_counters.MAPPED)) * 10
    assert server_counters.columns(ended)["server_nfs_mapped_bytes"][0] == NFS * 10
    assert len(server_counters.COLUMNS) == map_layout.SERVER_CLASSES * map_layout.SERVER_NUMBERS
    assert list(classes.SERVERS) == [name for name in classes.FILESYSTEMS if name in classes.SERVERS]
    assert server_lists.numbers_of(np.full((1, 5), 10**9)).tolist() == [[1e9, 1e9, 1e9, 1.0, 1e9]]


def entries(count: int) -> np.ndarray:
    found: np.ndarray = np.zeros(count, SERVER)
    found["name"] = [f'/mnt/{number}"\n'.encode() for number in range(count)]
    found["scope"], found["requests"], found["received_bytes"] = Scope.SERVER, 3, 100
    return found


def test_what_nobody_asked_is_listed_with_a_rest() -> None:
    found = listing(entries(MOST + 2), np.array([3.0 * (MOST + 2) + 1, 0, 0, 0, 0]))
    assert len(found) == MOST + 1 and found[-1]["Requests"] == 7 and "Name" not in found[-1]


def test_an_ad_has_the_first_servers_in_names_that_both_parsers_read_alike() -> None:
    rows = empty_rows(1)
    rows["servers"][0, :4] = entries(4)
    rows["server_fuse_requests"] = 12
    (ads,) = server_ads.lists(rows["servers"])
    assert len(ads) == server_ads.MOST
    assert ads[0][0] == (
        '[Name="/mnt/0??";Class="Cvmfs";Requests=3;SentBytes=0;ReceivedBytes=100;Seconds=0.0;Errors=0]'
    )
    (text,) = usage_ads(rows)
    assert "Server=[Fuse=[Requests=12" in text and f"Servers={{{','.join(ad for ad, _ in ads)}}}" in text
    assert len(text) <= LIMIT


def test_the_prometheus_page_has_each_job_by_server_and_what_is_nobodys() -> None:
    rows = empty_rows(2)
    rows["servers"][1, 0] = entries(1)[0]
    rows["servers"][1, LISTED]["scope"], rows["servers"][1, LISTED]["requests"] = Scope.REST, 4
    text = b"".join(server_families.of_jobs(['job_id="1"', 'job_id="2"'], rows, False, lambda value: value)).decode()
    assert 'joblens_job_by_server_requests_total{job_id="2",server="/mnt/0' in text
    assert 'joblens_job_by_server_requests_total{job_id="2",server="other"} 4\n' in text
    assert 'job_id="1"' not in text
    facts = {"Unattributed": listing(entries(1), np.array([5.0, 0, 100, 0, 0]))}
    families = {family.name: family.samples for family in server_families.unattributed(facts)}
    samples = families["joblens_server_unattributed_requests"]
    assert [(sample.labels["server"][:6], sample.value) for sample in samples] == [("/mnt/0", 3.0), ("other", 2.0)]
    assert list(server_families.unattributed({})) == []


def test_servers_of_which_nothing_is_known_are_those_that_no_program_counts() -> None:
    def names(*uncounted: str) -> set[str]:
        places = unseen_filesystems(frozenset(uncounted))
        return {list(classes.FILESYSTEMS)[place] for place in places}

    assert names() == {"Lustre", "Gpfs", "Beegfs"}
    assert names("nfs", "cvmfs") == {"Lustre", "Gpfs", "Beegfs", "Nfs", "Cvmfs"}
