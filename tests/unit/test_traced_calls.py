"""What is kept of a trace can be read again, by older readers too. It is bounded, and what makes no sense refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_samples import BEGUN, calls, content, function, told

from condor_joblens.common.quantile_sketch import MOST_RANGES, QuantileSketch
from condor_joblens.profiles import traced_calls
from condor_joblens.tracing.call_tree import MOST_DEEP, MOST_NODES, ROOT, CallTree

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=8,
)


def test_what_was_told_is_read_again() -> None:
    kept = traced_calls.decode(content())
    assert [each.name for each in kept.functions] == ["main_loop", "fit(int)"]
    assert kept.functions[1].counts["Unwound"] == 1 and kept.functions[0].unseen == 0.25
    assert [(node.parent, node.depth, node.calls) for node in kept.tree] == [(-1, 0, 3), (0, 1, 4)]
    assert [(call.function, call.end, call.seconds, call.depth) for call in kept.calls] == [
        (1, "unwound", None, 1),
        (0, "returned", 0.5, 0),
    ]
    assert (kept.begun, kept.ended, len(kept.notes)) == (BEGUN, BEGUN + 10, 1)


def test_a_reader_skips_what_a_later_version_adds() -> None:
    whole = {**json.loads(content()), "Curves": [1, 2]}
    whole["Functions"][0]["Colour"] = "red"
    whole["Tree"][0].append("more")
    whole["LastCalls"][0] += ["more", 3]
    whole["LastCalls"][1][5] = "suspended"  # an end that this one does not know
    kept = traced_calls.decode(json.dumps(whole).encode())
    assert kept.calls[1].end == "suspended" and len(kept.tree) == 2


def test_another_meaning_has_another_version() -> None:
    with pytest.raises(ValueError, match="version 2: install a newer joblens"):
        traced_calls.decode(json.dumps({**json.loads(content()), "Version": 2}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"Tree": [[0, 0, 1, 0, 0.0]]},  # its own parent
        {"Tree": [[-1, 2, 1, 0, 0.0]]},
        {"Tree": [[at - 1, 0, 1, 0, 0.0] for at in range(traced_calls.MOST_DEEP + 2)]},
        {"LastCalls": [[1.0, 1, 1, 2, None, "returned", 0.1, None, 0]]},
        {"LastCalls": [[1.0, 1]]},
        {"Begun": "now"},
        {"Begun": 1e400},
        {"Functions": [function("f", Calls=-1)]},
        {"Functions": [function("f", Times=[[MOST_RANGES, 1]])]},
        {"Functions": {}},
        {"Format": "another"},
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        traced_calls.decode(json.dumps({**json.loads(content()), **change}).encode())


@given(st.dictionaries(st.sampled_from(sorted(json.loads(content()))), JSON))
def test_whatever_it_is_it_is_read_or_refused(change: dict[str, Any]) -> None:
    try:
        kept = traced_calls.decode(json.dumps({**json.loads(content()), **change}).encode())
    except ValueError:
        return
    assert all(0 <= call.function < len(kept.functions) for call in kept.calls)
    assert all(-1 <= node.parent < number for number, node in enumerate(kept.tree))


def test_of_the_last_calls_there_are_so_many_as_have_room() -> None:
    long = [[float(at), 1, 1, 0, ["x" * 900], "returned", 0.1, None, 0] for at in range(traced_calls.MOST_CALLS)]
    made = traced_calls.encode(told(), long)
    assert len(made) <= traced_calls.MOST_BYTES
    kept = traced_calls.decode(made).calls
    assert kept and kept[-1].time == traced_calls.MOST_CALLS - 1
    assert len(traced_calls.decode(traced_calls.encode(told(), calls() * 2000)).calls) == traced_calls.MOST_CALLS


def test_before_the_last_calls_the_longest_are_kept() -> None:
    kept = traced_calls.LastCalls()
    kept.add([-1.0, 1, 1, 0, None, "entered", None, None, 0])
    for at in range(10_000):
        kept.add([float(at), 1, 1, 0, None, "returned", float(at % 1000) if at % 2 else None, None, 0])
    goes_on, *found = kept.all()
    assert goes_on[5] == "entered"
    last = traced_calls.MOST_CALLS - traced_calls.MOST_LONG
    assert [each[0] for each in found[-last:]] == list(range(10_000 - last, 10_000))
    assert len(found) == traced_calls.MOST_CALLS - 1 and [each[0] for each in found] == sorted(
        each[0] for each in found
    )
    longest = sorted((at % 1000 for at in range(10_000 - last) if at % 2), reverse=True)[: traced_calls.MOST_LONG - 1]
    assert min(each[6] for each in found[:-last]) == longest[-1]


@given(st.lists(st.floats(1, 9e18), min_size=1, max_size=200), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_a_quantile_is_within_five_percent(numbers: list[float], share: float) -> None:
    sketch = QuantileSketch()
    for number in numbers:
        sketch.add(number)
    at_rank = sorted(numbers)[max(1, math.ceil(share * len(numbers))) - 1]
    found = QuantileSketch(sketch.counts()).quantile(share)
    assert found is not None and found == pytest.approx(at_rank, rel=0.05)


def test_sketches_of_parts_add_up_and_an_empty_one_has_no_quantile() -> None:
    one, other = QuantileSketch([[3, 2]]), QuantileSketch([[3, 1], [7, 4]])
    assert QuantileSketch([*one.counts(), *other.counts()]).counts() == [[3, 3], [7, 4]]
    assert QuantileSketch().quantile(0.5) is None


@pytest.mark.parametrize("counts", [[[-1, 1]], [[0, -1]], [[0.5, 1]], [[True, 1]], [[1]], [[1, 2, 3]]])
def test_what_is_no_sketch_is_refused(counts: Any) -> None:
    with pytest.raises(ValueError):
        QuantileSketch(counts)


def test_a_tree_has_each_call_once_or_says_that_it_has_not() -> None:
    tree, node = CallTree(), ROOT
    for _ in range(MOST_DEEP + 10):
        is_folded = tree.folded > 0
        node = tree.enter(node, 1) if not is_folded else ROOT
        tree.folded += is_folded
    assert len(tree.nodes) == MOST_DEEP and tree.folded == 10
    for function_number in range(2 * MOST_NODES):
        tree.enter(ROOT, function_number)
    assert len(tree.nodes) == MOST_NODES
    assert sum(each.calls for each in tree.nodes) + tree.folded == MOST_DEEP + 10 + 2 * MOST_NODES
    tree.end(ROOT, 5)
    tree.unwind(ROOT)
    assert not any(each.ended or each.unwound for each in tree.nodes)
