"""`joblens-hub relay`: the relay server, for itself or behind the site's TLS proxy; `joblens-hub token` makes a token.

It is any user but root, reads one file, the digests of tokens, and needs nothing of HTCondor. SIGHUP makes it read that
file again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import ssl
import sys
import time
from collections.abc import Sequence

from condor_joblens.common import privilege
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.tokens import ACCESS_POINT, BOTH, NODE, Who, digest, read_tokens
from condor_joblens.relay.server import RelayServer


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joblens-hub", description="What a site runs once.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    relay = commands.add_parser("relay", help="the server to which all relays connect")
    relay.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:8765", help="(127.0.0.1:8765)")
    relay.add_argument("--tokens", metavar="FILE", required=True, help="lines `node|access-point|both NAME SHA256`")
    relay.add_argument("--certificate", metavar="FILE", help="speak TLS itself: its certificate and chain, in PEM")
    relay.add_argument("--key", metavar="FILE", help="the key of the certificate, if that file does not have it")
    token = commands.add_parser("token", help="a new token, and its line for --tokens")
    token.add_argument("role", choices=(NODE, ACCESS_POINT, BOTH))
    token.add_argument("name", help="of a node: its host as HTCondor has it in the names of its slots")
    commands.add_parser("run", help="the hub: records of all nodes, kept, and their pages (the extra `hub`)")
    commands.add_parser("login", help="an address by which your browser logs in to those pages")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in (["run"], ["login"]):  # other programs, with libraries that the relay server need not have
        module = ["condor_joblens.hub", "run"] if given[0] == "run" else ["condor_joblens.hub.login"]
        os.execv(sys.executable, [sys.executable, "-m", *module, *given[1:]])
    options = parser.parse_args(given)
    try:
        return _token(options.role, options.name) if options.command == "token" else _relay(options)
    except (JobLensError, OSError) as error:
        print(f"joblens-hub: {error}", file=sys.stderr)
        return 1


def _token(role: str, name: str) -> int:
    token = secrets.token_urlsafe(32)
    print(f"token, for JOBLENS_RELAY_TOKEN_FILE or JOBLENS_SINK_HUB_TOKEN_FILE there: {token}")
    print(f"line, for the tokens of the server:        {role} {name} {digest(token)}")
    return 0


def _relay(options: argparse.Namespace) -> int:
    """Raises JobLensError, OSError."""
    if os.geteuid() == 0:
        raise JobLensError("a server of the network is not root's: start it as a user that owns nothing")
    privilege.no_new_privileges()
    privilege.not_dumpable()
    host, _, port = options.listen.rpartition(":")
    if not port.isdecimal():
        raise JobLensError(f"{options.listen} is no HOST:PORT")
    tls = None
    if options.certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(options.certificate, options.key)
    server = RelayServer(_tokens(options.tokens), _log)
    asyncio.run(_serve(server, host.strip("[]"), int(port), tls, options.tokens))
    return 0


def _tokens(path: str) -> dict[str, Who]:
    """Raises JobLensError, OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return read_tokens(file.read())


async def _serve(server: RelayServer, host: str, port: int, tls: ssl.SSLContext | None, tokens: str) -> None:
    """Until SIGTERM. Raises OSError."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()

    def read_again() -> None:
        try:
            server.know(_tokens(tokens))
            _log(f"{tokens} was read again")
        except (JobLensError, OSError) as error:
            _log(f"{error}: the tokens stay as they were")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, read_again)
    async with server.start(host, port, tls) as listening:
        _log(f"listens at {listening.sockets[0].getsockname()}, {'with' if tls else 'without'} TLS")
        await stopped.wait()


def _log(message: str) -> None:
    print(time.strftime("%m/%d/%y %H:%M:%S"), message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
