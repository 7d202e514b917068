"""A trace of two functions, as its process tells it."""

from __future__ import annotations

from typing import Any

from condor_joblens.profiles import traced_calls

BEGUN = 1_700_000_000.0


def function(name: str, **more: Any) -> dict[str, Any]:
    """The sums of a function of which three calls returned, after one, two and four milliseconds."""
    counts = dict.fromkeys(
        ("LeftByJump", "Unwound", "EndNotSeen", "EndUnknown", "BegunBefore", "LostHits", "NotOurs"), 0
    )
    return {
        "Function": name,
        "File": "/home/alice/reco",
        "From": BEGUN + 1,
        "UnseenSeconds": 0.25,
        "Processes": 1,
        "Calls": 3,
        "Returned": 3,
        **counts,
        "TotalSeconds": 0.007,
        "LongestSeconds": 0.004,
        "CoveredSeconds": 9.0,
        "SwitchedOff": False,
        "SwitchesStacks": False,
        "EntriesAlone": False,
        "NotShown": 0,
        "Times": [[145, 1], [153, 1], [160, 1]],
        **more,
    }


def told(*functions: dict[str, Any]) -> dict[str, Any]:
    """All of it; the second function is called by the first."""
    return {
        "Begun": BEGUN,
        "Ended": BEGUN + 10,
        "Notes": ["/home/alice/reco has no function like fti; is it one of these: fit?"],
        "Functions": list(functions) or [function("main_loop"), function("fit(int)", Unwound=1, Calls=4)],
        "Tree": [[-1, 0, 3, 0, 0.007], [0, 1, 4, 1, 0.006]],
        "Folded": 0,
    }


def calls() -> list[list[Any]]:
    """Two calls that ended, the inner one unwound."""
    return [
        [BEGUN + 1.5, 71, 72, 1, ["3", '"run7.root"'], "unwound", None, None, 1],
        [BEGUN + 1.25, 71, 72, 0, None, "returned", 0.5, "17", 0],
    ]


def content() -> bytes:
    """What is kept of it."""
    return traced_calls.encode(told(), calls())
