"""`joblens-hub demo`: a hub of its own on this machine, with three people, for a pool of one node.

It makes the files that an administrator writes (tokens, people), starts `joblens-hub run` with them, and prints an
address for each of the three. A login is good as long as the demo runs.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.util
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from condor_joblens.common.errors import JobLensError
from condor_joblens.common.tokens import BOTH, digest
from condor_joblens.common.user_names import nobodys, of_this_process

RELAY_PORT, RECORDS_PORT, PAGES_PORT = 8765, 8766, 8767
_CONTROL = "control.sock"
MACHINES = "machines"
"""In the folder: what the pool's collector answers. Whoever starts the pool writes it anew, more than once a minute."""

_STATUS = """#!/bin/sh
# In place of condor_status: the demo's pool has a network of its own, and its collector's answer is brought here.
for _ in $(seq 100); do
    kill -0 "$PPID" 2>/dev/null || exit 1 # the hub has ended
    [ -z "$(find {folder} -maxdepth 1 -name {machines} -mmin -1)" ] || exec cat {folder}/{machines}
    sleep 1
done
echo 'no pool tells of its machines: start one, as the line above says' >&2
exit 1
"""
_PATIENCE = 120.0
"""Seconds for store and pages to be there: a slow disk reads some hundred megabytes of libraries."""


@dataclass(frozen=True)
class Guest:
    """Somebody who looks at the demo."""

    name: str
    role: str
    what: str
    logins: tuple[str, ...]
    owns_jobs: bool = True

    @property
    def section(self) -> str:
        """Its part of the file of people, without jobs."""
        return f"[{self.name}]\nrole = {self.role}\nlogin = {', '.join(self.logins)}\n"


GUESTS = (
    Guest("shifter", "administrator", "all jobs", ("remote:shifter", "unix:root"), owns_jobs=False),
    Guest("alice", "user", "her own jobs", ("remote:alice",)),
    Guest("bob", "user", "his own jobs", ("remote:bob",)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joblens-hub demo", description="A hub with three people, on this machine.")
    parser.add_argument("--folder", metavar="FOLDER", type=Path, help="what is kept; left out: until it ends")
    parser.add_argument("--node", metavar="NAME", default="pool-demo", help="the pool's machine (%(default)s)")
    options = parser.parse_args(arguments)
    if os.geteuid() == 0:
        print("joblens-hub: a server of the network is not root's: start it as another user", file=sys.stderr)
        return 1
    os.umask(0o077)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="joblens-hub-"))
    try:
        with contextlib.suppress(KeyboardInterrupt):
            return _demo(folder.absolute(), options.node)
        return 0
    except (JobLensError, OSError) as error:
        print(f"joblens-hub: {error}", file=sys.stderr)
        return 1
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)


def _demo(folder: Path, node: str) -> int:
    """Until the hub ends, or we are told to. Raises JobLensError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ready").unlink(missing_ok=True)
    records, pages = (f"127.0.0.1:{_port(port)}" for port in (RECORDS_PORT, PAGES_PORT))
    codes = {guest: secrets.token_urlsafe(24) for guest in GUESTS}
    token = secrets.token_urlsafe(32)
    (folder / "node.token").write_text(token + "\n")
    (folder / "tokens").write_text(f"{BOTH} {node} {digest(token)}\n")
    (folder / "people").write_text("\n".join(_section(guest, node) for guest in GUESTS))
    (folder / "logins").write_text("".join(f"{codes[guest]} {guest.logins[0]}\n" for guest in GUESTS))
    (folder / "records").write_text(records + "\n")
    command = ["run", "--folder", f"{folder}/kept", "--tokens", f"{folder}/tokens", "--people", f"{folder}/people"]
    command += ["--logins", f"{folder}/logins", "--sockets", str(folder), "--records", records, "--pages", pages]
    command += ["--collector", shlex.quote(_condor_status(folder))]
    relay = _relay_server(folder)
    command += ["--control", f"{folder}/{_CONTROL}"] if relay else []
    hub = subprocess.Popen([sys.executable, "-m", "condor_joblens.hub", *command])
    signal.signal(signal.SIGTERM, lambda *_: hub.terminate())
    try:
        _wait(hub, pages, records)
        print(_told(folder, node, records, pages, codes), flush=True)
        (folder / "ready").touch()
        hub.wait()
        return 0
    finally:
        for each in (hub, *([relay] if relay else [])):
            if each.poll() is None:
                each.terminate()
        with contextlib.suppress(KeyboardInterrupt):  # a second one does not leave its processes behind
            hub.wait()


def _condor_status(folder: Path) -> str:
    """Makes the command that answers as the pool's collector does."""
    command = folder / "condor_status"
    command.write_text(_STATUS.format(folder=shlex.quote(str(folder)), machines=MACHINES))
    command.chmod(0o700)
    return str(command)


def _relay_server(folder: Path) -> subprocess.Popen[bytes] | None:
    """For the page of entries. None: its libraries (the extra `relay`) are not here, or this user has no own name."""
    uid = os.geteuid()
    user = of_this_process(uid)
    has_libraries = all(importlib.util.find_spec(name) for name in ("websockets", "cryptography"))
    if user is None or uid in nobodys() or not has_libraries:
        return None
    (folder / "roles").write_text(f"hub {user}\n")
    (folder / "relay.tokens").touch()
    (folder / "controller").mkdir(exist_ok=True)
    command = ["relay", "--listen", f"127.0.0.1:{_port(RELAY_PORT)}", "--tokens", f"{folder}/relay.tokens"]
    command += ["--entries", f"{folder}/controller", "--roles", f"{folder}/roles", "--control", f"{folder}/{_CONTROL}"]
    return subprocess.Popen([sys.executable, "-m", "condor_joblens.relay.hub", *command])


def _section(guest: Guest, node: str) -> str:
    return guest.section + (f"jobs = {guest.name}@{node}\n" if guest.owns_jobs else "")


def _told(folder: Path, node: str, records: str, pages: str, codes: dict[Guest, str]) -> str:
    logins = [f"  {guest.name:8} {guest.what:13} http://{pages}/login?code={codes[guest]}" for guest in GUESTS]
    return "\n".join(
        [
            f"The hub's pages are at http://{pages}. Three people, each for a browser (or private window) alone:",
            *logins,
            f"It takes records of the node {node} at http://{records}; the token is in {folder}/node.token.",
            f"A pool that sends them, from a checkout in another terminal: sudo make demo HUB={folder}",
            "Ctrl-C ends it.",
        ]
    )


def _wait(hub: subprocess.Popen[bytes], *addresses: str) -> None:
    """Until all answer. Raises JobLensError."""
    end = time.monotonic() + _PATIENCE
    left = list(addresses)
    while left:
        if hub.poll() is not None:
            raise JobLensError("the hub has ended: what it said stands above")
        if time.monotonic() > end:
            raise JobLensError(f"{left[0]} does not answer after {_PATIENCE:.0f} s: what the hub said stands above")
        if _answers(left[0]):
            left.pop(0)
        else:
            time.sleep(0.2)


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/login")
        connection.getresponse().read(1)
        return True
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _port(wanted: int) -> int:
    """That one, or any that is free."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise JobLensError("no port of 127.0.0.1 is free")


if __name__ == "__main__":
    sys.exit(main())
