"""Changes of rows that are there: the engine works on them by itself."""

from __future__ import annotations

import time

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.store.client import Store

_POLL = 0.1


def wait_until_done(store: Store, table: str) -> None:
    """Until all changes of a table are done. Raises JobLensError with why one can't be."""
    asked = "SELECT latest_fail_reason AS why FROM system.mutations WHERE table = {table:String} AND NOT is_done"
    while rows := store.ask(asked, table=table):
        for row in rows:
            if row["why"]:
                raise JobLensError(f"the store can't change rows of {table}: {row['why'][:300]}")
        time.sleep(_POLL)
