"""Records that the queue contradicts: kept apart in a table of their own, with the reason, and on no page.

Who has moved a minute ago is on another node than the queue said then. So a record that differs waits there until the
queue has been asked after the record's time. Then it is taken like others, or stays.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from condor_joblens.common.errors import printable
from condor_joblens.hub.ingest.gather import insert_rows
from condor_joblens.hub.ingest.places import CLOCKS, Places, Unsure
from condor_joblens.hub.ingest.records import Post, Row, row_of, take
from condor_joblens.hub.store.client import Store, StoreGone, StoreRefused
from condor_joblens.hub.store.schema import CONTRADICTS, DOUBTED, TAKEN, WAITS

ROWS = 200
"""That are judged at a time: at most this many of 256 KiB each."""

ROUNDS = 10
SAY_SECONDS = 60.0
_NAMED = 5
_KEPT = ("Id", "Type", "Schema", "Node", "Time", "GlobalJobId", "Moment", "Digest", "Whole")


class Doubts:
    """For one thread."""

    def __init__(
        self, places: Places, store: Store, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places, self._store, self._say, self._clock = places, store, say, clock
        self._judged = 0.0  # for which time of the queue all has been judged
        self._why: Counter[str] = Counter()
        self._said = -SAY_SECONDS
        self._error = ""

    def row(self, position: int, line: bytes, record: Mapping[str, Any]) -> Row | None:
        """For the table apart; none: nothing speaks against the record, which has been found to make sense."""
        job = record.get("GlobalJobId")
        if not isinstance(job, str) or not job:
            return None
        moment = float(record["UpdateTime" if record["Type"] in ("sample", "job") else "Time"])
        judged = WAITS
        try:
            why = self._places.contradiction(job, record["Node"], moment)
            if not why:
                return None
            judged = CONTRADICTS
            self._count(why, record)
        except Unsure as error:
            why = str(error)
        kept = {name: record[name] for name in ("Id", "Type", "Schema", "Node", "Time", "GlobalJobId")}
        digest = hashlib.sha256(line).hexdigest()[:32]
        more = {"Moment": moment, "Digest": digest, "Judged": judged, "Why": why, "Whole": line.decode("utf-8")}
        return row_of(position, DOUBTED, {**kept, **more})

    def judge(self) -> None:
        """What waits and can be told by now. What it has taken in part when it ends is judged again, and kept once."""
        known = self._places.time
        if known > self._judged:
            try:
                for _ in range(ROUNDS):
                    if not self._judge_some(known):
                        self._judged = known
                        break
            except (StoreGone, StoreRefused) as error:  # it is judged at the next batch
                if str(error) != self._error:
                    self._say(f"records that wait for the queue can't be judged now: {error}")
                self._error = str(error)
        self.tell()

    def tell(self) -> None:
        """What contradicts, if nothing was said for a while."""
        if self._why and self._clock() >= self._said + SAY_SECONDS:
            self._said = self._clock()
            named = "; ".join(f"{count}: {why}" for why, count in self._why.most_common(_NAMED))
            total = sum(self._why.values())
            self._say(f"warning: {total} records from Kafka contradict the queue, and are kept apart. {named}")
            self._why.clear()

    def _judge_some(self, known: float) -> bool:
        """Whether there may be more. Raises StoreGone, StoreRefused."""
        rows = self._store.ask(
            f"SELECT {', '.join(_KEPT)} FROM {DOUBTED.name} FINAL WHERE Judged = {WAITS} AND Moment < {{then:Float64}} "
            f"ORDER BY Moment LIMIT {ROWS}",
            then=known - CLOCKS,
        )
        taken, judged = Post(), []
        for position, row in enumerate(rows):
            try:
                why = self._places.contradiction(row["GlobalJobId"], row["Node"], row["Moment"])
            except Unsure:
                continue
            if why:
                self._count(why, row)
            else:
                take(taken, position, row["Whole"].encode(), lambda record: "", time.time())
            verdict = {**row, "Judged": CONTRADICTS if why else TAKEN, "Why": why}
            judged.append(row_of(position, DOUBTED, verdict))
        insert_rows(self._store, taken.rows, leave_out=True)
        insert_rows(self._store, judged)
        return len(judged) == ROWS

    def _count(self, why: str, record: Mapping[str, Any]) -> None:
        kind = printable(f"{record['Node']} tells of {record['GlobalJobId']}, but {why}", 300)
        self._why[kind if kind in self._why or len(self._why) < 1000 else "others"] += 1
