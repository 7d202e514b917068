"""Many posts, few inserts: a store takes a thousand rows at the price of ten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from condor_joblens.hub.ingest.records import Post, Row
from condor_joblens.hub.store.client import Store, StoreGone, StoreRefused
from condor_joblens.hub.store.schema import Table

MOST_ROWS = 20_000
"""Of an insert. A part of the store's has 400 columns, which cost as much for ten rows as for a thousand."""

MOST_BYTES = 48 << 20
"""Of an insert's rows, from which on it takes no further post."""

MOST_WAITING = 64 << 20
"""Bytes of rows that wait, from which on no further post is worked on."""

LEAST_WAITING = 16 << 20
"""The same, of a store that is slow: a post has no more."""

AHEAD = 4.0
"""Seconds in which the store is to have what waits, as quick as it was last. Nodes wait for an answer for ten."""

WAIT = 0.2
"""Seconds for which others' posts are waited for, at least. As long as the last insert took is waited, too: so a store
that is busy has few and large ones."""

LONGEST_WAIT = 1.0
"""Pages are no further behind for it."""

MOST_INSERTS = 100
"""Of a post with rows that the store refuses, to find them: others wait meanwhile. What is left then is refused."""


@dataclass(eq=False)
class _Waiting:
    post: Post
    size: int
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Gatherer:
    """Rows wait here until they are kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._size = 0  # bytes of what waits, and of what is being inserted
        self._took = 0.0  # seconds of the last insert
        self._most = MOST_WAITING

    @property
    def is_full(self) -> bool:
        """Whether so much waits that the next post had better come later."""
        return self._size >= self._most

    async def keep(self, post: Post) -> None:
        """Returns when the store has the post's rows; those that it refuses are in `refused` then. Raises StoreGone."""
        waiting = _Waiting(post, post.size)
        self._size += waiting.size
        self._queue.put_nowait(waiting)
        await waiting.done

    async def run(self) -> None:
        """For ever."""
        while True:
            waiting = await self._gathered()
            began, size = asyncio.get_running_loop().time(), sum(one.size for one in waiting)
            try:
                await self._insert(waiting)
            finally:
                self._size -= size
            self._took = asyncio.get_running_loop().time() - began
            quick = int(AHEAD * size / max(self._took, 1e-3))
            self._most = min(MOST_WAITING, max(LEAST_WAITING, quick))

    async def _gathered(self) -> list[_Waiting]:
        """The posts of an insert."""
        waiting = [await self._queue.get()]
        rows, size = len(waiting[0].post.rows), waiting[0].size
        end = asyncio.get_running_loop().time() + min(LONGEST_WAIT, max(WAIT, self._took))
        while rows < MOST_ROWS and size < MOST_BYTES:
            try:
                left = end - asyncio.get_running_loop().time()
                one = await asyncio.wait_for(self._queue.get(), max(0.0, left))
            except asyncio.TimeoutError:
                break
            waiting.append(one)
            rows, size = rows + len(one.post.rows), size + one.size
        return waiting

    async def _insert(self, waiting: Sequence[_Waiting]) -> None:
        try:
            try:
                await asyncio.to_thread(insert_rows, self._store, [row for one in waiting for row in one.post.rows])
            except StoreRefused:  # a row is wrong: each post by itself, so that others don't pay
                for one in waiting:
                    await asyncio.to_thread(_insert_halving, self._store, one.post)
            error: Exception | None = None
        except Exception as reason:  # whatever it is, nobody is told that his rows are kept
            error = reason if isinstance(reason, StoreGone) else StoreGone(f"the hub failed: {reason!r}")
        for one in waiting:
            if one.done.cancelled():  # who posted has gone away
                continue
            if error is None:
                one.done.set_result(None)
            else:
                one.done.set_exception(error)


def insert_rows(store: Store, rows: Sequence[Row], leave_out: bool = False) -> None:
    """Each into its table; they are kept when it returns. leave_out: but those that the store can't take.

    Raises StoreGone, StoreRefused.
    """
    tables: dict[str, tuple[Table, list[bytes], set[tuple[str, ...]]]] = {}
    for row in rows:
        found = tables.get(row.table.name)
        if found is None:
            found = tables[row.table.name] = (row.table, [], set())
        found[1].append(row.line)
        found[2].add(row.names)
    for table, lines, names in tables.values():
        store.insert(table, lines, leave_out, frozenset().union(*names))


def _insert_halving(store: Store, post: Post) -> None:
    """One bad row must not take all others with it. What is inserted twice so is kept once. Raises StoreGone."""
    left, inserts = [post.rows], 0
    while left:
        rows, inserts = left.pop(), inserts + 1
        if inserts > MOST_INSERTS:
            post.refused.update((row.position, "too many records of this post are wrong") for row in rows)
            continue
        try:
            insert_rows(store, rows)
        except StoreRefused as error:
            half = len(rows) // 2
            if half:
                left += [rows[half:], rows[:half]]
            else:
                post.refused[rows[0].position] = str(error)
