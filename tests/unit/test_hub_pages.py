"""Who somebody is, what he may see, and what pages say of a job: without a store and without Django."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.web.access import MOST_CODES, Access
from condor_joblens.hub.web.desk import Desk
from condor_joblens.hub.web.gaps import gaps
from condor_joblens.hub.web.health import duration, health, size, span
from condor_joblens.hub.web.people import Person, read_people
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.site_reads import COUNTS, SUMS, site
from condor_joblens.hub.web.states import AT_MOST, patience
from condor_joblens.hub.web.who_sees import OTHERS, OWNER_COLUMNS, WORD_COLUMNS, Role, Seen

PEOPLE = """
[alice]
login = unix:alice, remote:alice@EXAMPLE.ORG
jobs = alice@ap1.example.org, asmith@schedd@ap2.example.org

[olga]
role = operator
login = unix:olga
"""


def test_a_time_has_its_day_once_and_a_moment_is_one() -> None:
    assert span(1.7e9, 1.7e9 + 60) == "2023-11-14 22:13:20 to 22:14:20 UTC"
    assert span(1.7e9, 1.7e9 + 7200) == "2023-11-14 22:13:20 to 2023-11-15 00:13:20 UTC"
    assert span(1.7e9, 1.7e9 + 0.5) == "2023-11-14 22:13:20 UTC"


def test_people_are_read() -> None:
    alice, olga = read_people(PEOPLE)
    assert alice.role is Role.USER and alice.logins == {"unix:alice", "remote:alice@EXAMPLE.ORG"}
    assert alice.jobs == (("alice", "ap1.example.org"), ("asmith", "schedd@ap2.example.org"))
    assert olga.role is Role.OPERATOR and olga.jobs == ()


@pytest.mark.parametrize(
    "text, why",
    [
        ("login = unix:x", "can't be read"),
        ("[a]\nrole = king", "the role is one of"),
        ("[a]\nlogin = alice", "is none of unix:NAME"),
        ("[a]\nlogin = unix:", "is none of unix:NAME"),
        ("[a]\njobs = alice", "is no OWNER@SCHEDD"),
        ("[a]\nhobby = x", "there is no hobby"),
        ("[a]\nrole = manager\ngroups = x", "is no GROUP@SCHEDD"),
        ("[a]\ngroups = x@ap", "a user has no groups"),
        ("[a]\nlogin = unix:x\n[b]\nlogin = unix:x", "login of two people"),
    ],
)
def test_a_wrong_file_of_people_is_refused_whole(text: str, why: str) -> None:
    with pytest.raises(JobLensError, match=why):
        read_people(text)


class Asked:
    """A store that answers with one row, and keeps what it was asked."""

    def __init__(self, **row: Any) -> None:
        self.queries: list[tuple[str, dict[str, Any]]] = []
        names = (*OWNER_COLUMNS, *WORD_COLUMNS, "Cores", "ResidentBytes", "Run", "Node", "RunNumber", "GlobalJobId")
        plain = {"Type": "sample", "UpdateTime": 0, "IsMine": 0, "n": 1, "runs": 1}
        key = {"RunHash": 1, "JobHash": 2, "Version": 1, "k1": 1, "k2": "x", "k3": 2, "k4": 1}
        self.row = {**dict.fromkeys(names, "x"), **plain, **key, **row}

    def ask_counted(self, query: str, **values: Any) -> tuple[list[dict[str, Any]], int]:
        """With how many there are."""
        return self.ask(query, **values), 1

    def ask(self, query: str, **values: Any) -> list[dict[str, Any]]:
        self.queries.append((query, values))
        if any(word in query for word in ("failed_ends", "JSONExtractArrayRaw(Servers)", "HAVING")):
            return []  # nothing has failed, no server is asked, no node is silent
        return [{"name": "x", **self.row}]


def reader(role: Role, store: Asked, *jobs: tuple[str, str]) -> Reader:
    return Reader(store, Person("x", role, frozenset(), jobs))  # type: ignore[arg-type]


def test_a_user_asks_for_his_own_jobs_alone_by_owner_and_schedd() -> None:
    store = Asked(IsMine=1)
    reader(Role.USER, store, ("alice", "ap1"), ("o'x) OR 1", "ap2")).job("run")
    ((query, values),) = store.queries
    scope = (
        "((Owner = {owner0:String} AND startsWith(GlobalJobId, {schedd0:String})) OR "
        "(Owner = {owner1:String} AND startsWith(GlobalJobId, {schedd1:String})))"
    )
    assert f"WHERE Run = {{run:String}} AND {scope}" in query
    assert values == {"run": "run", "owner0": "alice", "schedd0": "ap1#", "owner1": "o'x) OR 1", "schedd1": "ap2#"}


def test_who_has_no_jobs_sees_none() -> None:
    store = Asked()
    reader(Role.USER, store).jobs()
    assert all(" WHERE 0 AND " in query or query.endswith(" WHERE 0") for query, _ in store.queries)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("is_mine", [0, 1])
def test_the_table_of_who_sees_what_holds_for_each_column(role: Role, is_mine: int) -> None:
    seen = frozenset(Seen) if is_mine else OTHERS[role]
    if Seen.EXISTS not in seen:
        return
    found = reader(role, Asked(IsMine=is_mine)).job("run")
    assert found is not None
    for columns, what in ((OWNER_COLUMNS, Seen.OWNER), (WORD_COLUMNS, Seen.WORDS), (("Cores",), Seen.NUMBERS)):
        assert all((column in found) == (what in seen) for column in columns)


@pytest.mark.parametrize(
    "role, program, owner",
    [
        (Role.OPERATOR, "if(IsMine, Executable, '')", "Owner"),
        (Role.ADMINISTRATOR, "Executable", "Owner"),
        (Role.USER, "Executable", "Owner"),
    ],
)
def test_jobs_are_found_by_what_their_viewer_may_see_of_each(role: Role, program: str, owner: str) -> None:
    store = Asked()
    reader(role, store, ("alice", "ap1")).jobs("secret")
    for query, _ in store.queries[:1]:
        assert f"concat(JobId, ' ', GlobalJobId, ' ', Node, ' ', {owner}, ' ', {program}, ' ', " in query


def test_why_a_job_died_is_not_told_to_an_operator() -> None:
    found = reader(Role.OPERATOR, Asked(Type="job", Death="no such file: /home/alice/secret")).job("run")
    assert found is not None and (found["Health"], found["Why"]) == ("failing", "")


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("owners", [1, 4, 5])
def test_sums_of_fewer_than_five_people_are_not_shown_to_users(role: Role, owners: int) -> None:
    row = {"records": 0, "nodes": 0, "newest": 0, "n": 1, "time": 0.0, "Rows": 1, "All": 1}
    for which in ("Runs", "Mine"):
        row |= {f"{which}_{name}": owners if name == "owners" else 1 for name in (*COUNTS, *SUMS)}
    found = site(reader(role, Asked(**row)), lambda name, ask, stamp=None: ask())
    assert (found["site"] is None) == (role in (Role.USER, Role.MANAGER) and owners < 5)
    assert (found["silent_nodes"] is None) == (role in (Role.USER, Role.MANAGER))


def test_whatever_is_asked_for_only_known_words_are_in_the_query() -> None:
    store = Asked()
    reader(Role.ADMINISTRATOR, store).jobs("a'b x{y}", sort="-Owner; DROP TABLE", state="1; DROP", page=3)
    query, values = store.queries[0]
    assert "DROP" not in query and "ORDER BY UpdateTime DESC" in query and "OFFSET 300" in query
    assert values == {"word0": "a'b", "word1": "x{y}"}


def test_a_hole_in_the_numbers_is_a_gap_and_a_longer_period_is_none() -> None:
    assert gaps([], [], []) == gaps([1], [1.0], []) == gaps([1, 2, 3], [1.0, 2.0, 3.0], []) == []
    assert gaps([10, 40, 70, 100], [10.0, 40.0, 70.0, 100.0], []) == [], "a sink that takes every 30th"
    (gap,) = gaps([1, 2, 3, 7, 8], [1.0, 2.0, 3.0, 7.0, 8.0], [])
    assert (gap.after, gap.begin, gap.end, gap.missing, gap.is_declared) == (2, 3.0, 7.0, 3, False)
    (gap,) = gaps([1, 2, 4, 5], [1.0, 2.0, 4.0, 5.0], [3.0])
    assert gap.missing == 1 and gap.is_declared
    (gap,) = gaps([0, 30, 60, 150, 180], [0.0, 30.0, 60.0, 150.0, 180.0], [5000.0])
    assert gap.missing == 2 and not gap.is_declared


def run(**other: Any) -> dict[str, Any]:
    return {"Type": "sample", "UpdateTime": 1000, "PeriodSeconds": 1, **other}


@pytest.mark.parametrize(
    "record, now, word, why",
    [
        (run(), 1010, "well", ""),
        (run(), 1200, "unknown", "no numbers for 3 min"),
        (run(PeriodSeconds=300), 1200, "well", ""),
        (run(SinkPeriodSeconds=300), 1899, "well", ""),
        (run(SinkPeriodSeconds=300), 1901, "unknown", "no numbers for 15 min"),
        (run(HangSuspected=1, HangCause="lock"), 1010, "suspect", "seems to hang: lock"),
        (run(LimitBytes=100, CgroupBytes=96), 1010, "suspect", "96 % of its memory limit"),
        (run(LimitBytes=100, CgroupBytes=90), 1010, "well", ""),
        (run(IdleSeconds=1200), 1010, "suspect", "next to no CPU for 20 min"),
        (run(Level="off"), 9999, "not watched", "level off"),
        (run(Type="job", Level="off"), 9999, "not watched", "level off"),
        (run(Type="job"), 9999, "ended", ""),
        (run(Type="job", Death="killed by SIGKILL"), 9999, "failing", "killed by SIGKILL"),
    ],
)
def test_a_job_in_a_word(record: dict[str, Any], now: float, word: str, why: str) -> None:
    found, said = health(record, now)
    assert found == word and (why in said if why else not said)


def test_a_run_may_be_silent_for_three_samples_and_not_for_ever() -> None:
    assert [patience(None, None), patience(10, 0), patience(100, 0), patience(1, 600)] == [120, 120, 300, 1800]
    assert patience(1e18, 0) == AT_MOST


def test_a_record_without_its_time_is_of_an_unknown_job_and_breaks_no_page() -> None:
    assert health(run(UpdateTime=None), 1e9)[0] == "unknown"


def test_a_person_has_a_few_codes_and_takes_none_from_others(tmp_path: Path) -> None:
    access, another = Access(tmp_path), Access(tmp_path)
    desk = Desk(Asked(), str(tmp_path / "people"), access=another)  # type: ignore[arg-type]
    hers = access.new_code("unix:alice")
    his = [access.new_code("unix:bob") for _ in range(3 * MOST_CODES)]
    assert desk.redeem(hers) == "unix:alice" and desk.redeem(hers) == ""
    assert [desk.redeem(code) for code in his[-MOST_CODES - 1 :]] == ["", *["unix:bob"] * MOST_CODES]


def test_numbers_as_text() -> None:
    assert [duration(seconds) for seconds in (-1, 59, 600, 7200, 200000)] == ["0 s", "59 s", "10 min", "2.0 h", "2.3 d"]
    assert [size(number) for number in (None, 0, 2048, 5 << 40, 7 << 52)] == [
        "–",
        "0 B",
        "2.0 KiB",
        "5.0 TiB",
        "28672.0 TiB",
    ]


def test_nodes_that_tell_of_one_run_are_all_named() -> None:
    class Two(Asked):
        def ask(self, query: str, **values: Any) -> list[dict[str, Any]]:
            (row,) = super().ask(query, **values)
            return [{**row, "Node": node, "RunNumber": number} for number, node in ((9, "b"), (8, "a"), (7, "b"))]

    assert reader(Role.OPERATOR, Two()).job("run")["OtherNodes"] == ["a"]  # type: ignore[index]
    assert reader(Role.OPERATOR, Asked()).job("run")["OtherNodes"] == []  # type: ignore[index]
