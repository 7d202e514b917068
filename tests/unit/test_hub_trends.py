"""What the page of trends says of sums: without a store."""

from __future__ import annotations

from typing import Any

import pytest

from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.trend_page import asked_trends, dress_trends
from condor_joblens.hub.web.trends import Asked, grew, sums_of

ROW = {
    **{"Runs": 40, "Failed": 10, "CpuSeconds": 7200.0, "AskedCpuSeconds": 14400.0},
    **{"MemoryByteSeconds": 1e9, "AskedMemoryByteSeconds": 4e9, "GreatestBytes": 5 << 30},
}


def test_hours_are_of_cores_and_shares_are_of_what_was_asked_for() -> None:
    found = sums_of(ROW)
    assert (found["used"], found["asked"], found["unused"]) == (2.0, 4.0, 2.0)
    assert (found["efficiency"], found["memory_efficiency"], found["share"]) == (0.5, 0.25, 0.25)


def test_what_was_not_measured_is_no_number() -> None:
    found = sums_of(dict.fromkeys(ROW, 0))
    assert found["efficiency"] is found["memory_efficiency"] is found["share"] is found["greatest_bytes"] is None


def test_who_uses_more_than_he_asked_for_wastes_nothing() -> None:
    assert sums_of({**ROW, "CpuSeconds": 99999.0})["unused"] == 0.0


@pytest.mark.parametrize(
    "runs, failed, runs_before, failed_before, expected",
    [
        (100, 20, 100, 5, True),
        (100, 20, 100, 0, True),
        (100, 20, 100, 15, False),  # not twice as many
        (1000, 30, 1000, 1, False),  # two points and more, but not five
        (10, 9, 10, 0, False),  # too few
        (100, 20, 0, 0, False),  # nothing to compare with
    ],
)
def test_failures_grew(runs: int, failed: int, runs_before: int, failed_before: int, expected: bool) -> None:
    now = {"runs": runs, "failed": failed, "share": failed / runs}
    before = {
        "runs": runs_before,
        "failed": failed_before,
        "share": failed_before / runs_before if runs_before else None,
    }
    assert grew(now, before) == expected
    assert not grew(now, None)


def test_times_are_whole_hours_that_are_over() -> None:
    assert Asked("owner", 1, "runs").bounds(86400.0 * 10 + 1800) == (86400 * 8, 86400 * 9, 86400 * 10)


def test_an_address_says_which_sums() -> None:
    assert asked_trends({}) == Asked("owner", 7, "unused")
    given = {"by": "node", "days": "30", "sort": "failed", "owner": "alice", "schedd": "ap1", "other": "x"}
    assert asked_trends(given) == Asked("node", 30, "failed", (("owner", "alice"), ("schedd", "ap1")))


@pytest.mark.parametrize(
    "given, why",
    [
        ({"by": "Owner; DROP"}, "by is one of owner, group"),
        ({"days": "8"}, "days is one of 1, 7"),
        ({"sort": "name"}, "sort is one of unused"),
        ({"vo": "x" * 301}, "vo has at most 300 characters"),
    ],
)
def test_a_wrong_address_is_refused_in_a_line(given: dict[str, str], why: str) -> None:
    with pytest.raises(WrongRequest, match=why):
        asked_trends(given)


def found(**more: Any) -> dict[str, Any]:
    row = {
        "name": "alice@ap1",
        "key": {"owner": "alice", "schedd": "ap1"},
        **sums_of(ROW),
        "before": None,
        "grew": False,
    }
    step = {"begin": 0, "until": 86400, **sums_of(ROW)}
    whole = {**sums_of(ROW), "before": None, "grew": False}
    return {
        **{"by": "owner", "days": 7, "begin": 0, "until": 7 * 86400, "time": 1.0, "before_begin": None},
        **{"rows": [row], "is_cut": False, "whole": whole, "site": None, "whose": "", "steps": [step] * 7, **more},
    }


def test_each_row_leads_to_more_of_it_and_each_chip_back() -> None:
    asked = Asked("owner", 7, "unused", (("vo", "cms"),))
    dressed = dress_trends(asked, found())
    assert dressed["rows"][0]["url"] == "?by=node&days=7&sort=unused&vo=cms&owner=alice&schedd=ap1"
    assert dressed["chips"] == [("vo cms", "?by=owner&days=7&sort=unused")]
    assert dressed["bars"][0]["ended_url"] == "/jobs?state=ended&vo=cms&since=0.000&until=86400.000"


def test_sums_are_called_after_those_whose_they_are() -> None:
    asked = Asked("owner", 7, "unused")
    said = [dress_trends(asked, found(rows=[], whose=whose))["whose"] for whose in ("", "groups", "own")]
    assert said == ["All of these", "Your jobs and your groups'", "Your jobs"]


def test_a_row_without_a_name_leads_nowhere() -> None:
    row = {"name": "", "key": {"vo": ""}, **sums_of(ROW), "before": None, "grew": False}
    assert dress_trends(Asked("vo", 7, "unused"), found(rows=[row]))["rows"][0]["url"] == ""
