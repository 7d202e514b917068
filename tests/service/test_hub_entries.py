"""Entries on the hub's page, said to a real server of entries: who may, what the server is told, and what is noted."""

from __future__ import annotations

import http.client
import os
import pwd
import re
import socket
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from entries_service import Entered, as_somebody, entry_server
from hub_server import ALICE, STAFF, Hub, access, ask
from sinks import until

from condor_joblens.relay.entry_store import EntryStore

MANAGER = """[Mona]
role = manager
login = remote:mona
groups = physics@ap.example.org
"""


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    with as_somebody():
        started = server(Entered, folder / "entries")
        started.people.write_text(ALICE + STAFF + MANAGER)
        with started:
            yield started


@pytest.fixture(scope="module")
def store(hub: Hub, folder: Path) -> Iterator[EntryStore]:
    """Of the server of entries, which runs as long as this."""
    with entry_server(hub, folder / "controller") as found:
        yield found


def post(hub: Hub, person: str, path: str, with_token: bool = True, **form: str) -> tuple[int, str]:
    """Status and text of what a form of the page sends."""
    found: list[tuple[int, str]] = []

    def is_answered() -> bool:
        _, head, text = said(hub, person, "GET", "/entries", {}, "")
        cookie = re.search(r"csrftoken=([^;]+)", head.get("Set-Cookie", ""))
        secret = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', text)
        fields = {**form, **({"csrfmiddlewaretoken": secret[1]} if secret and with_token else {})}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        headers |= {"Cookie": f"csrftoken={cookie[1]}"} if cookie else {}
        status, _, answer = said(hub, person, "POST", path, headers, urllib.parse.urlencode(fields))
        found[:] = [(status, answer)]
        return status != 429

    until(is_answered, "an answer", 120)
    return found[0]


def said(
    hub: Hub, person: str, method: str, path: str, headers: dict[str, str], body: str
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("localhost", timeout=120)
    connection.sock = socket.socket(socket.AF_UNIX)
    os.seteuid(pwd.getpwnam("daemon").pw_uid)
    try:
        connection.sock.connect(str(hub.folder / "sockets/proxy.sock"))
    finally:
        os.seteuid(0)
    connection.request(method, path, body=body, headers={"X-Remote-User": person, **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


RAISE = {"least": "io", "hours": "0.5", "reason": "slow reads"}


def test_an_entry_is_previewed_added_listed_and_ended(hub: Hub, store: EntryStore) -> None:
    status, text = post(hub, "olga", "/entries/preview", user="alice", **RAISE)
    assert status == 200 and "It would be for 0 running jobs" in text and store.holding() == []
    assert post(hub, "olga", "/entries/add", user="alice", **RAISE)[0] == 302
    (entry,) = store.holding()
    assert (entry.author, entry.role.value, entry.whom(), entry.says(), entry.reason) == (
        "hub:Olga", "operator", "user alice", "at least io", "slow reads",
    )  # fmt: skip
    assert entry.ends - entry.begins == 1800 * 1000
    listed = ask(hub, "olga", "/entries.json")[1]
    assert [(one["Name"], one["IsMine"]) for one in listed["entries"]] == [(entry.name, True)]
    assert ask(hub, "mona", "/entries.json")[1]["entries"] == [], "it is of nothing of hers"
    assert post(hub, "mona", "/entries/end", name=entry.name)[0] == 400 and store.holding()
    assert post(hub, "olga", "/entries/end", name=entry.name)[0] == 302 and store.holding() == []
    history = ask(hub, "adam", "/entries.json")[1]["history"]
    assert [(row["who"], row["what"]) for row in history] == [("Olga", "entry ended"), ("Olga", "entry added")]
    assert ask(hub, "mona", "/entries.json")[1]["history"] == []
    assert f"entry added\t{entry.name} for user alice: at least io; slow reads" in access(hub, "audit").stdout


def test_each_says_what_his_role_may(hub: Hub, store: EntryStore) -> None:
    for form, why in (
        ({"group": "chemistry", **RAISE}, "name a group of yours: physics"),
        ({"group": "physics", "expression": "true", **RAISE}, "for the site"),
        ({"group": "physics", "most": "basic", **RAISE, "least": ""}, "watches closer"),
        ({"group": "physics", **RAISE, "hours": "25"}, "up to 24 hours"),
        ({"group": "physics", **RAISE, "reason": ""}, "a reason"),
    ):
        status, text = post(hub, "mona", "/entries/add", **form)
        assert status == 400 and why in text, (form, text)
    assert post(hub, "mona", "/entries/add", group="physics.top", **RAISE)[0] == 302
    (entry,) = store.holding()
    assert (entry.role.value, entry.group) == ("manager", "physics.top")
    assert entry.expression == 'substr(GlobalJobId, 0, 15) == "ap.example.org#"', "her groups are those of a schedd"
    assert post(hub, "adam", "/entries/end", name=entry.name)[0] == 302
    assert [ask(hub, "alice", path)[0] for path in ("/entries", "/entries.json")] == [404, 404]
    assert post(hub, "alice", "/entries/add", with_token=False, user="alice", **RAISE)[0] == 403
    assert post(hub, "olga", "/entries/add", with_token=False, user="alice", **RAISE)[0] == 403, "another site's form"
    assert said(hub, "olga", "GET", "/entries/add", {}, "")[0] == 405 and store.holding() == []
