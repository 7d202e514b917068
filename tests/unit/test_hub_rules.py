"""Rules of the hub: their file, firings once a cause, mail by a real server, and signed posts to listed hosts alone."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mail_server import MailServer

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.newer import Newer
from condor_joblens.hub.pseudonyms import Pseudonyms, quarter_of
from condor_joblens.hub.rules import watch as watching
from condor_joblens.hub.rules.alarms import Alarm, fires
from condor_joblens.hub.rules.firings import Firing, Firings
from condor_joblens.hub.rules.kept import FILE
from condor_joblens.hub.rules.mail import message
from condor_joblens.hub.rules.posted import BODY, MOST_AN_HOUR, MOST_BYTES, Posted, TooOften, WrongPost
from condor_joblens.hub.rules.posted import read as read_post
from condor_joblens.hub.rules.settings import WHENS, Mail, Rule, host_of, read
from condor_joblens.hub.rules.watch import Watch
from condor_joblens.hub.rules.webhook import post

TEXT = """
quiet = "22:00-07:00"
digest_minutes = 30
pages = "https://joblens.example.org/"
[mail]
server = "127.0.0.1:25"
encryption = "none"
from = "joblens@example.org"
administrators = ["ops@example.org"]
[webhook]
hosts = ["127.0.0.1:8080"]
secret_file = "/nowhere/secret"
[[rule]]
name = "site"
when = "wave"
verdict = "site"
least = 10
red = true
mail = ["administrators", "owners"]
webhook = "http://127.0.0.1:8080/hook?x=1"
[[rule]]
name = "nodes"
when = "node"
"""
PEOPLE = """
[Anna]
mail = anna@example.org
jobs = anna@ap1
[Bert]
mail = bert@example.org
jobs = anna@ap2
[Cora]
jobs = anna@ap1
"""


def alarm(key: str = "SIGSEGV", **more: Any) -> Alarm:
    found = {"when": "wave", "key": key, "count": 12, "title": f"12 failed: {key}", "sentence": f"{key} in /home/x."}
    return Alarm(**{**found, "verdict": "site", **more})


def test_the_file_is_read() -> None:
    found = read(TEXT)
    assert [rule.name for rule in found.rules] == ["site", "nodes"] and found.digest_seconds == 1800
    assert found.rules[0] == Rule(
        "site", "wave", "site", "", 10, True, ("administrators", "owners"), "http://127.0.0.1:8080/hook?x=1"
    )
    assert found.mail == Mail("127.0.0.1", 25, "joblens@example.org", "none", ("ops@example.org",))
    day = 1_700_006_400 - 1_700_006_400 % 86400
    at = {hour: found.is_quiet(day + 3600 * hour) for hour in (0, 6, 7, 12, 21, 22, 23)}
    assert at == {0: True, 6: True, 7: False, 12: False, 21: False, 22: True, 23: True}
    assert not read(TEXT.replace('quiet = "22:00-07:00"', "")).is_quiet(day)
    assert read(TEXT.replace("22:00-07:00", "06:30-07:00")).is_quiet(day + 6.75 * 3600)


def test_the_example_is_read_and_the_page_knows_every_name() -> None:
    root = Path(__file__).parents[2]
    example, page = (root / "docs/examples/hub_rules.toml").read_text(), (root / "docs/hub.md").read_text()
    assert len(read(example).rules) == 5
    for name in (*WHENS, *(one.name for one in fields(Rule)), "digest_minutes", "quiet", "pages", "secret_file"):
        assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    "there, instead, why",
    [
        ("[[rule]]", "[[rules]]", "there is no rules"),
        ('when = "node"', 'when = "moon"', "when is one of"),
        ('when = "node"', 'when = "node"\nverdict = "site"', "for waves alone"),
        ('when = "node"', 'when = "node"\nmail = ["owners"]', "owners are told of waves and triggers alone"),
        ('when = "node"', 'when = "node"\nmail = ["eve@example.org"]', "administrators or owners"),
        ('when = "node"', 'when = "node"\nmale = []', "there is no male"),
        ('when = "node"', 'when = "node"\nleast = "5"', "least is a whole number"),
        ('when = "node"', 'when = "node"\nleast = true', "least is a whole number"),
        ('when = "node"', 'when = "node"\nred = 1', "red is true or false"),
        ('when = "node"', 'when = "node"\nleast = 0', "least is 1 or more"),
        ('when = "node"', 'when = ["node"]', "when is one of"),
        ('when = "node"', 'when = "node"\nsource = "x"', "source is a trigger's file"),
        ('administrators = ["ops@example.org"]', "", "names no administrators"),
        ('"127.0.0.1:25"', '"127.0.0.1:99999"', "server is HOST:PORT"),
        ('name = "nodes"', 'name = "site"', "two rules have one name"),
        ('name = "nodes"', 'name = "a\\nb"', "printable"),
        ("8080/hook", "8081/hook", "is on no host"),
        ("http://127.0.0.1:8080/", "http://hooks.example.org:8080/", "is on no host"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080@evil.example.org/", "is on no host"),
        ("http://127.0.0.1:8080/", "http://x:y@127.0.0.1:8080/", "is on no host"),
        ("http://127.0.0.1:8080/", "file://127.0.0.1:8080/", "is on no host"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/\\u0000", "printable"),
        ('secret_file = "/nowhere/secret"', "", "posts are signed"),
        ('"ops@example.org"', '"ops@example.org\\nBcc: eve@example.org"', "is no address"),
        ('"joblens@example.org"', '"JobLens <joblens@example.org>"', "is no address"),
        ('"127.0.0.1:25"', '"mail.example.org:25"', "without encryption"),
        ('encryption = "none"', 'encryption = "rot13"', "encryption is one of"),
        ('"22:00-07:00"', '"10pm"', "a time of the day"),
        ("digest_minutes = 30", "digest_minutes = 0", "1 to 1440"),
        ('pages = "https:', 'pages = "javascript:', "the hub's address"),
        ("[mail]", "[mail", "can't be read"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(there: str, instead: str, why: str) -> None:
    assert there in TEXT
    with pytest.raises(JobLensError, match=re.escape(why)):
        read(TEXT.replace(there, instead))


def test_where_a_webhook_may_go() -> None:
    assert host_of("https://Hooks.example.org/x") == "hooks.example.org:443"
    assert host_of("http://localhost/x") == "localhost:80" and host_of("http://[::1]:9/x") == "::1:9"
    for wrong in ("http://example.org/", "ftp://localhost/", "https://a@b/", "https://b/#c", "https://b:x/", "//b", ""):
        assert host_of(wrong) in ("", ":443"), wrong


def test_a_rule_is_about_its_alarms_alone() -> None:
    rule = Rule("x", "wave", "site", least=10)
    assert fires(rule, alarm()) and not fires(rule, alarm(count=9))
    assert not fires(rule, alarm(verdict="task")) and not fires(rule, alarm(when="node"))
    rule = Rule("x", "outside", source="Anna")
    assert fires(rule, alarm(when="outside", source="Anna")) and not fires(rule, alarm(when="outside", source="Bert"))


def test_an_alarm_is_one_firing_as_long_as_it_lasts(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    for moment, count in ((1000.0, 12), (1060.0, 30), (4000.0, 20), (8000.0, 5)):
        firings.see("site", True, [alarm(count=count, title=f"{count}", evidence={"count": count})], moment)
    newest, oldest = firings.since(0)
    assert (oldest.begun, oldest.seen, oldest.count, oldest.title, oldest.evidence) == (
        1000, 4000, 30, "30", {"count": 30},
    )  # fmt: skip
    assert (newest.begun, newest.count, newest.lasts(8200), oldest.lasts(8200)) == (8000, 5, True, False)
    assert [one.id for one in firings.untold("mail", "site", "a@b", 8000)] == [oldest.id, newest.id]
    firings.tell("mail", "a@b", [oldest], 8000)
    assert firings.untold("mail", "site", "a@b", 8001) == [], "once a cause"
    assert (
        len(firings.untold("mail", "site", "c@d", 8001)) == 2
        and len(firings.untold("webhook", "site", "a@b", 8001)) == 2
    )
    firings.see("site", True, [alarm()], 100_000.0)
    assert len(firings.untold("mail", "site", "a@b", 100_000)) == 1, "a day later it is said again"
    assert firings.told([oldest, newest]) == {oldest.id: {"mail": 1}, newest.id: {}}


def test_firings_of_one_person_are_forgotten(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    those = [alarm("anna's", owner="anna", schedd="ap1"), alarm("others", owner="anna", schedd="ap2"), alarm("site")]
    firings.see("site", False, those, 1000.0)
    firings.tell("mail", "anna@example.org", firings.since(0), 1000.0)
    assert firings.forget("Anna", [("anna", "ap1")], ["anna@example.org"]) == 1
    assert {one.cause for one in firings.since(0)} == {"others", "site"}
    assert b"anna@example" not in (tmp_path / FILE).read_bytes() and b"anna's" not in (tmp_path / FILE).read_bytes()


def test_what_a_person_posted_is_forgotten_with_its_firings(tmp_path: Path) -> None:
    firings = Firings(tmp_path)
    firings.see("site", False, [alarm(f"{who}/disk", when="outside") for who in ("Anna", "Annabel")], 1000.0)
    assert firings.forget("Anna", []) == 1
    assert [one.cause for one in firings.since(0)] == ["Annabel/disk"]


def test_old_firings_have_pseudonyms_and_no_address(tmp_path: Path) -> None:
    firings, pseudonyms = Firings(tmp_path), Pseudonyms(b"k" * 32)
    said = {"sentence": "/home/anna/annas failed", "own": "anna's", "evidence": {"blamed": {"owner": "anna"}}}
    those = [alarm("x@anna@ap1", owner="anna", schedd="ap1", **said), alarm("site")]
    firings.see("site", False, those, 1000.0)
    firings.tell("mail", "anna@example.org", firings.since(0), 1000.0)
    firings.see("site", False, [alarm("new", owner="anna", schedd="ap1", **said)], 9000.0)
    assert firings.rename(pseudonyms, 5000.0) == 1 and firings.rename(pseudonyms, 5000.0) == 0
    name = pseudonyms.of("anna", "ap1", quarter_of(1000.0))
    (old,) = (one for one in firings.since(0) if one.owner == name)
    assert (old.cause, old.sentence, old.own) == (f"x@{name}@ap1", f"/home/{name}/annas failed", f"{name}'s")
    assert old.evidence == {"blamed": {"owner": name}} and firings.told([old]) == {old.id: {"mail": 1}}
    assert [one.owner for one in firings.since(0) if one.seen > 5000] == ["anna"]
    assert b"anna@example" not in (tmp_path / FILE).read_bytes()
    assert firings.forget("Anna", [(name, "ap1")]) == 1


@pytest.mark.parametrize("owner", ["since", "12", "null", "józef"])
def test_evidence_stays_as_it_is_but_for_names_whatever_its_owner_is_called(owner: str, tmp_path: Path) -> None:
    firings, pseudonyms = Firings(tmp_path), Pseudonyms(b"k" * 32)
    evidence = {"since": 12.5, "count": 12, "usual": None, "jobs": [{"job": f"of {owner}", "ids": [12]}]}
    firings.see("site", False, [alarm("x", owner=owner, schedd="ap1", evidence=evidence)], 1000.0)
    assert firings.rename(pseudonyms, 5000.0) == 1
    (old,) = firings.since(0)
    assert old.evidence == {**evidence, "jobs": [{"job": f"of {old.owner}", "ids": [12]}]}, "or nobody reads firings"


def test_firings_of_a_newer_hub_are_refused(tmp_path: Path) -> None:
    with Firings(tmp_path)._connection() as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(Newer):
        Firings(tmp_path)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400), st.text(max_size=80))
def test_no_text_of_a_job_ends_a_header(sentence: str, title: str) -> None:
    mail = Mail("127.0.0.1", 25, "joblens@example.org", "none")
    hostile = f"{title}\r\nBcc: eve@example.org\r\n\r\n{sentence}\n.\nMAIL FROM:<x>"
    firing = Firing(1, "r", "wave", "c", True, 1.0, 2.0, 3, hostile, hostile, hostile, "", "", {})
    for firings in ([firing], [firing, firing]):
        content = message(mail, "ops@example.org", firings, "", 1.7e9).as_bytes()
        head = content.partition(b"\n\n")[0]
        names = [line.partition(b":")[0].lower() for line in head.split(b"\n") if not line.startswith((b" ", b"\t"))]
        assert len(names) == len(set(names)) and b"bcc" not in names
        assert set(names) <= {
            b"subject", b"from", b"to", b"date", b"message-id", b"auto-submitted", b"mime-version", b"content-type",
            b"content-transfer-encoding",
        }  # fmt: skip
        assert max(map(len, content.split(b"\n"))) < 998
    for wrong in ("ops@example.org\nBcc: eve@example.org", "eve", "", "a@b c", "<a@b>"):
        with pytest.raises(JobLensError, match="no address"):
            message(mail, wrong, [firing], "", 1.7e9)


@pytest.fixture
def smtp() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.stop()


class Looker:
    """A watch at a time of the test's, which finds what the test says."""

    def __init__(self, folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.found, self.said = 1_700_049_600.0, list[Alarm](), list[str]()  # noon
        (folder / "rules").write_text(text)
        (folder / "people").write_text(PEOPLE)
        self.firings = Firings(folder)
        monkeypatch.setattr(watching, "alarms", lambda reader, whens: self.found)
        store: Any = None
        self.posted = Posted(folder)
        files = folder / "rules", folder / "people"
        self.watch = Watch(*files, store, self.firings, self.posted, self.said.append, lambda: self.now)

    def look(self, *found: Alarm, later: float = 60.0) -> None:
        self.now, self.found = self.now + later, list(found)
        self.watch.step()


def of_port(port: int) -> str:
    return TEXT.replace("127.0.0.1:25", f"127.0.0.1:{port}").replace('webhook = "http', '# webhook = "http')


def test_mail_is_a_digest_once_a_cause_and_to_owners_of_their_own(
    tmp_path: Path, smtp: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, port = smtp, smtp.port
    looker = Looker(tmp_path, of_port(port), monkeypatch)
    mine = alarm("hers", owner="anna", schedd="ap1", own="12 of your jobs failed.")
    looker.look(alarm(), mine)
    assert sorted(to for (to,), _ in kept.mails) == ["anna@example.org", "ops@example.org"], looker.said
    texts = {to: text for (to,), text in kept.mails}
    assert "SIGSEGV in /home/x." in texts["ops@example.org"] and "hers in /home/x." in texts["ops@example.org"]
    assert "12 of your jobs failed." in texts["anna@example.org"]
    assert "SIGSEGV" not in texts["anna@example.org"] and "hers in" not in texts["anna@example.org"]
    assert "https://joblens.example.org/rules" in texts["anna@example.org"]
    assert "Auto-Submitted: auto-generated" in texts["ops@example.org"]
    looker.look(alarm(), mine)
    looker.look(alarm("other"), alarm("more"))
    assert len(kept.mails) == 2, "the next digest has not come"
    looker.look(alarm("other"), later=1800)
    assert [to for (to,), _ in kept.mails[2:]] == ["ops@example.org"]
    assert "other in" in kept.mails[2][1] and "more in" in kept.mails[2][1] and "SIGSEGV" not in kept.mails[2][1]
    for _ in range(40):
        looker.look(alarm(), mine, later=1800)
    assert len(kept.mails) == 3 and looker.said == []


def test_in_quiet_hours_mail_waits(tmp_path: Path, smtp: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, port = smtp, smtp.port
    looker = Looker(tmp_path, of_port(port), monkeypatch)
    looker.look(later=10 * 3600)  # 22:00
    for number in range(3):
        looker.look(alarm(f"night{number}"), later=3600)
    assert kept.mails == [] and len(looker.firings.since(0)) == 3
    looker.look(later=6 * 3600)
    ((_, text),) = kept.mails
    assert "3 alarms" in text and all(f"night{number} in" in text for number in range(3))


def test_a_server_that_takes_no_mail_is_said_once_and_asked_again(
    tmp_path: Path, smtp: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, port = smtp, smtp.port
    kept.answer = "451 not now"
    looker = Looker(tmp_path, of_port(port), monkeypatch)
    for _ in range(3):
        looker.look(alarm())
    assert len(looker.said) == 1 and "does not take mail" in looker.said[0]
    moment, trouble = looker.firings.last_look()
    assert moment == looker.now and trouble == [looker.said[0].removeprefix("rules: ")]
    kept.answer = "250 OK"
    looker.look()
    assert len(kept.mails) == 1
    looker.watch._file.write_text(of_port(port).replace('"none"', '"starttls"'))
    looker.look(alarm("clear"), later=3600)
    assert len(kept.mails) == 1 and "STARTTLS" in looker.said[-1], "nothing goes in the clear"
    looker.watch._file.write_text("[[rule]")
    looker.look(alarm("clear"))
    assert any("stay as they were" in line for line in looker.said)


def test_a_mail_server_that_was_gone_for_days_gets_what_still_lasts(
    tmp_path: Path, smtp: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    smtp.answer = "451 not now"
    looker = Looker(tmp_path, of_port(smtp.port), monkeypatch)
    for _ in range(3 * 48):
        looker.look(alarm(), later=1800)
    smtp.answer = "250 OK"
    while looker.watch._settings.is_quiet(looker.now):
        looker.look(alarm(), later=1800)
    looker.look(alarm(), later=1800)
    looker.look(alarm(), later=1800)
    assert [to for (to,), _ in smtp.mails] == ["ops@example.org"]


def test_two_rules_about_one_cause_send_one_mail(
    tmp_path: Path, smtp: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = '[[rule]]\nname = "again"\nwhen = "wave"\nmail = ["administrators"]\n'
    looker = Looker(tmp_path, of_port(smtp.port) + more, monkeypatch)
    for _ in range(4):
        looker.look(alarm(), later=1800)
    assert len(smtp.mails) == 1 and len(looker.firings.since(0)) == 2


POST = {"key": "disk", "title": "the disk is full", "text": "of server 7", "evidence": {"free": 0.5, "of": ["a", None]}}


def test_a_posted_alarm_fires_and_lasts_for_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = '[[rule]]\nname = "disks"\nwhen = "outside"\nsource = "Anna"\nred = true\n'
    looker = Looker(tmp_path, rule, monkeypatch)
    looker.posted.post("Anna", read_post(json.dumps(POST).encode()), looker.now)
    looker.posted.post("Bert", read_post(json.dumps(POST).encode()), looker.now)
    looker.look()
    looker.posted.post("Anna", read_post(json.dumps({**POST, "count": 3}).encode()), looker.now)
    looker.look()
    (firing,) = looker.firings.since(0)
    assert firing.title == "Anna: the disk is full" and firing.count == 3 and firing.lasts(looker.now)
    assert "of server 7" in firing.sentence and firing.evidence == POST["evidence"]
    looker.look(later=3600)
    looker.look(later=400)
    assert len(looker.firings.since(0)) == 1 and not looker.firings.since(0)[0].lasts(looker.now)


def test_what_was_posted_while_nobody_looked_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looker = Looker(tmp_path, '[[rule]]\nname = "x"\nwhen = "outside"\n', monkeypatch)
    looker.look()
    looker.posted.post("Anna", read_post(json.dumps(POST).encode()), looker.now + 60)
    looker.look(later=9 * 3600)
    assert len(looker.firings.since(0)) == 1


@pytest.mark.parametrize(
    "body, why",
    [
        (b"[]", "is a JSON object"),
        (b"{", "is a JSON object"),
        (b"\xff", "is a JSON object"),
        (b"[" * 9000, "is a JSON object"),
        (b'{"key": "a", "title": "b", "count": NaN}', "is no number"),
        (b'{"key": "a", "title": "b", "evidence": {"x": 1e999}}', "greater than any"),
        (b'{"key": "a", "title": "\\ud800"}', "is a JSON object"),
        (b'{"key": "a"}', "title is missing"),
        (b'{"key": "", "title": "b"}', "key has 1 to 100"),
        (b'{"key": "a", "title": 3}', "of the type string"),
        (b'{"key": "a", "title": "b", "count": true}', "of the type integer"),
        (b'{"key": "a", "title": "b", "count": 0}', "count is 1 to"),
        (b'{"key": "a", "title": "b", "mail": "eve@example.org"}', "there is no mail"),
        (json.dumps({**POST, "evidence": {"x": "y" * 9000}}).encode(), "evidence has 8 KiB"),
        (b" " * (MOST_BYTES + 1), "16 KiB at most"),
    ],
)
def test_what_is_wrong_with_a_post_is_said(body: bytes, why: str) -> None:
    with pytest.raises(WrongPost, match=re.escape(why)):
        read_post(body)


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=300)
    | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_no_post_is_a_fault_of_the_hub(body: bytes) -> None:
    try:
        found = read_post(body)
    except WrongPost:
        return
    assert set(found) == set(BODY["properties"])


def test_posts_are_bounded(tmp_path: Path) -> None:
    posted, alarm = Posted(tmp_path), read_post(json.dumps(POST).encode())
    for number in range(MOST_AN_HOUR):
        posted.post("Anna", {**alarm, "key": str(number)}, 1000.0 + number)
    with pytest.raises(TooOften):
        posted.post("Anna", alarm, 1100.0)
    posted.post("Bert", alarm, 1100.0)
    posted.post("Anna", alarm, 9000.0)
    assert len(posted.alarms(0)) == MOST_AN_HOUR + 2
    assert Firings(tmp_path).forget("Anna", []) == MOST_AN_HOUR + 1
    assert [one.source for one in posted.alarms(0)] == ["Bert"]


class Hook(http.server.BaseHTTPRequestHandler):
    posts: list[tuple[str, str, bytes]]
    status = 204

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.posts.append((self.path, self.headers["JobLens-Signature"], body))
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[tuple[type[Hook], int]]:
    kind = type("OneHook", (Hook,), {"posts": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kind, server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def with_hook(tmp_path: Path, hook: tuple[type[Hook], int]) -> Callable[[str], str]:
    (tmp_path / "secret").write_text("a secret of sixteen letters\n")

    def made(text: str) -> str:
        text = text.replace("/nowhere/secret", str(tmp_path / "secret")).replace("8080", str(hook[1]))
        return text.replace('mail = ["administrators", "owners"]', "")

    return made


def test_posts_are_signed_and_go_once(
    tmp_path: Path, hook: tuple[type[Hook], int], with_hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, _ = hook
    kind.status = 302
    looker = Looker(tmp_path, with_hook(TEXT), monkeypatch)
    looker.look(alarm(owner="anna", schedd="ap1"))
    assert len(kind.posts) == 1 and "answers 302" in looker.said[0], "a redirection is not followed"
    kind.status = 204
    for _ in range(3):
        looker.look(alarm(owner="anna", schedd="ap1"))
    assert len(kind.posts) == 2
    path, signed, body = kind.posts[1]
    stamp, _, digest = signed.removeprefix("t=").partition(",v1=")
    secret = b"a secret of sixteen letters"
    assert digest == hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    (firing,) = json.loads(body)["firings"]
    assert path == "/hook?x=1" and firing["sentence"] == "SIGSEGV in /home/x." and "owner" not in firing


def test_nothing_is_posted_where_the_list_does_not_say_so(hook: tuple[type[Hook], int], with_hook: Any) -> None:
    kind, port = hook
    found = read(with_hook(TEXT))
    for url in (f"http://localhost:{port}/hook", "http://127.0.0.1:1/hook", f"https://127.0.0.1:{port}@evil/"):
        with pytest.raises(JobLensError, match="on no host"):
            post(found, url, [], 1.0)
    assert kind.posts == []
