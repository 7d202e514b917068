"""The hub as a server of the tests: its own processes, with a store of its own in a folder."""

from __future__ import annotations

import fnmatch
import hashlib
import http.client
import importlib.metadata
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from servers import Server, Unavailable, free_port
from sinks import until

ROOT = Path(__file__).resolve().parents[2]
USER = 65534
"""It does not run as root."""

ALICE = """[Alice]
login = remote:alice
jobs = alice@ap.example.org
"""
STAFF = """[Olga]
role = operator
login = remote:olga
[Adam]
role = administrator
login = remote:adam
"""
"""Sections of a file of people: a user, and who sees more."""


def libraries() -> Path:
    """Those of the extra `hub`. Raises Unavailable."""
    done = subprocess.run([ROOT / "tests/extra_libraries", "hub"], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Unavailable((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    return Path(done.stdout.strip())


def package_folder(name: str) -> Path:
    """Where a package of the tests' is."""
    found = importlib.util.find_spec(name)
    assert found and found.submodule_search_locations, name
    return Path(found.submodule_search_locations[0])


def copy_package(name: str, target: Path) -> None:
    """All files of a package of the tests, which the hub's user may not enter."""
    for file in importlib.metadata.files(name) or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), target / file)


class Hub(Server):
    """Takes records at `url`; `tokens` are those of the nodes."""

    name = "hub"

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[str] = ("node1", "node2"),
        kafka: str = "",
        rules: str = "",
        packages: Sequence[str] = (),
    ) -> None:
        """rules: that of `--rules`. packages: of other extras. kafka: that of `--kafka`, as text; empty: nothing
        comes from there, and its queue is the file `queue`.
        """
        self.folder, self.log = folder, folder / "log"
        self.process = None
        self.files = libraries()
        folder.mkdir(parents=True, exist_ok=True)
        self.tokens = {name: f"swordfish-of-{name}" for name in nodes}
        lines = [f"node {name} {hashlib.sha256(token.encode()).hexdigest()}\n" for name, token in self.tokens.items()]
        (folder / "tokens").write_text("".join(lines))
        for name, token in self.tokens.items():
            (folder / name).write_text(token)
            (folder / name).chmod(0o600)
        # the user has no right to enter the checkout; and the hub needs no module of C
        ignored = shutil.ignore_patterns("*.so", "*.o", "objects")
        shutil.copytree(ROOT / "condor_joblens", folder / "program/condor_joblens", ignore=ignored)
        self.kafka = folder / "kafka" if kafka else None
        if self.kafka:
            (folder / "queue").write_text("")
            (folder / "condor_q").write_text(f"#!/bin/sh\nexec cat {folder}/queue\n")
            (folder / "condor_q").chmod(0o755)
            self.kafka.write_text(f"{kafka}queue = {folder}/condor_q -global\n")
            for package in ("kafka", "crc32c"):  # of the tests, which the hub's user may not enter
                shutil.copytree(package_folder(package), folder / "program" / package)
        # these come with every installation, where there are some for the machine
        quick = [name for name in ("orjson", "isal") if importlib.util.find_spec(name)]
        for package in (*quick, *packages):
            copy_package(package, folder / "program")
        self.more: list[str] = []
        (folder / "kept").mkdir()
        (folder / "sockets").mkdir(mode=0o755)
        if os.getuid() == 0:
            for name in ("kept", "sockets"):
                os.chown(folder / name, USER, USER)
        self.port, self.pages_port = free_port(), free_port()
        self.url, self.pages = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.pages_port}"
        self.people = folder / "people"
        self.people.write_text("")
        self.rules = folder / "rules" if rules else None
        if self.rules:
            self.rules.write_text(rules)

    def command(self) -> list[str]:
        files = ["--folder", f"{self.folder}/kept", "--tokens", f"{self.folder}/tokens"]
        records = ["--records", f"127.0.0.1:{self.port}", "--pages", f"127.0.0.1:{self.pages_port}"]
        records += ["--people", str(self.people), "--sockets", f"{self.folder}/sockets", "--proxy-user", "daemon"]
        records += ["--kafka", str(self.kafka)] if self.kafka else []
        files += ["--rules", str(self.rules)] if self.rules else []
        files += self.more
        return [os.path.realpath(sys.executable), "-m", "condor_joblens.hub", "run", *files, *records]

    def as_user(self) -> list[str]:
        return [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.getuid() == 0 else []

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": f"{self.folder}/program:{self.files}", "HOME": str(self.folder), "PYTHONNOUSERSITE": "1"}

    def answers(self) -> bool:
        try:
            for port in (self.port, self.pages_port):  # its supervisor listens before its processes serve
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/login")
                connection.getresponse()
                connection.close()
        except (OSError, http.client.HTTPException):
            return False
        return True

    def login_address(self, user: str) -> str:
        """What `joblens-hub login` prints for this user of the machine."""
        socket_file = str(self.folder / "sockets/pages.sock")
        program = [os.path.realpath(sys.executable), "-m", "condor_joblens.hub.login"]
        command = ["setpriv", f"--reuid={user}", "--clear-groups", *program, "--socket", socket_file]
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment()}, capture_output=True, text=True, timeout=120, cwd="/", check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def kill_one(self, word: str) -> bool:
        """kill -9 of the process `store`, `ingest` or `kafka`; False if there is none now."""
        assert self.process
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in words:
                os.kill(int(pid), signal.SIGKILL)
                return True
        return False

    def ask(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        """Of its store."""
        from condor_joblens.hub.store.client import Store, socket_of

        return Store(socket_of(f"{self.folder}/kept")).ask(query, **parameters)


def store_files(hub: Hub, *patterns: str) -> Iterator[tuple[Path, bytes]]:
    """The files of its store that have such names, with their content; it takes files and folders away meanwhile."""
    for folder, _, names in os.walk(hub.folder / "kept/data"):
        for name in names:
            if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                continue
            try:
                content = Path(folder, name).read_bytes()
            except FileNotFoundError:
                continue
            yield Path(folder, name), content


def ask(
    hub: Hub, person: str, path: str, method: str = "GET", secret: str = "", accept: str = "", **words: Any
) -> tuple[int, dict[str, Any], str]:
    """Status, JSON and text, by the site's proxy, which says who asks; again while the hub is busy with us."""
    return answered(hub, person, path, method, secret, accept, **words)[:3]


def answered(
    hub: Hub, person: str, path: str, method: str = "GET", secret: str = "", accept: str = "", **words: Any
) -> tuple[int, dict[str, Any], str, http.client.HTTPMessage]:
    """The same, with the answer's head."""
    status, body, head = fetched(hub, person, path, method, secret, {"Accept": accept} if accept else {}, **words)
    text = body.decode()
    return status, json.loads(text) if text[:1] in "{[" else {}, text, head


def fetched(
    hub: Hub, person: str, path: str, method: str = "GET", secret: str = "", more: Mapping[str, str] = {}, **words: Any
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """The same as bytes. more: headers."""
    found: list[tuple[int, bytes, http.client.HTTPMessage]] = []
    headers = {"X-Remote-User": person} if person else {}
    headers |= {"Authorization": f"Bearer {secret}"} if secret else {}
    headers |= more

    def is_answered() -> bool:
        connection = http.client.HTTPConnection("localhost", timeout=120)
        try:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(120)
            os.seteuid(pwd.getpwnam("daemon").pw_uid)  # whom the kernel names at the other end
            try:
                connection.sock.connect(str(hub.folder / "sockets/proxy.sock"))
            finally:
                os.seteuid(0)
            query = f"?{urllib.parse.urlencode(words)}" if words else ""
            connection.request(method, path + query, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        found[:] = [(answer.status, body, answer.headers)]
        return answer.status != 429

    until(is_answered, "an answer", 120)
    return found[0]


def access(hub: Hub, *words: str) -> subprocess.CompletedProcess[str]:
    """`joblens-hub token ...` or `joblens-hub audit`, as the hub's user."""
    program = [os.path.realpath(sys.executable), "-m", "condor_joblens.hub.access_command", *words]
    return subprocess.run(
        ["setpriv", *hub.as_user(), *program, "--folder", f"{hub.folder}/kept"],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=120, cwd="/", check=False,
    )  # fmt: skip


def token(hub: Hub, person: str, scope: str) -> tuple[str, str]:
    """Its number and its secret."""
    done = access(hub, "token", "add", person, "--people", str(hub.people), "--scope", scope)
    assert done.returncode == 0, done.stderr
    return done.stderr.split()[1], done.stdout.strip()
