"""The rows of all runs, into shared memory."""

from __future__ import annotations

import contextlib
import os
import time

from condor_joblens.agent import measure
from condor_joblens.agent.node import Node
from condor_joblens.shm.ring import EventWriter
from condor_joblens.shm.writer import Writer

NAME = "rows"


class RowPublisher:
    """Publishes the rows, and wakes those who read them."""

    def __init__(self, node: Node, writer: Writer, ring: EventWriter) -> None:
        self._node, self._writer, self._ring = node, writer, ring

    def publish(self) -> None:
        """Publishes all runs whose job is known."""
        runs = self._node.runs.living()
        runs = runs[self._node.runs.state["named"][runs]]
        self._node.runs.rows["sequence"][measure.take_sampled(self._node, runs)] += 1
        now = time.time()
        self._writer.publish_of(self._node.runs.rows, runs, now)
        self._node.ended.publish(now)
        self._ring.wake()

    def remove(self) -> None:
        """Deletes the file: nobody updates it any more."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._node.config.run_dir, NAME))
