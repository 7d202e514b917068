"""`joblens-hub relay`: the relay server, as any user, behind the site's TLS proxy; `joblens-hub token` makes a token.

It reads one file, the tokens' digests, and needs nothing of HTCondor.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import secrets
import signal
import sys
import time
from collections.abc import Sequence

from condor_joblens.common.errors import JobLensError
from condor_joblens.relay.server import ACCESS_POINT, NODE, RelayServer, read_tokens


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joblens-hub", description="What a site runs once, for commands from afar.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    relay = commands.add_parser("relay", help="the server to which all relays connect")
    relay.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:8765", help="(127.0.0.1:8765)")
    relay.add_argument("--tokens", metavar="FILE", required=True, help="lines `node|access-point NAME SHA256`")
    token = commands.add_parser("token", help="a new token, and its line for --tokens")
    token.add_argument("role", choices=(NODE, ACCESS_POINT))
    token.add_argument("name", help="of a node: its host as HTCondor has it in the names of its slots")
    options = parser.parse_args(arguments)
    try:
        return _token(options.role, options.name) if options.command == "token" else _relay(options)
    except (JobLensError, OSError) as error:
        print(f"joblens-hub: {error}", file=sys.stderr)
        return 1


def _token(role: str, name: str) -> int:
    token = secrets.token_urlsafe(32)
    print(f"token, for JOBLENS_RELAY_TOKEN_FILE there: {token}")
    print(f"line, for the tokens of the server:        {role} {name} {hashlib.sha256(token.encode()).hexdigest()}")
    return 0


def _relay(options: argparse.Namespace) -> int:
    """Raises JobLensError, OSError."""
    with open(options.tokens, encoding="utf-8") as file:
        tokens = read_tokens(file.read())
    host, _, port = options.listen.rpartition(":")
    if not port.isdecimal():
        raise JobLensError(f"{options.listen} is no HOST:PORT")
    asyncio.run(_serve(RelayServer(tokens, _log), host.strip("[]"), int(port)))
    return 0


async def _serve(server: RelayServer, host: str, port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with server.start(host, port) as listening:
        _log(f"listens at {listening.sockets[0].getsockname()}")
        await stopped.wait()


def _log(message: str) -> None:
    print(time.strftime("%m/%d/%y %H:%M:%S"), message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
