"""What the hub's pages ask the store: without a store."""

from __future__ import annotations

import json
from urllib.parse import quote

from condor_joblens.hub.web.reads import ROWS, _portions


def test_names_of_runs_are_asked_for_in_lines_that_the_store_takes() -> None:
    usual = [f"ap1.example.org#{number}.0#1700000000#1" for number in range(ROWS)]
    assert _portions(usual) == [usual] and _portions([]) == []
    for hostile in ("\\" * 300, "#" * 700, "\u00e9" * 300, '"' * 100):
        portions = _portions([hostile] * ROWS)
        assert sum(map(len, portions)) == ROWS
        for names in portions:
            assert len(quote(json.dumps(names).replace("\\", "\\\\"), safe="")) < 40_000
    assert _portions(["x" * 100_000, "y"]) == [["y"]], "what fits into no question keeps no other from it"
