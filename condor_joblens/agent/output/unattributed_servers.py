"""A file that lists what reached file servers for nobody who is counted, for the exporter and `joblens top`.

With the rows of jobs it is all that this node asked of each server.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

import numpy as np

from condor_joblens.agent.node import Node
from condor_joblens.common import files
from condor_joblens.model.servers import NUMBERS, SERVER, Scope, records
from condor_joblens.sample.server_lists import numbers_of

NAME = "servers"
MOST = 64
"""Servers that are listed; what was asked of all others is the last entry, which has no name."""


class UnattributedServers:
    """Writes the file, and remembers what is in it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._written = b""  # the totals

    @property
    def _path(self) -> str:
        return os.path.join(self._node.config.run_dir, NAME)

    def publish(self) -> None:
        """Writes the file again if something has been asked. A failure costs this file only."""
        tracer = self._node.tracer
        totals = tracer.unattributed()
        if totals.tobytes() == self._written or not totals.any():
            return
        lists = self._node.collectors.servers.lists
        lists.read()
        entries = lists.unattributed()
        totals = tracer.unattributed()  # after the entries, which are shares of them
        facts = {"Time": time.time(), "Unattributed": listing(entries, numbers_of(totals).sum(axis=0))}
        self._written = totals.tobytes()
        with contextlib.suppress(OSError):
            files.write(self._path, json.dumps(facts).encode())

    def remove(self) -> None:
        """Deletes the file: nothing is counted any more."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def listing(entries: np.ndarray, totals: np.ndarray) -> list[dict[str, Any]]:
    """The MOST greatest of `entries` (SERVER, shape (n,), the greatest first), and what they lack of `totals`."""
    listed: np.ndarray = np.zeros(min(len(entries), MOST) + 1, SERVER)
    listed[:-1] = entries[:MOST]
    listed["scope"][-1] = Scope.REST
    for position, name in enumerate(NUMBERS):
        listed[name][-1] = max(0.0, totals[position] - listed[name][:-1].sum())
    return records(listed)
