"""`joblens-hub run`: the hub's processes, the store and what takes records. Each is any user but root.

One process supervises: what ends is started again. The others are this same program with another word.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from condor_joblens.common import privilege
from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.artifacts import Artifacts
from condor_joblens.hub.ingest.kafka_settings import read_settings
from condor_joblens.hub.newer import Newer
from condor_joblens.hub.postgres import Postgres
from condor_joblens.hub.rules.firings import Firings
from condor_joblens.hub.rules.settings import read_file as read_rules
from condor_joblens.hub.store.client import Store, socket_of
from condor_joblens.hub.store.old_names import MOST_MONTHS
from condor_joblens.hub.token_file import TokenFile
from condor_joblens.hub.web.access import Access
from condor_joblens.hub.web.condor_tokens import CondorTokens
from condor_joblens.hub.web.condor_tokens import read_settings as read_condor
from condor_joblens.hub.web.oidc_settings import OidcSettings
from condor_joblens.hub.web.oidc_settings import read_settings as read_oidc
from condor_joblens.hub.web.people import read_people

CHILDREN = ("store", "ingest", "kafka", "collector", "rollups", "rules", "web")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")

_KAFKA_BYTES = 1 << 30
"""Of memory, for what takes records from Kafka: a broker can say anything. It takes 100 MB."""

MOST_WEB = 32
"""Processes of pages: each holds what it shows in memory of its own."""

_HOPELESS = 3
"""The exit code of a process that would say the same again: what is kept is a newer hub's."""

