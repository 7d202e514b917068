"""Rules of a hub that runs: mail by a real server, signed posts, alarms of a program, and who sees which firing."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import Hub, ask
from sinks import deliver, make, runs, until

from condor_joblens.export.records import RowEncoder
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.hub import HubSink

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from mail_server import MailServer

PEOPLE = """
[Annika]
login = remote:annika
jobs = azebra@ap.example.org
mail = annika@example.org
[Bob]
login = remote:bob
jobs = bob@ap.example.org
mail = bob@example.org
[Olga]
role = operator
login = remote:olga
[Adam]
role = administrator
login = remote:adam
"""
RULES = """
pages = "https://joblens.example.org"
digest_minutes = 1
[mail]
server = "127.0.0.1:{smtp}"
encryption = "none"
from = "joblens@example.org"
administrators = ["ops@example.org"]
[webhook]
hosts = ["127.0.0.1:{hook}"]
secret_file = "{folder}/secret"
[[rule]]
name = "failures"
when = "wave"
red = true
mail = ["administrators", "owners"]
webhook = "http://127.0.0.1:{hook}/alarm"
[[rule]]
name = "triggers"
when = "trigger"
mail = ["owners"]
[[rule]]
name = "disks"
when = "outside"
mail = ["administrators"]
"""
SECRET = b"a secret of sixteen letters"
PATIENCE = 240


class Hook(http.server.BaseHTTPRequestHandler):
    posts: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.posts.append((self.headers["JobLens-Signature"], body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def smtp() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def hook() -> Iterator[tuple[type[Hook], int]]:
    kind = type("OneHook", (Hook,), {"posts": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kind, server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any, smtp: MailServer, hook: tuple[type[Hook], int]) -> Iterator[Hub]:
    rules = RULES.format(smtp=smtp.port, hook=hook[1], folder=folder / "rules")
    started = server(Hub, folder / "rules", rules=rules)
    (folder / "rules/secret").write_bytes(SECRET)
    started.people.write_text(PEOPLE)
    with started:
        send(started, "killed by SIGSEGV in /home/azebra/fit", 60, 9)
        send(started, "killed by SIGBUS in /home/azebra/old", 3 * 3600, 8)
        yield started


def send(hub: Hub, death: str, age: int, cluster: int) -> None:
    """Twelve jobs of azebra that died so, and of the first an event of a trigger that asks for mail, and one that does
    not."""
    now, rows = int(time.time()) - age, runs(12, 1)
    for number in range(12):
        name = f"ap.example.org#{cluster}.{number}#1700000000"
        rows["global_job_id"][number], rows["run"][number] = name, f"{name}#1"
        rows["job_id"][number] = f"{cluster}.{number}"
    rows["owner"], rows["death"], rows["executable"] = b"azebra", death.encode(), b"/home/azebra/fit"
    rows["start_time"], rows["update_time"] = now - 600, now
    batch = RowEncoder("node1").records(rows, RecordKind.JOB)
    for number, wants_mail in enumerate((True, False)):
        name = f"ap.example.org#{cluster}.0#1700000000"
        said = {"Type": "event", "Id": f"node1/t/{cluster}/{number}", "Schema": 1, "Node": "node1", "Time": now}
        said |= {"Run": f"{name}#1", "GlobalJobId": name, "RunNumber": 1, "Kind": "Trigger"}
        said |= {"Trigger": f"{number}.lua", "Message": f"a fork bomb of azebra? {number}", "Mail": wants_mail}
        batch.append(Record(RecordKind.EVENT, str(said["Id"]), f"{name}#1", float(now), json.dumps(said).encode()))
    deliver(make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1")), batch)


def command(hub: Hub, module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of `joblens-hub`, as the hub's user."""
    program = ["setpriv", *hub.as_user(), os.path.realpath(sys.executable), "-m", f"condor_joblens.hub.{module}"]
    return subprocess.run(
        [*program, *words, "--folder", f"{hub.folder}/kept"],
        env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=400, cwd="/", check=False,
    )  # fmt: skip


def post(hub: Hub, secret: str, alarm: Any) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", hub.pages_port, timeout=120)
    head = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/alarms", json.dumps(alarm).encode(), head)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def firings(hub: Hub, person: str) -> dict[str, dict[str, Any]]:
    status, found, text = ask(hub, person, "/rules.json")
    assert status == 200, text
    return {one["rule"]: one for one in found["firings"]}


