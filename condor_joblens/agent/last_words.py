"""A socket for what Pythons of jobs say at their begin and their end. They wait for it to be heard.

Its requests have a share of joblensd's time of their own, as has each user. So what a user asks for at the control
socket does not delay the end of his job. And a flood of ends keeps no job waiting that starts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from condor_joblens.agent.node import Node
from condor_joblens.agent.throttle import Throttle, TimeShare, working_time
from condor_joblens.control import LAST_WORDS
from condor_joblens.control.server import Commands, ControlServer
from condor_joblens.control.stream import Stream
from condor_joblens.control.verbs import Refused, Request

VERBS = frozenset({"raised", "variables", "python"})

SHARE_OF_A_USER, SAVED_OF_A_USER = 0.04, 0.25
"""As at the control socket: less than half of what all have together."""


class LastWords:
    """Serves them for a share of joblensd's time."""

    def __init__(self, node: Node, throttle: Throttle, commands: Commands) -> None:
        """Listens. Raises JobLensError if another joblensd does."""
        self._throttle = throttle
        path = os.path.join(node.config.run_dir, LAST_WORDS)
        self._server = ControlServer(path, throttle.selector, _Only(commands), node.log, _share_of_a_user, working_time)

    def fileno(self) -> int:
        """A descriptor (epoll) that is readable while somebody waits to be accepted."""
        return self._server.callers.fileno()

    def timeout(self, now: float) -> float:
        """Seconds until a user has had to wait long enough; `now` is time.monotonic()."""
        return 3600.0 if self._throttle.is_paused else self._server.timeout(now)

    def resume(self) -> None:
        """Serves those users, and closes the connections that have waited too long."""
        self._throttle.run(self._resume)

    def _resume(self) -> None:
        now = time.monotonic()
        if not self._throttle.is_paused:
            self._server.resume(now)
        self._server.expire(now)

    def close(self) -> None:
        """Stops listening."""
        self._throttle.run(self._server.close)


class _Only:
    """The commands that these verbs have, and no others."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def answer(self, request: Request) -> Mapping[str, str]:
        if request.verb not in VERBS:
            raise Refused("only last words are heard at this socket")
        return self._commands.answer(request)

    def stream(self, request: Request, stream: Stream) -> None:
        raise Refused("only last words are heard at this socket")


def _share_of_a_user() -> TimeShare:
    return TimeShare(SAVED_OF_A_USER, SHARE_OF_A_USER)
