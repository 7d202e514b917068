"""Profiles, hang reports and traces by the sink to a hub with its real store, and who sees them."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import socket
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from artifact_node import Node
from hub_server import ALICE, STAFF, Hub, ask
from sinks import deliver, make, runs, until

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))  # its examples of profiles

from profile_samples import hostile, profile, random_profile

from condor_joblens.export.records import RowEncoder
from condor_joblens.profiles import pprof
from condor_joblens.sinks import RecordKind
from condor_joblens.sinks.hub import HubSink

PEOPLE = f"""{ALICE}[Bob]
login = remote:bob
jobs = bob@ap.example.org
[Mona]
role = manager
login = remote:mona
groups = physics@ap.example.org
{STAFF}"""
RUN = "ap.example.org#9.0#1700000000#1"
PATH = f"/job/{urllib.parse.quote(RUN, safe='')}"
LOOKS = b"".join(json.dumps({"bytes": 0, "began": began}).encode() + b"\n" for began in (10.0, 20.0))
SEE, DONT_SEE, SEE_NO_JOB = ("alice", "adam"), ("mona", "olga"), ("bob",)


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    started = server(Hub, folder / "artifacts")
    started.people.write_text(PEOPLE)
    with started:
        send_job(started)
        yield started


def send_job(hub: Hub) -> None:
    rows, now = runs(1, 1), int(time.time())
    rows["global_job_id"], rows["run"], rows["job_id"], rows["owner"] = RUN[:-2], RUN, "9.0", "alice"
    rows["accounting_group"], rows["start_time"], rows["update_time"] = "physics", now - 600, now
    rows["period_seconds"] = 86400
    batch = RowEncoder("node1").records(rows, RecordKind.SAMPLE)
    deliver(make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / "node1")), batch)


def listed(hub: Hub, person: str, count: int) -> list[dict[str, Any]]:
    """What the job's page leads to, once it has so many: an answer serves for some seconds."""
    found: list[list[dict[str, Any]]] = []

    def are_there() -> bool:
        status, answer, text = ask(hub, person, f"{PATH}.json")
        assert status == 200, text
        found[:] = [answer["artifacts"]]
        return len(found[0]) >= count

    until(are_there, "artifacts", 120)
    return found[0]


def test_each_sees_of_artifacts_what_he_may(hub: Hub, place: Path) -> None:
    node = Node(hub, place)
    contents = {"profile": pprof.encode(profile()), "hang": LOOKS, "traceback": b"KeyError: '<b>x</b>'\n"}
    deliver(node.sink, [node.event(RUN, kind, content) for kind, content in contents.items()])
    for person in SEE:
        shown = {one["kind"]: one for one in listed(hub, person, 3)}
        assert shown.keys() == contents.keys() and shown["profile"]["length"] == len(contents["profile"])
        assert "Hang report" in ask(hub, person, PATH)[2]
        for kind, one in shown.items():
            url = f"{PATH}/artifact/{one['id']}"
            status, answer, text = ask(hub, person, f"{url}.json")
            assert status == 200 and answer["artifact"]["kind"] == kind, text
            assert ask(hub, person, url)[0] == 200
            status, _, picture = ask(hub, person, f"{url}.svg")
            assert status == (200 if kind == "profile" else 404)
            assert ("job 9.0 on node1, on the CPU" in picture) == (kind == "profile")
            if kind == "traceback":
                assert answer["text"] == "KeyError: '<b>x</b>'"
                assert "KeyError: &#x27;&lt;b&gt;x&lt;/b&gt;&#x27;" in ask(hub, person, url)[2]
    for person in (*DONT_SEE, *SEE_NO_JOB, "nobody"):
        for one in shown.values():
            for ending in ("", ".json", ".svg"):
                status, _, text = ask(hub, person, f"{PATH}/artifact/{one['id']}{ending}")
                assert status == (401 if person == "nobody" else 404), text
    for person in DONT_SEE:
        status, answer, _ = ask(hub, person, f"{PATH}.json")
        assert status == 200 and answer["artifacts"] == [] and "Hang report" not in ask(hub, person, PATH)[2]
    other = f"/job/{urllib.parse.quote('ap.example.org#8.0#17#1', safe='')}/artifact/{shown['hang']['id']}"
    assert ask(hub, "adam", f"{other}.json")[0] == 404, "of another job"


def test_an_artifact_of_a_node_that_does_not_tell_of_the_run_is_on_no_page(hub: Hub, place: Path) -> None:
    before = len(listed(hub, "alice", 0))
    stranger = Node(hub, place, "node2")
    deliver(stranger.sink, [stranger.event(RUN, "traceback", b"forged")])
    assert (hub.folder / "kept/artifacts").stat().st_mode & 0o077 == 0
    assert any(file.read_bytes() == b"forged" for file in (hub.folder / "kept/artifacts").glob("*.artifact"))
    assert len(listed(hub, "alice", before)) == before


def test_a_large_one_comes_equal_though_the_hub_is_killed(hub: Hub, place: Path) -> None:
    node, content = Node(hub, place), random_profile(1).__repr__().encode() + bytes(range(256)) * 8000
    post, posts, kills = node.sink._artifacts._post, [0], [0]

    def killing(body: bytes) -> Any:
        posts[0] += 1
        if posts[0] in (2, 4):
            until(lambda: hub.kill_one("ingest"), "a process to kill")
            kills[0] += 1
        return post(body)

    node.sink._artifacts._post = killing
    deliver(node.sink, [node.event(RUN, "recorder", content)], 240)
    assert kills == [2]  # the post behind a kill may find the next process already there, and go through
    assert content in [file.read_bytes() for file in (hub.folder / "kept/artifacts").glob("*.artifact")]
    one = next(one for one in listed(hub, "adam", 4) if one["kind"] == "recorder")
    status, answer, _ = ask(hub, "adam", f"{PATH}/artifact/{one['id']}.json")
    assert status == 200 and answer["said"].startswith("It can't be shown"), answer


def test_a_picture_may_do_nothing_but_move_in_itself(hub: Hub, place: Path) -> None:
    node = Node(hub, place)
    deliver(node.sink, [node.event(RUN, "off_cpu", pprof.encode(hostile()))])
    until(lambda: any(one["kind"] == "off_cpu" for one in listed(hub, "alice", 1)), "the picture", 120)
    one = next(one for one in listed(hub, "alice", 1) if one["kind"] == "off_cpu")
    answer = raw(hub, f"{PATH}/artifact/{one['id']}.svg")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ") and "sandbox allow-scripts;" in policy
    assert "'self'" not in policy and "script-src 'unsafe" not in policy and "script-src 'sha256-" in policy
    assert answer.headers["Content-Type"].startswith("image/svg+xml")
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"


def raw(hub: Hub, path: str) -> http.client.HTTPResponse:
    """An answer with its head, for alice."""
    connection = http.client.HTTPConnection("localhost", timeout=120)
    connection.sock = socket.socket(socket.AF_UNIX)
    os.seteuid(pwd.getpwnam("daemon").pw_uid)
    try:
        connection.sock.connect(str(hub.folder / "sockets/proxy.sock"))
    finally:
        os.seteuid(0)
    connection.request("GET", path, headers={"X-Remote-User": "alice"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200
    return answer
