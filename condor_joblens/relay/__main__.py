"""joblens-relay: started by condor_master from DAEMON_LIST on a node or an access point; SIGTERM ends it.

It reads its token as root, and opens the socket of an access point. Then it becomes a user of its own without any
capability: it has the network, and nothing of joblensd's or of joblens-door's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from condor_joblens.common import privilege
from condor_joblens.common.config import Config
from condor_joblens.common.config_parser import parse
from condor_joblens.common.daemon import Daemon, run
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.signals import Stop
from condor_joblens.control import SOCKET
from condor_joblens.relay.local import Local
from condor_joblens.relay.relay import Relay

USER = "joblens-relay"
"""The system user that joblens-relay becomes."""

MOST_TOKEN = 4096


def main() -> int:
    """Runs until SIGTERM. Returns 0, or 1 if it can't run."""
    daemon = Daemon("joblens-relay", "JOBLENS_RELAY", "JobLensRelayLog", "LOG")
    try:
        daemon.read_macros()
        config, problems = parse(daemon.macros)
        daemon.open_log()
        for problem in problems:
            daemon.log.error(problem)
        if not config.relay_url:
            raise JobLensError("JOBLENS_RELAY_URL is not set: name the site's relay server")
        token, listener = token_in(config.relay_token_file), _listener(config)
        _become_own_user()
        relay = Relay(config.relay_url, token, os.path.join(config.run_dir, SOCKET), daemon.log)
        asyncio.run(_serve(daemon, relay, None if listener is None else Local(listener, relay, daemon.log)))
    except Stop:
        daemon.log("stopped")
        return 0
    except (JobLensError, OSError) as error:
        daemon.log.error(f"joblens-relay can't run: {error}")
        return 1
    return 0


async def _serve(daemon: Daemon, relay: Relay, local: Local | None) -> None:
    """Until a signal stops it. Raises Stop."""
    stopped = asyncio.get_running_loop().create_future()

    def signalled() -> None:
        try:
            daemon.signals.take()
        except Stop as stop:
            if not stopped.done():
                stopped.set_exception(stop)

    asyncio.get_running_loop().add_reader(daemon.signals.socket, signalled)
    await asyncio.gather(stopped, relay.run(), *([] if local is None else [local.run()]))


def token_in(path: str) -> str:
    """The token in a file of root's alone. Raises JobLensError, never with the token in it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            status, data = os.fstat(opened.fileno()), opened.read(MOST_TOKEN)
    except OSError as error:
        raise JobLensError(f"{path}: {error.strerror}: put this machine's token there") from None
    if status.st_mode & 0o077:
        raise JobLensError(f"{path} is not its owner's alone: chmod 600")
    token = data.decode("ascii", "replace").strip()
    if not token.isascii() or not token.isprintable() or not token:
        raise JobLensError(f"{path} has no token: write it on one line")
    return token


def _listener(config: Config) -> socket.socket | None:
    """On an access point. Raises OSError."""
    if not config.relay_socket:
        return None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(config.relay_socket)
    listener.bind(config.relay_socket)
    os.chmod(config.relay_socket, 0o666)
    listener.listen(64)
    return listener


def _become_own_user() -> None:
    """Raises JobLensError, OSError."""
    if os.geteuid() == 0:
        found = privilege.user(USER)
        if found is None:
            raise JobLensError(f"there is no user {USER} on this machine: run systemd-sysusers, or make install again")
        privilege.become(found.pw_uid, found.pw_gid)
    privilege.no_new_privileges()
    privilege.not_dumpable()


if __name__ == "__main__":
    run(main)
