"""The relay of one person who is elsewhere: the command line starts it, and it ends with that.

    python -m condor_joblens.relay.elsewhere FOLDER URL TOKEN-FILE CA-FILE ACCESS-POINT

In FOLDER, which is his alone, it has two sockets, as an access point has. At the one the door of the access point
answers, and the other one is a relay's. It says READY when it is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys

from websockets.exceptions import WebSocketException

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.open_socket import listening_at
from condor_joblens.control.elsewhere import DOOR_NAME, READY, RELAY_NAME
from condor_joblens.control.frames import FrameError
from condor_joblens.relay.__main__ import tls_for, token_in
from condor_joblens.relay.local import PATIENCE, Local, message_on, refusal, send_end
from condor_joblens.relay.relay import Relay


def main() -> int:
    """Until standard input ends, or the connection does; 1 with the reason on standard error."""
    folder, url, token_file, ca_file, access_point = sys.argv[1:]
    try:
        tls, token = tls_for(url, ca_file, "JOBLENS_RELAY_SERVER"), token_in(token_file)
        door, carrier = (listening_at(os.path.join(folder, name)) for name in (DOOR_NAME, RELAY_NAME))
        asyncio.run(_serve(Relay(url, token, "", _silent, tls), door, carrier, access_point))
    except (JobLensError, OSError, WebSocketException, FrameError, asyncio.TimeoutError) as error:
        print(f"{url}: {printable(str(error) or type(error).__name__, 300)}", file=sys.stderr)
        return 1
    return 0


async def _serve(relay: Relay, door: socket.socket, carrier: socket.socket, access_point: str) -> None:
    """Raises what Relay.once raises, and JobLensError when its connection ends."""
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(0, lambda: None if os.read(0, 1) else gone.set())
    door.setblocking(False)
    connection = loop.create_task(relay.once())
    tasks = [
        connection,
        loop.create_task(gone.wait()),
        loop.create_task(_say_ready(relay)),
        loop.create_task(Local(carrier, relay, _silent).run()),
        loop.create_task(_answer_at(door, relay, access_point)),
    ]
    await asyncio.wait({*tasks[:2]}, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks[1:]:
        task.cancel()
    if connection.done():
        connection.result()
        raise JobLensError("the relay server has ended the connection")
    connection.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _say_ready(relay: Relay) -> None:
    while not relay.is_connected:
        await asyncio.sleep(0.005)
    print(READY, flush=True)


async def _answer_at(door: socket.socket, relay: Relay, access_point: str) -> None:
    """For ever: whoever connects is answered by the door of the access point."""
    loop, going = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    while True:
        connection, _ = await loop.sock_accept(door)
        task = loop.create_task(_answer(connection, relay, access_point))
        going.add(task)
        task.add_done_callback(going.discard)


async def _answer(connection: socket.socket, relay: Relay, access_point: str) -> None:
    with connection, contextlib.suppress(OSError, FrameError, asyncio.TimeoutError):
        try:
            request = await asyncio.wait_for(message_on(connection), PATIENCE)
            answer = await relay.ask(access_point, request)
        except JobLensError as error:
            answer = refusal(f"(said on the way, by nobody whom one could know) {error}")
        await send_end(connection, answer)


def _silent(_: str) -> None:
    """Who asks is told by his command what has failed."""


if __name__ == "__main__":
    sys.exit(main())
