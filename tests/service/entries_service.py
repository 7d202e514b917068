"""A real server of entries, and a hub that speaks for its people there."""

from __future__ import annotations

import asyncio
import contextlib
import pwd
import threading
from collections.abc import Iterator
from pathlib import Path

import hub_server
import pytest
from hub_server import Hub

from condor_joblens.common.open_socket import listening_at
from condor_joblens.relay.control import Control
from condor_joblens.relay.entry_store import EntryStore
from condor_joblens.relay.roles import read_roles
from condor_joblens.relay.server import RelayServer

USER = "news"
"""The hub's: the server of entries knows nobody by the name of nobody."""


class Entered(Hub):
    """A hub that knows the server of entries."""

    entries: EntryStore  # what that keeps, once it runs

    def command(self) -> list[str]:
        return [*super().command(), "--control", str(self.folder / "sockets/control.sock")]


@contextlib.contextmanager
def as_somebody() -> Iterator[None]:
    """Hubs that are made meanwhile are of a user whom the server of entries knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub_server, "USER", pwd.getpwnam(USER).pw_uid)
        yield


@contextlib.contextmanager
def entry_server(hub: Hub, folder: Path) -> Iterator[EntryStore]:
    """What it keeps in this new folder, as long as it runs."""
    folder.mkdir()
    found, ready, loop = EntryStore(str(folder)), threading.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        listener = listening_at(str(hub.folder / "sockets/control.sock"))
        people = Control(listener, found, read_roles(f"hub {USER}\n"), RelayServer({}, print), print)
        loop.call_soon(ready.set)
        await people.run()

    task = loop.create_task(serve())

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        yield found
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(60)
