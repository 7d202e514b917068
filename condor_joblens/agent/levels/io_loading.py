"""Level io is loaded while joblensd goes on with its work; the runs that wait for it then get it at once."""

from __future__ import annotations

import selectors
import socket

from condor_joblens.agent.levels import level_arbiter
from condor_joblens.agent.node import Node


class Loading:
    """Hears of the thread that loads level io."""

    def __init__(self, node: Node, selector: selectors.BaseSelector) -> None:
        """From now on level io is loaded aside."""
        self._node = node
        self._socket, write = socket.socketpair()
        node.tracer.load_aside(lambda: write.send(b"."))
        selector.register(self._socket, selectors.EVENT_READ, self._loaded)

    def _loaded(self) -> None:
        self._socket.recv(1)
        level_arbiter.try_again(self._node)
        level_arbiter.settle(self._node)