_PAUSE = 1.0
"""Seconds before what ended is started again."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="joblens-hub", description="A site's records: taken from all nodes, and kept."
    )
    parser.add_argument("command", choices=("run", *CHILDREN), help="run: all of them; or one of its processes")
    parser.add_argument(
        "--folder", metavar="FOLDER", type=Path, default=Path("/var/lib/joblens-hub"), help="(%(default)s)"
    )
    parser.add_argument("--store", metavar="ADDRESS", default="", help="https://user@host:port of a ClickHouse server")
    parser.add_argument("--store-password", metavar="FILE", default="", help="its user's password")
    parser.add_argument(
        "--tokens", metavar="FILE", required=True, help="lines `node NAME SHA256`: who may send records"
    )
    parser.add_argument("--records", metavar="HOST:PORT", default="127.0.0.1:8766", help="for nodes (%(default)s)")
    parser.add_argument("--certificate", metavar="FILE", help="nodes speak TLS with it: certificate and chain, in PEM")
    parser.add_argument("--key", metavar="FILE", help="the key of the certificate, if that file does not have it")
    parser.add_argument(
        "--artifact-bytes", metavar="N", type=int, default=10 << 30,
        help="room for profiles, hang reports and traces of all people (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--kafka", metavar="FILE", default="", help="brokers and topics from which records come too")
    parser.add_argument(
        "--collector", metavar="COMMAND", default="",
        help="asks the pool's collector once a minute: condor_status, or 'condor_status -pool HOST'",
    )  # fmt: skip
    parser.add_argument(
        "--names-for", metavar="MONTHS", type=int, default=12, choices=range(MOST_MONTHS + 1),
        help="names of people stay for so long in what is kept, then pseudonyms (%(default)s; 0: they stay)",
    )  # fmt: skip
    parser.add_argument("--rules", metavar="FILE", default="", help="whom the hub tells by itself, and of what")
    parser.add_argument("--control", metavar="SOCKET", default="", help="the relay server's, for entries on pages")
    parser.add_argument("--people", metavar="FILE", default="", help="who sees which pages; without it there are none")
    parser.add_argument("--pages", metavar="HOST:PORT", default="127.0.0.1:8767", help="for browsers (%(default)s)")
    parser.add_argument(
        "--sockets", metavar="FOLDER", type=Path, help="for people's pages.sock and the proxy's proxy.sock"
    )
    parser.add_argument("--proxy-user", metavar="NAME", default="", help="the site's proxy: believed about who asks")
    parser.add_argument("--database", metavar="ADDRESS", default="", help="postgresql://ROLE@HOST/DATABASE")
    parser.add_argument("--database-password", metavar="FILE", default="", help="that role's password")
    parser.add_argument(
        "--web-processes", metavar="N", type=int, default=1, choices=range(1, MOST_WEB + 1),
        help="that make pages (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--oidc", metavar="FILE", default="", help="the site's OpenID provider, by which people log in")
    parser.add_argument("--condor", metavar="FILE", default="", help="which schedd says whose a token of HTCondor is")
    parser.add_argument("--syslog", metavar="WHERE", default="", help="copy the audit there: /dev/log, or HOST:PORT")
    parser.add_argument("--logins", metavar="FILE", default="", help=argparse.SUPPRESS)  # the demo's: `CODE LOGIN`
    parser.add_argument("--listening", default="", help=argparse.SUPPRESS)  # descriptors, from the one that supervises
    parser.add_argument("--host", metavar="NAME", action="append", default=[], help="a name of the pages in browsers")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    try:
        if os.geteuid() == 0:
            raise JobLensError("a server of the network is not root's: start it as a user that owns nothing else")
        os.umask(0o077)
        privilege.no_new_privileges()
        if options.command != "run":
            privilege.end_with_parent(signal.SIGTERM)
        {
            "run": _run,
            "store": _store,
            "ingest": _ingest,
            "kafka": _kafka,
            "collector": _collector,
            "rollups": _rollups,
            "rules": _rules,
            "web": _web,
        }[options.command](options, given[1:])
    except (JobLensError, OSError) as error:
        if not isinstance(error, _Told):
            print(f"joblens-hub: {error}", file=sys.stderr)
        return _HOPELESS if isinstance(error, Newer) else 1
    return 0


class _Told(JobLensError):
    """A process of ours has said why."""


def _run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Until SIGTERM. It has the ports for as long as it lives: nobody else is to listen there meanwhile."""
    TokenFile(options.tokens).read()
    options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_wanted = {"store": not options.store, "kafka": options.kafka, "collector": options.collector}
    is_wanted |= {"rules": options.rules, "web": options.people}
    words = [word for word in CHILDREN if is_wanted.get(word, True)]
    if options.kafka:
        read_settings(options.kafka)
    if options.rules:
        read_rules(Path(options.rules))
    if options.oidc:
        _oidc(options)
    if options.store:
        store_of(options).begin()
    if options.condor:
        read_condor(options.condor)
    if options.database:
        Postgres(options.database, options.database_password).check()
    sockets = {word: _listening(word, options) for word in words}
    names = {f"web {number}": "web" for number in range(2, options.web_processes + 1) if "web" in words}
    names = {**{word: word for word in words}, **names}
    running: dict[str, subprocess.Popen[bytes]] = {}
    is_over = is_hopeless = False

    def end(*_: Any) -> None:
        nonlocal is_over
        is_over = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    while not (is_over or is_hopeless):
        for name, word in names.items():
            if name in running and running[name].poll() is not None:
                is_hopeless |= running[name].returncode == _HOPELESS
                if is_hopeless:
                    break
                print(
                    f"joblens-hub: {name} has ended ({running[name].returncode}); it is started again", file=sys.stderr
                )
            if name not in running or running[name].poll() is not None:
                numbers = [each.fileno() for each in sockets[word]]
                listening = ["--listening", ",".join(map(str, numbers))] if numbers else []
                command = [sys.executable, "-m", "condor_joblens.hub", word, *given, *listening]
                running[name] = subprocess.Popen(command, pass_fds=numbers)
        time.sleep(_PAUSE)
    for process in reversed(running.values()):  # the store last
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
    if is_hopeless:
        raise _Told("what is kept is a newer hub's")


