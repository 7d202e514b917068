"""Places for traces that stand: a share for each user."""

from __future__ import annotations

from condor_joblens.agent import trace_places
from condor_joblens.agent.trace_places import Place, in_turn


def places(words: str) -> dict[int, Place]:
    """`aab`: runs 0 and 1 of user a, and run 2 of user b; later ones are less important."""
    return {number: Place(number, whose, (0.0, -float(number))) for number, whose in enumerate(words)}


NEW = 100


def to_go(wanting: Place, having: dict[int, Place]) -> Place | None:
    return trace_places.to_go(wanting, having, having)


def test_who_has_most_gives_way_by_his_least_important_run() -> None:
    gone = to_go(Place(NEW, "b", (9.0, 0.0)), places("aaab"))
    assert gone is not None and gone.number == 2


def test_a_users_own_runs_wait_for_one_another() -> None:
    assert to_go(Place(NEW, "a", (9.0, 0.0)), places("aaaa")) is None
    assert to_go(Place(NEW, "a", (9.0, 0.0)), places("aaab")) is None


def test_nobody_goes_for_one_that_would_have_to_give_the_place_back() -> None:
    assert to_go(Place(NEW, "b", (9.0, 0.0)), places("aab")) is None
    assert to_go(Place(NEW, "c", (9.0, 0.0)), places("ab")) is None
    gone = to_go(Place(NEW, "c", (0.0, 0.0)), places("aabb"))
    assert gone is not None and gone.number == 3


def test_shares_come_to_rest_and_differ_by_one_at_most() -> None:
    having, most = places("a" * 16), 0
    for number in range(1000):
        wanting = Place(NEW + number, "abcde"[number % 5], (0.0, 0.0))
        gone = to_go(wanting, having)
        if gone is not None:
            del having[gone.number]
            having[wanting.number] = wanting
            most = number
    counts = [sum(place.whose == whose for place in having.values()) for whose in "abcde"]
    assert sorted(counts) == [3, 3, 3, 3, 4] and most < 100


def test_one_that_is_over_is_not_sent_away_and_counts() -> None:
    having = places("aab")
    gone = trace_places.to_go(Place(NEW, "c", (9.0, 0.0)), having, {0: having[0], 2: having[2]})
    assert gone is not None and gone.number == 0
    assert trace_places.to_go(Place(NEW, "c", (9.0, 0.0)), having, {2: having[2]}) is None


def test_who_has_least_comes_first() -> None:
    waiting = [Place(NEW + at, whose, (0.0, 0.0)) for at, whose in enumerate("aaabc")]
    assert [place.whose for place in in_turn(waiting, places("ab"))] == ["c", "a", "b", "a", "a"]