def test_who_is_to_be_told_is_told_and_nobody_else(hub: Hub, smtp: MailServer, hook: tuple[type[Hook], int]) -> None:
    made = command(hub, "access_command", "token", "add", "Bob", "--people", str(hub.people), "--scope", "alarm")
    assert made.returncode == 0, made.stderr
    secret = made.stdout.strip()
    alarm = {"key": "fs7", "title": "the disk of fs7 is full", "text": "/srv/secret", "evidence": {"free": 0.01}}
    assert post(hub, secret, alarm) == (200, {"rules": ["disks"]})
    assert post(hub, secret, {**alarm, "count": 0})[0] == 400 and post(hub, "joblens_x", alarm)[0] == 401
    assert post(hub, secret, {**alarm, "text": "x" * 70_000})[0] == 400
    assert ask(hub, "", "/api/v1/jobs", secret=secret)[0] == 403, "such a token is for nothing else"
    hub.kill_one("rules")  # another one looks at once

    def texts(address: str) -> str:
        return "\n".join(text for to, text in smtp.mails if to == [address])

    def are_told() -> bool:
        ops, annika = texts("ops@example.org"), texts("annika@example.org")
        return "SIGSEGV" in ops and "fs7" in ops and "fork bomb" in annika and "your jobs failed" in annika

    until(are_told, "mail to all", PATIENCE)
    assert texts("bob@example.org") == ""
    assert "a fork bomb of azebra? 0" in texts("annika@example.org"), "by the trigger that asks for it"
    assert "fork bomb of azebra? 1" not in texts("annika@example.org") + texts("ops@example.org")
    assert "fs7" not in texts("annika@example.org") and "SIGBUS" not in texts("ops@example.org")
    kind, _ = hook
    until(lambda: bool(kind.posts), "a post", PATIENCE)
    told = [posted(signed, body) for signed, body in kind.posts]
    # who was killed before he had noted a post has left it to the next one, who posts the same again
    assert len({firing["id"] for firing in told}) == 1 and len(told) <= 2
    assert all(firing["count"] == 12 and "SIGSEGV" in firing["sentence"] for firing in told)


def posted(signed: str, body: bytes) -> dict[str, Any]:
    """The one firing of a post, whose signature is right."""
    stamp, _, digest = signed.removeprefix("t=").partition(",v1=")
    assert digest == hmac.new(SECRET, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    firing: dict[str, Any]
    (firing,) = json.loads(body)["firings"]
    return firing


def test_each_sees_of_a_firing_what_he_may(hub: Hub) -> None:
    until(lambda: len(firings(hub, "adam")) == 3, "three firings", PATIENCE)
    adam, olga, annika = (firings(hub, person) for person in ("adam", "olga", "annika"))
    assert "/home/azebra" in adam["failures"]["sentence"] or "SIGSEGV" in adam["failures"]["evidence"]["cause"]
    assert adam["disks"]["evidence"] == {"free": 0.01} and "/srv/secret" in adam["disks"]["sentence"]
    assert set(olga) == {"failures", "triggers", "disks"}
    assert all(one["sentence"] == "" for one in olga.values())
    assert "cause" not in olga["failures"]["evidence"] and "message" not in olga["triggers"]["evidence"]
    assert olga["disks"]["evidence"] == {} and "fs7" in olga["disks"]["title"]
    assert set(annika) == {"failures", "triggers"}
    assert annika["failures"]["sentence"].endswith("12 of your jobs failed in an hour, of 1 cluster on 1 node.")
    assert "usual" not in annika["failures"]["evidence"] and annika["triggers"]["evidence"]["jobs"][0]["job"] == "9.0"
    assert firings(hub, "bob") == {}
    assert ask(hub, "olga", "/rules.json")[1]["rules"] and ask(hub, "bob", "/rules.json")[1]["rules"] is None
    assert ask(hub, "olga", "/site.json")[1]["red"] and ask(hub, "annika", "/site.json")[1]["red"] == []
    for person in ("adam", "olga", "annika", "bob"):
        status, found, text = ask(hub, person, "/api/v1/alarms")
        assert status == 200 and {one["rule"] for one in found["alarms"]} == set(firings(hub, person)), text


def test_what_rules_would_have_done_is_said_and_nobody_is_told(hub: Hub, smtp: MailServer) -> None:
    mails = len(smtp.mails)
    done = command(hub, "rules_command", "test", str(hub.rules), "--days", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any("failures" in line and "SIGBUS" in line for line in lines), done.stdout
    assert any("triggers" in line and "0.lua" in line for line in lines), done.stdout
    assert any(line.startswith("failures: ") and "in 1 day " in line for line in lines)
    assert any(line.startswith("disks: not tried") for line in lines) and len(smtp.mails) == mails
    wrong = hub.folder / "wrong"
    wrong.write_text("[[rule]]\nname = 'x'\nwhen = 'moon'\n")
    done = command(hub, "rules_command", "test", str(wrong))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "when is one of" in done.stderr
