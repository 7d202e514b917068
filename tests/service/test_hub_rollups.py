"""Roll-ups of a day with a real store: doubled, shuffled, late and corrected, they are what its raw rows say."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub
from sinks import deliver_all, make, runs

from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.store.client import Store, socket_of
from condor_joblens.hub.store.rollups import SUMS, Rollups, read
from condor_joblens.hub.store.schema import HOUR_KEY
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.trends import BY, COLUMNS, Asked, stamp, trends
from condor_joblens.hub.web.who_sees import Role
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.hub import HubSink

NODES = ("node1", "node2")


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    with server(Hub, folder / "rollups", nodes=NODES) as started:
        yield started


class Day:
    """Last records and exit codes of 24 hours, and what they come to."""

    def __init__(self, count: int) -> None:
        self.dice, self.end = random.Random(7), int(time.time()) - 7200
        self.records: dict[str, list[Record]] = {node: [] for node in NODES}
        self.rows: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.codes: dict[tuple[str, str, int], int] = {}
        for number in range(count):
            self.run(number)

    def run(self, number: int) -> None:
        """One that ends; some of them on both nodes, some corrected in the next hour, some with an exit code."""
        dice = self.dice
        end = self.end - dice.randrange(86400)
        for node in NODES if number % 10 == 0 else (dice.choice(NODES),):
            self.last(number, node, 5, end - dice.randrange(2) * 3600)
            if number % 7 == 0:
                self.last(number, node, 6, end + 3600, death="SIGABRT in reco")
            if number % 5 == 0:
                self.code(number, node, end)

    def last(self, number: int, node: str, sequence: int, end: int, death: str = "") -> None:
        """A last record."""
        name = f"ap{number % 2}.example.org#{number}.0#17"
        rows = runs(1, sequence)
        rows["global_job_id"], rows["run"], rows["job_id"] = name, f"{name}#1", f"{number}.0"
        rows["owner"], rows["accounting_group"], rows["vo"] = f"owner{number % 5}", f"group{number % 3}", "vo"
        rows["death"], rows["start_time"], rows["update_time"] = death, end - 60 * (number % 90), end
        rows["request_cpus"], rows["request_memory_bytes"] = number % 3, (number % 4) << 30
        (record,) = RowEncoder(node).records(rows, RecordKind.JOB)
        self.records[node].append(record)
        fields = json.loads(record.json)
        key = (fields["Run"], node, fields["RunNumber"])
        if key not in self.rows or self.rows[key]["Sequence"] < sequence:
            self.rows[key] = fields

    def code(self, number: int, node: str, end: int) -> None:
        """The event of its end."""
        run = f"ap{number % 2}.example.org#{number}.0#17#1"
        own = next(key for key in self.rows if key[:2] == (run, node))
        said = {"Type": "event", "Id": f"{node}/e/{number}", "Schema": 1, "Node": node, "Time": end, "Kind": "RunEnd"}
        line = json.dumps(said | {"Run": run, "RunNumber": own[2], "ExitCode": 3}).encode()
        self.records[node].append(Record(RecordKind.EVENT, str(said["Id"]), run, float(end), line, frozenset()))
        self.codes[own] = 3

    def expected(self) -> dict[tuple[Any, ...], dict[str, float]]:
        """Of each hour and group: reckoned from the records, with no store."""
        failed = {key for key, row in self.rows.items() if row.get("Death") or self.codes.get(key)}
        runs_failed, first = {run for run, *_ in failed}, {run: (run, *rest) for run, *rest in sorted(self.rows)[::-1]}
        found: defaultdict[tuple[Any, ...], dict[str, float]] = defaultdict(lambda: dict.fromkeys(SUMS, 0.0))
        for key, row in self.rows.items():
            hour = int(row["Time"]) // 3600 * 3600
            names = (row["Node"], row["GlobalJobId"].split("#")[0], row["Owner"], row["AccountingGroup"], row["Vo"])
            sums, wall = found[(hour, *names)], row["UpdateTime"] - row["StartTime"]
            is_one = first[key[0]] == key
            cpu, memory = row.get("Cpu", {}).get("Seconds"), row.get("Memory", {}).get("ResidentPeakBytes")
            cores, asked = row.get("RequestCpus") or 0, row.get("RequestMemoryBytes") or 0
            more = {
                **{"Runs": is_one, "Failed": is_one and key[0] in runs_failed},
                **{"NodeRuns": 1, "NodeFailed": key in failed, "WallSeconds": wall},
            }
            if cpu is not None and cores > 0:
                more |= {"CpuSeconds": cpu, "AskedCpuSeconds": cores * wall}
            if memory is not None and asked > 0:
                more |= {"MemoryByteSeconds": memory * wall, "AskedMemoryByteSeconds": asked * wall}
            for name, value in more.items():
                sums[name] += value
            sums["GreatestBytes"] = max(sums["GreatestBytes"], memory or 0)
        return dict(found)


def send(hub: Hub, node: str, records: list[Record]) -> None:
    sink = make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / node))
    deliver_all(sink, records)


def rolled(hub: Hub) -> dict[tuple[Any, ...], dict[str, float]]:
    rows = hub.ask(read("*"))
    found = {tuple(row[name] for name in HOUR_KEY): {name: row[name] for name in SUMS} for row in rows}
    assert len(found) == len(rows)
    return found


def same(found: dict[tuple[Any, ...], dict[str, float]], expected: dict[tuple[Any, ...], dict[str, float]]) -> None:
    assert found.keys() == expected.keys()
    for key, sums in expected.items():
        assert found[key] == pytest.approx(sums, rel=1e-12), key


def test_a_day_that_comes_doubled_shuffled_and_late_is_rolled_up_as_its_rows_are(hub: Hub) -> None:
    """In parts, with roll-ups made between them, so that corrections, codes and other nodes come late."""
    day = Day(300)
    expected = day.expected()
    assert sum(sums["Runs"] for sums in expected.values()) == 300 and len(expected) > 150
    assert 0 < sum(sums["Failed"] for sums in expected.values()) < sum(sums["NodeFailed"] for sums in expected.values())
    assert all(any(sums[name] > 0 for sums in expected.values()) for name in SUMS)
    rollups = Rollups(Store(socket_of(f"{hub.folder}/kept")), pytest.fail)
    parts: list[tuple[str, list[Record]]] = []
    for node, records in day.records.items():
        twice = records * 2
        day.dice.shuffle(twice)
        parts += [(node, twice[place::2]) for place in range(2)]
    day.dice.shuffle(parts)
    for node, part in parts:
        send(hub, node, part)
        assert rollups.step() > 0
    same(rolled(hub), expected)
    send(hub, *parts[0])  # once more: nothing changes
    rollups.step()
    same(rolled(hub), expected)


PEOPLE = {
    "olga": Person("olga", Role.OPERATOR, frozenset(), ()),
    "user": Person("user", Role.USER, frozenset(), (("owner1", "ap1.example.org"),)),
    "manager": Person("manager", Role.MANAGER, frozenset(), (), (("group2", "ap0.example.org"),)),
    "nobody": Person("nobody", Role.USER, frozenset(), ()),
}
SEES: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "olga": lambda of: True,
    "user": lambda of: of["Owner"] == "owner1" and of["Schedd"] == "ap1.example.org",
    "manager": lambda of: of["AccountingGroup"] == "group2" and of["Schedd"] == "ap0.example.org",
    "nobody": lambda of: False,
}


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("days", [1, 7])
def test_trends_are_what_the_rows_of_their_time_say(hub: Hub, who: str, by: str, days: int) -> None:
    """After the test before: its day, of which a reader of two times sees as much as is his."""
    reader = Reader(Store(socket_of(f"{hub.folder}/kept")), PEOPLE[who])
    asked = Asked(by, days, "runs")
    found = trends(reader, asked)
    _, begin, until = asked.bounds(reader.now)
    runs, failed = ("NodeRuns", "NodeFailed") if by == "node" else ("Runs", "Failed")
    expected: dict[str, dict[str, float]] = {}
    whole = dict.fromkeys((*SUMS, "hours"), 0.0)
    for key, sums in rolled(hub).items():
        of = dict(zip(HOUR_KEY, key))
        if not begin <= of["Hour"] < until or not SEES[who](of):
            continue
        name = "@".join(of[COLUMNS[each]] for each in BY[by])
        into = expected.setdefault(name, dict.fromkeys(SUMS, 0.0))
        for each in SUMS:
            for place in (into, whole):
                place[each] = max(place[each], sums[each]) if each == "GreatestBytes" else place[each] + sums[each]
    assert {row["name"] for row in found["rows"]} == {name for name, sums in expected.items() if sums[runs]}
    assert bool(expected) == (who != "nobody")
    for row in found["rows"]:
        sums = expected[row["name"]]
        assert (row["runs"], row["failed"]) == (sums[runs], sums[failed])
        assert row["asked"] == pytest.approx(sums["AskedCpuSeconds"] / 3600)
        assert row["used"] == pytest.approx(sums["CpuSeconds"] / 3600)
        assert row["before"] is None, "nothing is kept of so long ago"
    assert (found["whole"]["runs"], found["whole"]["failed"]) == (whole[runs], whole[failed])
    assert sum(step["runs"] for step in found["steps"]) == whole[runs]
    assert sum(step["failed"] for step in found["steps"]) == whole[failed]
    assert len(found["steps"]) == (24 if days == 1 else days)
    if who == "olga":
        assert found["site"] is None
    else:
        assert found["site"]["runs"] > whole["Runs"], "10 people's jobs may be summed up"


def test_of_one_all_others_are_left_out(hub: Hub) -> None:
    reader = Reader(Store(socket_of(f"{hub.folder}/kept")), PEOPLE["olga"])
    all_nodes = {row["name"]: row for row in trends(reader, Asked("node", 7, "runs"))["rows"]}
    found = trends(reader, Asked("owner", 7, "runs", (("node", "node1"),)))
    assert found["whole"]["runs"] == all_nodes["node1"]["runs"] == sum(row["runs"] for row in found["rows"])
    nothing = trends(reader, Asked("owner", 7, "runs", (("vo", "' OR 1 --"),)))
    assert nothing["rows"] == [] and nothing["whole"]["runs"] == 0


def test_an_hour_whose_only_run_is_corrected_into_another_is_empty(hub: Hub) -> None:
    rollups = Rollups(Store(socket_of(f"{hub.folder}/kept")), pytest.fail)
    other = Day(0)
    other.end -= 5 * 86400
    other.last(9001, "node1", 1, other.end)
    send(hub, "node1", other.records["node1"])
    rollups.step()
    (before,) = [key for key in rolled(hub) if key[0] < other.end + 7200 and key[3] == "owner1"]
    other.last(9001, "node1", 2, other.end + 4 * 3600)
    send(hub, "node1", other.records["node1"])
    rollups.step()
    assert before not in rolled(hub) and (before[0] + 4 * 3600, *before[1:]) in rolled(hub)


def test_the_time_before_is_compared_with_if_all_of_it_was_kept(hub: Hub) -> None:
    rollups = Rollups(Store(socket_of(f"{hub.folder}/kept")), pytest.fail)
    old = Day(0)
    for number, days in enumerate((3, 3, 3, 1, 1)):
        old.last(9101 + 4 * number, "node1", 1, old.end - days * 86400, death="SIGSEGV" if days == 1 else "")
    send(hub, "node1", old.records["node1"])
    rollups.step()
    found = trends(Reader(Store(socket_of(f"{hub.folder}/kept")), PEOPLE["olga"]), Asked("vo", 1, "runs"))
    (row,) = found["rows"]
    assert found["before_begin"] == found["begin"] - 86400 and row["before"] is not None
    reader = Reader(Store(socket_of(f"{hub.folder}/kept")), PEOPLE["olga"])
    earlier = {key[0]: sums for key, sums in rolled(hub).items() if found["before_begin"] <= key[0] < found["begin"]}
    assert row["before"]["runs"] >= 2 and earlier
    assert trends(reader, Asked("vo", 90, "runs"))["rows"][0]["before"] is None


def test_a_late_row_is_seen_by_the_stamp_of_trends_and_one_of_this_hour_is_not(hub: Hub) -> None:
    rollups, moment = Rollups(Store(socket_of(f"{hub.folder}/kept")), pytest.fail), time.time()

    def now() -> tuple[int, ...]:
        return stamp(Reader(Store(socket_of(f"{hub.folder}/kept")), PEOPLE["nobody"], moment))[:2]

    late, before = Day(0), now()
    late.last(9301, "node1", 1, int(moment))
    send(hub, "node1", late.records["node1"])
    rollups.step()
    until, version = now()
    assert until == before[0] == int(moment) // 3600 * 3600
    late.last(9302, "node1", 1, late.end - 86400)
    send(hub, "node1", late.records["node1"])
    rollups.step()
    assert now()[1] > version >= before[1]


def test_hours_of_which_nothing_came_are_not_made_again(hub: Hub) -> None:
    later = Rollups(Store(socket_of(f"{hub.folder}/kept")), pytest.fail, lambda: time.time() + 1000)
    later.step()
    assert later.step() == 0


def test_rows_of_before_there_were_roll_ups_are_rolled_up_too(hub: Hub) -> None:
    store = Store(socket_of(f"{hub.folder}/kept"))
    before = rolled(hub)
    for table in ("touched_hours", "hours"):
        store.change(f"TRUNCATE TABLE {table}")
    assert before and Rollups(store, pytest.fail).step() > 0
    same(rolled(hub), before)
