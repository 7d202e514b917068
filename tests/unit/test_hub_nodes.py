"""Which nodes are well, as the page of nodes says it."""

from __future__ import annotations

from typing import Any

import pytest

from condor_joblens.hub.web.nodes import judged

NOW = 1e9
WELL: dict[str, Any] = {
    "runs": 3,
    "hanging": 0,
    "ended": 10,
    "failed": 0,
    "failed_clusters": 0,
    "lost": 0,
    "told": NOW - 10,
}
WELL["claimed_cores"] = 0


class Viewer:
    """As much of a reader as a judgement needs."""

    def __init__(self, sees_others: bool) -> None:
        self.now, self.sees_others = NOW, sees_others


def said(sees_others: bool = True, elsewhere: tuple[int, int] = (1000, 10), **numbers: Any) -> tuple[str, str]:
    """elsewhere: how many ended and failed there."""
    viewer: Any = Viewer(sees_others)
    found = judged("n", {**WELL, **numbers}, *elsewhere, viewer)
    return found["health"], found["why"]


@pytest.mark.parametrize(
    ("numbers", "word", "why"),
    [
        ({}, "well", ""),
        ({"failed": 4, "ended": 4, "failed_clusters": 4}, "well", ""),
        ({"failed": 9, "failed_clusters": 2}, "well", ""),
        ({"failed": 7, "failed_clusters": 3}, "well", ""),
        ({"failed": 8, "failed_clusters": 3}, "failing", "8 of 10 jobs of 3 clusters failed; elsewhere 1 % did"),
        ({"told": NOW - 301}, "unknown", "no word of it for 5 min"),
        ({"told": None}, "unknown", "its exporter has told nothing of itself for a day"),
        ({"lost": 5}, "suspect", "5 records were lost in the last hour, as it declares"),
        ({"hanging": 1}, "suspect", "1 of its jobs seems to hang"),
        ({"failed": 10, "failed_clusters": 3, "told": None}, "failing", "10 of 10 jobs of 3 clusters failed; "
                                                                         "elsewhere 1 % did"),
    ],
)  # fmt: skip
def test_a_node_has_a_word_with_its_reason(numbers: dict[str, Any], word: str, why: str) -> None:
    assert said(**numbers) == (word, why)


def test_a_node_is_not_blamed_for_what_fails_everywhere() -> None:
    word, why = said(elsewhere=(100, 50), failed=10, failed_clusters=5)
    assert word == "suspect" and why.endswith("elsewhere 50 % did")


def test_without_other_nodes_there_is_nothing_to_compare_with() -> None:
    word, why = said(elsewhere=(0, 0), failed=10, failed_clusters=5)
    assert (word, why) == ("failing", "10 of 10 jobs of 5 clusters failed")


def test_a_user_learns_nothing_of_silence() -> None:
    """Whether a node tells of itself is the operator's business."""
    assert said(sees_others=False, told=None) == ("well", "")
