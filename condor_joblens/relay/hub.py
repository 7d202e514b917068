"""`joblens-hub relay`: the relay server, for itself or behind the site's TLS proxy; `joblens-hub token` makes a token.

It is any user but root, reads one file, the digests of tokens, and needs nothing of HTCondor. SIGHUP makes it read that
file again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import pwd
import secrets
import signal
import socket
import ssl
import sys
import time
from collections.abc import Sequence

from condor_joblens.common import descriptors, privilege
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.open_socket import listening_at, streams_at
from condor_joblens.common.tokens import ACCESS_POINT, BOTH, NODE, REMOTE, Who, digest, read_tokens
from condor_joblens.common.user_names import nobodys
from condor_joblens.control.entries import SOCKET
from condor_joblens.relay.control import Control
from condor_joblens.relay.entry_store import EntryStore
from condor_joblens.relay.roles import Roles, read_roles
from condor_joblens.relay.server import RelayServer, tls_by

MOST_FILES = 1 << 16
"""Descriptors: one for each node and more."""

_OTHERS = {
    "run": ["condor_joblens.hub", "run"],
    "login": ["condor_joblens.hub.login"],
    "demo": ["condor_joblens.hub.demo"],
    "audit": ["condor_joblens.hub.access_command", "audit"],
    **{word: ["condor_joblens.hub.care_command", word] for word in ("backup", "restore", "migrate", "forget")},
    "rules": ["condor_joblens.hub.rules_command"],
}
"""Commands that are other programs, with libraries that the relay server need not have."""

_OF_PEOPLE = ("add", "list", "end")
"""What `token` can do with the tokens of people, which the hub keeps; those of machines stand in a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joblens-hub", description="What a site runs once.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    relay = commands.add_parser("relay", help="the server to which all relays connect")
    relay.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:8765", help="(127.0.0.1:8765)")
    lines = "lines `node|access-point|both|remote NAME SHA256`, or `certificate`"
    relay.add_argument("--tokens", metavar="FILE", required=True, help=lines)
    relay.add_argument("--certificate", metavar="FILE", help="speak TLS itself: its certificate and chain, in PEM")
    relay.add_argument("--key", metavar="FILE", help="the key of the certificate, if that file does not have it")
    proxy = relay.add_argument_group(
        "certificates", "machines that the site's TLS proxy knows by theirs: docs/admin.md"
    )
    proxy.add_argument("--proxy", metavar="SOCKET", help="where that proxy comes to; without it: tokens alone")
    proxy.add_argument("--proxy-user", metavar="NAME", help="its user, who alone is believed about certificates")
    control = relay.add_argument_group("entries", "who is watched, for a time: docs/admin.md")
    control.add_argument("--entries", metavar="FOLDER", help="where they are kept, and their key; without it: none")
    control.add_argument("--roles", metavar="FILE", help="who of this machine may say what; without it: root alone")
    help = f"where `joblens control` asks ({SOCKET})"
    control.add_argument("--control", metavar="SOCKET", default=SOCKET, help=help)
    token = commands.add_parser(
        "token", help="a machine's new token, and its line for --tokens; token add, list and end: tokens of people"
    )
    token.add_argument("role", choices=(NODE, ACCESS_POINT, BOTH, REMOTE))
    name = "of a node: its host as HTCondor has it in the names of its slots; of a remote: what tells who that is"
    token.add_argument("name", help=name)
    commands.add_parser("run", help="the hub: records of all nodes, kept, and their pages (the extra `hub`)")
    commands.add_parser("login", help="an address by which your browser logs in to those pages")
    commands.add_parser("audit", help="who logged in to the hub, who has tokens, and what administrators looked at")
    commands.add_parser("backup", help="copies all that the hub keeps, while it runs")
    commands.add_parser("restore", help="makes a hub's folder of such a copy")
    commands.add_parser("migrate", help="makes what an older hub has kept as this one keeps it")
    commands.add_parser("forget", help="takes a person out of the hub")
    commands.add_parser("rules", help="what a file of rules would have done in the last month")
    commands.add_parser("demo", help="such a hub for `make demo`, with three people")
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] and given[0] in _OTHERS:
        os.execv(sys.executable, [sys.executable, "-m", *_OTHERS[given[0]], *given[1:]])
    if given[:1] == ["token"] and given[1:2] and given[1] in _OF_PEOPLE:
        os.execv(sys.executable, [sys.executable, "-m", "condor_joblens.hub.access_command", *given])
    options = parser.parse_args(given)
    try:
        return _token(options.role, options.name) if options.command == "token" else _relay(options)
    except (JobLensError, OSError) as error:
        print(f"joblens-hub: {error}", file=sys.stderr)
        return 1


