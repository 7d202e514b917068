"""joblens-relay: started by condor_master from DAEMON_LIST on a node or an access point; SIGTERM ends it.

It reads its token as root, and opens the socket of an access point. Then it becomes a user of its own and confines
itself (confine.py): it has the network, and nothing of joblensd's or of joblens-door's.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from condor_joblens.common.config import Config
from condor_joblens.common.config_parser import parse
from condor_joblens.common.daemon import Daemon, run
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.signals import Stop
from condor_joblens.control import SOCKET

if TYPE_CHECKING:
    from condor_joblens.relay.local import Local
    from condor_joblens.relay.relay import Relay

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
        _run(daemon, config)
    except Stop:
        daemon.log("stopped")
        return 0
    except ImportError as error:
        daemon.log.error(f"joblens-relay can't run: {error.name or error} is missing: make install EXTRAS=relay")
    except (JobLensError, OSError) as error:
        daemon.log.error(f"joblens-relay can't run: {error}")
    return 1


def _run(daemon: Daemon, config: Config) -> None:
    """Until a signal stops it. Raises Stop, JobLensError, OSError, ImportError."""
    from condor_joblens.common.open_socket import listening_at
    from condor_joblens.relay.confine import confine
    from condor_joblens.relay.local import Local
    from condor_joblens.relay.relay import Relay

    tls = tls_for(config.relay_url, config.relay_ca_file)
    token = ""
    if config.relay_certificate_file:
        show_certificate(tls, config.relay_certificate_file, config.relay_key_file)
    else:
        token = token_in(config.relay_token_file)
    listener = listening_at(config.relay_socket) if config.relay_socket else None  # on a node there is none
    confine(daemon.log)
    joblensd = os.path.join(config.run_dir, SOCKET)
    relay = Relay(config.relay_url, token, joblensd, daemon.log, tls, config.door_afar_socket)
    local = None if listener is None else Local(listener, relay, daemon.log)
    daemon.log(f"runs as user id {os.getuid()}" + (f"; users ask it at {config.relay_socket}" if local else ""))
    asyncio.run(_serve(daemon, relay, local))


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


def tls_for(url: str, ca_file: str, knob: str = "JOBLENS_RELAY_URL") -> ssl.SSLContext | None:
    """How the server is known; None if it is on this machine, and spoken to as it is. Raises JobLensError, OSError.

    The token is sent to the server, so it must be known who that is, and nobody may listen. `knob` has the `url`.
    """
    if not url:
        raise JobLensError(f"{knob} is not set: name the site's relay server")
    parts = urlsplit(url)
    if parts.scheme == "wss" and parts.hostname:
        try:
            return ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:
            raise JobLensError(f"JOBLENS_RELAY_CA_FILE: {ca_file}: {error.strerror or error}") from None
    if parts.scheme == "ws" and _is_here(parts.hostname or ""):
        return None
    raise JobLensError(f"{knob} is {url}: write wss://HOST/, or ws://127.0.0.1:PORT/ on the server's machine")


def show_certificate(tls: ssl.SSLContext | None, certificate: str, key: str) -> None:
    """The machine is known by its certificate, not by a token. Raises JobLensError."""
    if tls is None:
        raise JobLensError("JOBLENS_RELAY_CERTIFICATE_FILE needs TLS: write wss://HOST/ as JOBLENS_RELAY_URL")
    try:
        if os.stat(key or certificate).st_mode & 0o077:
            raise JobLensError(f"{key or certificate} is not its owner's alone, and has the key: chmod 600")
        tls.load_cert_chain(certificate, key or None)
    except OSError as error:  # also ssl.SSLError
        raise JobLensError(f"JOBLENS_RELAY_CERTIFICATE_FILE: {certificate}: {error.strerror or error}") from None


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


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


if __name__ == "__main__":
    run(main)
