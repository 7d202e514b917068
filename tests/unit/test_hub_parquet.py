"""What the store is given to write as Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import cast

from condor_joblens.hub.store.client import MOMENT, Store
from condor_joblens.hub.web.parquet import written


class Given:
    """In the store's place: keeps what it is to write."""

    def converted(self, columns: Mapping[str, str], lines: Iterable[bytes], form: str) -> bytes:
        self.columns, self.rows = columns, [json.loads(line) for line in lines]
        return b""


def test_a_time_that_a_node_says_and_that_is_none_is_absent() -> None:
    given = Given()
    said = [1.7e9, 0, 1e308, -1e308, 1e18, -5, 1e12, None, "now"]
    written(cast(Store, given), [{"StartTime": one} for one in said])
    assert given.columns == {"StartTime": MOMENT}
    assert [row["StartTime"] for row in given.rows] == [1.7e9, 0, *[None] * 7], "or the store refuses the whole file"