def _token(role: str, name: str) -> int:
    token = secrets.token_urlsafe(32)
    where = "~/.joblens/relay.token" if role == REMOTE else "JOBLENS_RELAY_TOKEN_FILE or JOBLENS_SINK_HUB_TOKEN_FILE"
    print(f"token, for {where} there: {token}")
    print(f"line, for the tokens of the server:        {role} {name} {digest(token)}")
    return 0


def _relay(options: argparse.Namespace) -> int:
    """Raises JobLensError, OSError."""
    if os.geteuid() == 0:
        raise JobLensError("a server of the network is not root's: start it as a user that owns nothing")
    privilege.no_new_privileges()
    privilege.not_dumpable()
    descriptors.have_room(MOST_FILES)
    host, _, port = options.listen.rpartition(":")
    if not port.isdecimal():
        raise JobLensError(f"{options.listen} is no HOST:PORT")
    tls = tls_by(options.certificate, options.key) if options.certificate else None
    server = RelayServer(_tokens(options.tokens), _log)
    proxy = _proxy(options)
    control = _control(server, options) if options.entries else None
    asyncio.run(_serve(server, host.strip("[]"), int(port), tls, options, control, proxy))
    return 0


def _proxy(options: argparse.Namespace) -> tuple[socket.socket, int] | None:
    """The socket for the site's proxy, and its user id. Raises JobLensError, OSError."""
    if not options.proxy:
        return None
    try:
        uid = pwd.getpwnam(options.proxy_user or "").pw_uid
    except KeyError:
        raise JobLensError("--proxy needs --proxy-user, a user of this machine: nobody else is believed") from None
    if uid in nobodys():  # as whom users of another namespace appear
        raise JobLensError(f"--proxy-user {options.proxy_user} can be anybody: let the proxy be a user of its own")
    return streams_at(options.proxy), uid


def _control(server: RelayServer, options: argparse.Namespace) -> Control:
    """Raises JobLensError, OSError."""
    try:
        store = EntryStore(options.entries)
    except ImportError as error:
        raise JobLensError(f"--entries: {error.name or error} is missing: make install EXTRAS=relay") from None
    control = Control(listening_at(options.control), store, _roles(options.roles), server, _log)
    _log(f"entries are signed by {store.public_key}; people say them at {options.control}")
    return control


def _roles(path: str | None) -> Roles:
    """Raises JobLensError, OSError."""
    if path is None:
        return read_roles("")
    with open(path, encoding="utf-8", errors="replace") as file:
        return read_roles(file.read())


def _tokens(path: str) -> dict[str, Who]:
    """Raises JobLensError, OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return read_tokens(file.read())


async def _serve(
    server: RelayServer,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    options: argparse.Namespace,
    control: Control | None,
    proxy: tuple[socket.socket, int] | None,
) -> None:
    """Until SIGTERM. Raises OSError."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()

    def read_again() -> None:
        try:
            server.know(_tokens(options.tokens))
            _log(f"{options.tokens} was read again")
            if control is not None:
                control.roles = _roles(options.roles)
        except (JobLensError, OSError) as error:
            _log(f"{error}: what it says stays as it was")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, read_again)
    async with contextlib.AsyncExitStack() as serving:
        listening = await serving.enter_async_context(server.start(host, port, tls))
        if proxy is not None:
            await serving.enter_async_context(server.start_for_proxy(*proxy))
            _log(f"{options.proxy_user} at {options.proxy} is believed about certificates")
        _log(f"listens at {listening.sockets[0].getsockname()}, {'with' if tls else 'without'} TLS")
        tasks = [asyncio.create_task(server.tell_sums())]
        tasks += [asyncio.create_task(control.run())] if control is not None else []
        await stopped.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    server.close_log()


def _log(message: str) -> None:
    print(time.strftime("%m/%d/%y %H:%M:%S"), message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