def _listening(word: str, options: argparse.Namespace) -> list[socket.socket]:
    """The sockets of a process that serves others. Raises JobLensError, OSError."""
    if options.listening:
        return [socket.socket(fileno=int(number)) for number in options.listening.split(",")]
    if word == "ingest":
        host, port = _address(options.records)
        if not options.certificate and host not in _LOOPBACK:
            raise JobLensError(f"{options.records} is open to others, and tokens come there: give a --certificate")
        return [_tcp(host, port, 2048)]
    if word == "web":
        host, port = _address(options.pages)
        if host not in _LOOPBACK:
            raise JobLensError(f"{options.pages} is open to others without TLS: let the site's proxy stand before it")
        unix = [options.sockets / name for name in ("pages.sock", "proxy.sock")] if options.sockets else []
        return [_tcp(host, port, 128), *map(_unix, unix)]
    return []


def _tcp(host: str, port: int, waiting: int) -> socket.socket:
    """Raises JobLensError."""
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return socket.create_server(address[:2], family=family, backlog=waiting)
    except OSError as error:
        raise JobLensError(f"{host}:{port} can't be listened at: {error.strerror}") from None


def _store(options: argparse.Namespace, given: Sequence[str]) -> None:
    from condor_joblens.hub.store import server

    server.run(options.folder)


def _ingest(options: argparse.Namespace, given: Sequence[str]) -> None:
    import uvicorn

    from condor_joblens.common.descriptors import have_room
    from condor_joblens.hub.ingest.app import App
    from condor_joblens.hub.ingest.gather import Gatherer
    from condor_joblens.hub.patience import PatientProtocol

    have_room()
    sockets = _listening("ingest", options)
    store = store_of(options)
    store.wait_until_prepared()
    app = App(Gatherer(store), TokenFile(options.tokens), Artifacts(options.folder, options.artifact_bytes))
    config = uvicorn.Config(
        app, ssl_certfile=options.certificate, ssl_keyfile=options.key, http=PatientProtocol, ws="none",
        proxy_headers=False, server_header=False, log_level="warning", access_log=False, limit_concurrency=4096,
        timeout_graceful_shutdown=20,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets)


def _kafka(options: argparse.Namespace, given: Sequence[str]) -> None:
    try:
        from condor_joblens.hub.ingest.kafka import Taker
    except ImportError as error:
        raise JobLensError(f"--kafka needs the extra `kafka` beside `hub` ({error}): see docs/hub.md") from None

    resource.setrlimit(resource.RLIMIT_DATA, (_KAFKA_BYTES, _KAFKA_BYTES))
    store = store_of(options)
    store.wait_until_prepared()
    for number in (signal.SIGTERM, signal.SIGINT):  # what is not committed comes again
        signal.signal(number, signal.SIG_DFL)
    Taker(read_settings(options.kafka), store, TokenFile(options.tokens), _say).run()


def _collector(options: argparse.Namespace, given: Sequence[str]) -> None:
    from condor_joblens.hub.ingest.collector import Collector

    store = store_of(options)
    store.wait_until_prepared()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    Collector(options.collector, store, _say).run()


def _rollups(options: argparse.Namespace, given: Sequence[str]) -> None:
    from condor_joblens.hub.pseudonyms import made_in
    from condor_joblens.hub.rules.firings import Firings
    from condor_joblens.hub.store.old_names import OldNames
    from condor_joblens.hub.store.rollups import Rollups

    store, names = store_of(options), None
    if options.names_for:
        also = Firings(options.folder).rename
        names = OldNames(store, made_in(options.folder), options.names_for, also=also)
    store.wait_until_prepared()
    for number in (signal.SIGTERM, signal.SIGINT):  # an hour that is made in part is made again
        signal.signal(number, signal.SIG_DFL)
    Rollups(store, _say).run(names.step_if_due if names else lambda: None)


