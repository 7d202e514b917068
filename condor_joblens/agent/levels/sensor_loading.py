"""A thread loads sensors while joblensd goes on with its work; runs that wait for one get it as soon as it is there."""

from __future__ import annotations

import selectors
import socket

from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.levels.level_state import Levels


class SensorLoading:
    """Hears of the thread that loads sensors."""

    def __init__(self, levels: Levels, selector: selectors.BaseSelector) -> None:
        """From now on they are loaded by the thread."""
        self._levels = levels
        self._socket, write = socket.socketpair()
        levels.node.tracer.load_aside(lambda: write.send(b"."))
        selector.register(self._socket, selectors.EVENT_READ, self._loaded)

    def _loaded(self) -> None:
        self._socket.recv(1)
        level_arbiter.retry_unavailable(self._levels)
        level_arbiter.arbitrate(self._levels)