def _rules(options: argparse.Namespace, given: Sequence[str]) -> None:
    from condor_joblens.hub.rules.entering import Entering
    from condor_joblens.hub.rules.posted import Posted
    from condor_joblens.hub.rules.watch import Watch

    store = store_of(options)
    store.wait_until_prepared()
    for number in (signal.SIGTERM, signal.SIGINT):  # what was not noted as told is told again
        signal.signal(number, signal.SIG_DFL)
    people = Path(options.people) if options.people else None
    entering = Entering(options.control, _access(options))
    kept = Firings(options.folder), Posted(options.folder)
    Watch(Path(options.rules), people, store, *kept, _say, entering=entering).run()


def _access(options: argparse.Namespace) -> Access:
    """Raises JobLensError, OSError."""
    return Access(_database(options) or options.folder, say=_audited(options))


def _database(options: argparse.Namespace) -> Postgres | None:
    return Postgres(options.database, options.database_password) if options.database else None


def _audited(options: argparse.Namespace) -> Callable[[str], None]:
    """Where rows of the audit go too: the log, and another machine's. Raises JobLensError."""
    from condor_joblens.hub.syslog import Syslog

    copy = Syslog(options.syslog) if options.syslog else None

    def say(line: str) -> None:
        _say(line)
        if copy is not None:
            copy(line)

    return say


def _say(line: str) -> None:
    print(f"joblens-hub: {line}", file=sys.stderr, flush=True)


def _web(options: argparse.Namespace, given: Sequence[str]) -> None:
    import asyncio

    import uvicorn

    from condor_joblens.hub.rules.posted import Posted
    from condor_joblens.hub.web import desk, site
    from condor_joblens.hub.web.oidc import Provider
    from condor_joblens.hub.web.peers import PeerProtocol

    sockets = _listening("web", options)
    with open(options.people, encoding="utf-8", errors="replace") as file:
        read_people(file.read())
    proxy = pwd.getpwnam(options.proxy_user).pw_uid if options.proxy_user else -1
    store = store_of(options)
    store.wait_until_prepared()
    desk.open_desk(
        desk.Desk(
            store,
            options.people,
            proxy,
            desk.read_logins(options.logins),
            _access(options),
            Artifacts(options.folder, options.artifact_bytes),
            Firings(options.folder),
            Posted(options.folder),
            options.rules,
            options.folder,
            options.control,
            Provider(_oidc(options)) if options.oidc else None,
            CondorTokens(read_condor(options.condor)) if options.condor else None,
            f"https://{options.host[0]}" if options.host else f"http://{options.pages}",
        )
    )
    application = site.application(
        options.folder, [*_LOOPBACK, "[::1]", *options.host], bool(options.host), _database(options)
    )
    config = uvicorn.Config(
        application, http=PeerProtocol, ws="none", proxy_headers=False, server_header=False, log_level="warning",
        access_log=False, limit_concurrency=512, lifespan="off", timeout_graceful_shutdown=5,
    )  # fmt: skip
    asyncio.run(uvicorn.Server(config).serve(sockets))


def _oidc(options: argparse.Namespace) -> OidcSettings:
    """Raises JobLensError, OSError."""
    found = read_oidc(options.oidc)
    host = urllib.parse.urlsplit(found.redirect).hostname or ""
    if host not in (*_LOOPBACK, *options.host):
        raise JobLensError(f"{options.oidc}: pages are at {host}, which no --host names: give --host {host}")
    return found


def _unix(path: Path) -> socket.socket:
    """Anybody may connect: who it is, the kernel says."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(path))
    found.listen(128)
    path.chmod(0o666)
    return found


def store_of(options: argparse.Namespace) -> Store:
    """The store that the options name, or our own."""
    return Store(options.store or socket_of(str(options.folder)), options.store_password)


def _address(text: str) -> tuple[str, int]:
    """Raises JobLensError."""
    host, _, port = text.rpartition(":")
    if not (host and port.isascii() and port.isdecimal()):
        raise JobLensError(f"{text} is no HOST:PORT")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    sys.exit(main())
