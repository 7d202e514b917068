"""The hub with a real store: what nodes send is kept once, whatever is killed meanwhile."""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import json
import os
import pwd
import random
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_server import Hub
from sinks import complaints, deliver, make, runs, until

from condor_joblens.common.errors import JobLensError
from condor_joblens.export.records import RowEncoder
from condor_joblens.hub.store.client import Store, StoreUnfit
from condor_joblens.hub.store.schema import LIVE_FIELDS, LIVE_METRICS
from condor_joblens.model.metrics import METRICS
from condor_joblens.sinks import Record, RecordKind
from condor_joblens.sinks.hub import HubSink


@pytest.fixture(scope="module")
def hub(folder: Path, server: Any) -> Iterator[Hub]:
    with server(Hub, folder / "hub") as started:
        yield started


def sink(hub: Hub, node: str = "node1", **macros: str) -> Any:
    return make(HubSink, URL=hub.url, TOKEN_FILE=str(hub.folder / node), **macros)


FAR = (1 << 63) - 1
"""Seconds after the epoch, of which no calendar knows."""


def records(name: str, count: int, sequences: Sequence[int], kind: RecordKind = RecordKind.SAMPLE) -> list[Record]:
    """Of `count` runs of the cluster `name`, each with these sequence numbers; of now."""
    found = []
    for sequence in sequences:
        rows = runs(count, sequence)
        for number in range(count):
            rows["global_job_id"][number] = f"ap.example.org#{name}.{number}#1700000000"
            rows["run"][number] = f"ap.example.org#{name}.{number}#1700000000#1"
        rows["update_time"] = int(time.time())
        found += RowEncoder("node1").records(rows, kind)
    return found


def of(name: str) -> dict[str, str]:
    return {"like": f"ap.example.org#{name}.%"}


def asked(hub: Hub, query: str, **parameters: Any) -> list[dict[str, Any]]:
    """Once the store answers: it may have been killed just now."""
    found: list[list[dict[str, Any]]] = []

    def ask() -> bool:
        try:
            found.append(hub.ask(query, **parameters))
        except JobLensError:
            return False
        return True

    until(ask, "the store")
    return found[0]


def test_every_number_arrives_equal(hub: Hub) -> None:
    batch = records("10", 20, [1]) + records("10", 20, [2], RecordKind.JOB)
    assert deliver(sink(hub), batch) == []
    for table, kind in (("samples", "sample"), ("jobs", "job")):
        rows = asked(hub, f"SELECT * FROM {table} FINAL WHERE GlobalJobId LIKE {{like:String}}", **of("10"))
        found = {row["Id"]: row for row in rows}
        sent = [one.fields() for one in batch if one.kind.value == kind]
        assert len(found) == len(sent) == 20
        for fields in sent:
            row = found[fields["Id"]]
            for metric in METRICS:
                value: Any = fields
                kept: Any = row
                for word in metric.path.split("."):
                    value, kept = value[word], kept[word]
                assert value == kept, metric.path


def test_what_comes_twice_and_in_any_order_is_kept_once(hub: Hub) -> None:
    batch = records("11", 30, range(1, 21)) + records("11", 30, [20], RecordKind.JOB)
    doubled = batch * 2
    random.Random(7).shuffle(doubled)
    for begin in range(0, len(doubled), 400):
        assert deliver(sink(hub), doubled[begin : begin + 400]) == []
    (samples,) = asked(
        hub,
        "SELECT count() AS n, uniqExact(Id) AS ids FROM samples FINAL WHERE GlobalJobId LIKE {like:String}",
        **of("11"),
    )
    assert samples == {"n": 600, "ids": 600}
    rows = asked(hub, "SELECT Type, Sequence FROM latest FINAL WHERE GlobalJobId LIKE {like:String}", **of("11"))
    assert rows == [{"Type": "job", "Sequence": 20}] * 30, "the newest of each run, whatever came last"
    columns = ", ".join((*LIVE_FIELDS, *LIVE_METRICS))
    like = "FINAL WHERE GlobalJobId LIKE {like:String}"
    newest, live = (
        asked(hub, f"SELECT tuple({columns}) AS row FROM {table} {like} ORDER BY Run", **of("11"))
        for table in ("latest", "live")
    )
    assert len(live) == 30 and live == newest


def test_what_comes_twice_in_one_post_is_kept_once(hub: Hub) -> None:
    """The store does not look for it as it inserts."""
    batch = records("19", 50, [1, 2])
    assert deliver(sink(hub), batch * 3) == []
    (found,) = asked(
        hub,
        "SELECT count() AS n, uniqExact(Id) AS ids FROM samples FINAL WHERE GlobalJobId LIKE {like:String}",
        **of("19"),
    )
    assert found == {"n": 100, "ids": 100}
    (newest,) = asked(
        hub,
        "SELECT count() AS n, min(Sequence) AS least FROM latest FINAL WHERE GlobalJobId LIKE {like:String}",
        **of("19"),
    )
    assert newest == {"n": 50, "least": 2}


def test_a_node_speaks_for_itself_alone(hub: Hub) -> None:
    outcome = sink(hub, "node2").deliver(records("12", 3, [1]))
    assert list(outcome.refused) == [0, 1, 2] and "the token is node2's" in outcome.refused[0]
    stranger = hub.folder / "stranger"
    stranger.write_text("trout")
    stranger.chmod(0o600)
    outcome = sink(hub, "stranger").deliver(records("12", 3, [1]))
    assert list(outcome.retry) == [0, 1, 2] and "refuses us (401)" in outcome.reason
    assert asked(hub, "SELECT count() AS n FROM samples WHERE GlobalJobId LIKE {like:String}", **of("12")) == [{"n": 0}]


def test_a_row_that_the_store_can_t_take_costs_no_other(hub: Hub) -> None:
    batch = records("13", 5, [1])
    batch[2] = replace(
        batch[2], json=batch[2].json.replace(b'"Cpu":{', b'"Cpu":{"Odd":"x","Seconds":"odd","No":{', 1) + b"}"
    )
    outcome = sink(hub).deliver(batch)
    assert not outcome.retry and list(outcome.refused) == [2]
    (found,) = asked(hub, "SELECT count() AS n FROM samples FINAL WHERE GlobalJobId LIKE {like:String}", **of("13"))
    assert found == {"n": 4}


def test_doctor_says_what_is_right_and_wrong(hub: Hub) -> None:
    assert all(one.ok for one in sink(hub).check())
    assert any("the token is that of node2" in line for line in complaints(sink(hub, "node2")))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("word", ["store", "ingest"])
def test_what_was_confirmed_survives_kill_9(hub: Hub, word: str) -> None:
    """Batches go on while a process is killed at moments that nobody chose; each is handed in until it is confirmed."""
    name = {"store": "14", "ingest": "15"}[word]
    numbers = np.random.default_rng(3).permutation(24)
    sender, kills = sink(hub), 0
    for sequence in range(24):
        if numbers[sequence] < 5:
            kills += hub.kill_one(word)
        deliver(sender, records(name, 50, [sequence + 1]), 120)
    assert kills
    (found,) = asked(
        hub,
        "SELECT count() AS n, uniqExact(Id) AS ids FROM samples FINAL WHERE GlobalJobId LIKE {like:String}",
        **of(name),
    )
    assert found == {"n": 24 * 50, "ids": 24 * 50}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("which", ["pages", "records"])
def test_connections_that_say_nothing_keep_nobody_out(hub: Hub, which: str) -> None:
    port, path, count = (hub.pages_port, "/login", 560) if which == "pages" else (hub.port, "/v1/alive", 20)
    silent = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(count)]
    for each in silent[::2]:
        each.send(b"GET / HT")  # a request that is never whole
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
        request.add_header("Authorization", f"Bearer {hub.tokens['node1']}")

        def answers() -> bool:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return bool(answer.status == 200)
            except OSError:  # HTTPError too: those that are closed are not gone yet
                return False

        until(answers, "an answer")
        for each in silent[::2]:  # and all of them are closed in the end
            each.settimeout(120)
            with contextlib.suppress(ConnectionError):
                while each.recv(4096):
                    pass
    finally:
        for each in silent:
            each.close()


def test_nobody_takes_a_port_while_a_process_of_the_hub_is_down(hub: Hub) -> None:
    for word, port in (("ingest", hub.port), ("web", hub.pages_port)):
        until(lambda: hub.kill_one(word), f"{word} to be killed")  # noqa: B023
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
        until(hub.answers, "the hub")


def test_what_a_node_says_breaks_no_page(hub: Hub) -> None:
    good, bad = records("17", 1, [1]), records("18", 6, [1])
    for number, (there, instead) in enumerate(
        [
            (b'"UpdateTime":', b'"UpdateTime":null,"Was":'),
            (b'"JobId":', b'"Servers":"no json","JobId":'),
            (b'"JobId":', b'"Servers":[1],"JobId":'),
            (b'"StartTime":', b'"Servers":[{"items":1}],"StartTime":null,"Began":'),
            (b'"StartTime":', b'"Servers":[{"Name":"x","Seconds":1e308,"Requests":-1}],"StartTime":%d,"Began":' % FAR),
            (b'"StartTime":', b'"Servers":[{"Name":"x","Seconds":1e308,"Errors":[]}],"StartTime":-%d,"Began":' % FAR),
        ]
    ):
        assert there in bad[number].json
        bad[number] = replace(bad[number], json=bad[number].json.replace(there, instead, 1))
    outcome = sink(hub).deliver([*good, *bad])
    assert not outcome.retry and outcome.refused == {1: "it has no UpdateTime"}
    hub.people.write_text(f"[Anna]\nrole = administrator\nlogin = unix:{pwd.getpwuid(os.getuid()).pw_name}\n")
    paths = ["/", "/jobs?state=all", "/jobs.json?state=all", "/servers", "/servers.json", "/servers/x"]
    for name in ("17.0", "18.1", "18.2", "18.3", "18.4", "18.5"):
        run = urllib.parse.quote(f"ap.example.org#{name}#1700000000#1", safe="")
        paths += [f"/job/{run}", f"/job/{run}.json"]
    try:
        for path in paths:
            connection = http.client.HTTPConnection("localhost", timeout=60)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(hub.folder / "sockets/pages.sock"))
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200, (path, answer.read(300))
            connection.close()
    finally:
        hub.people.write_text("")


def test_a_person_can_ask(hub: Hub) -> None:
    """The command of docs/hub.md."""
    page = (Path(__file__).parents[2] / "docs/hub.md").read_text()
    command = page[page.index("curl -s") :].partition("```")[0]
    assert deliver(sink(hub), records("16", 3, [1])) == []
    command = command.replace("/var/lib/joblens-hub", f"{hub.folder}/kept")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert "runs" in json.loads(done.stdout.splitlines()[0]), done


def test_it_refuses_to_be_roots(hub: Hub) -> None:
    done = subprocess.run(
        hub.command(), env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1 and "is not root's" in done.stderr


@contextlib.contextmanager
def at_an_address(hub: Hub) -> Iterator[str]:
    """The hub's own engine as a ClickHouse server has it: at a port, for the user `hub` with the password `perch`."""
    login = "Basic " + base64.b64encode(b"hub:perch").decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Authorization"] != login:
                return self._say(403, b"Code: 516. DB::Exception: hub: Authentication failed. (AUTHENTICATION_FAILED)")
            connection = http.client.HTTPConnection("localhost", timeout=120)
            with contextlib.closing(connection):
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.connect(f"{hub.folder}/kept/store.sock")
                connection.request("POST", self.path, body)
                answer = connection.getresponse()
                return self._say(answer.status, answer.read())

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://hub@127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_store_at_an_address_is_used_by_its_user_and_password(hub: Hub, place: Path) -> None:
    (place / "good").write_text("perch\n")
    (place / "wrong").write_text("pike\n")
    batch = records("70", 3, [1])
    assert deliver(sink(hub), batch) == []
    with at_an_address(hub) as address:
        store = Store(address, str(place / "good"))
        store.begin()
        (row,) = store.ask("SELECT count() AS n FROM samples FINAL WHERE GlobalJobId LIKE {like:String}", **of("70"))
        assert row == {"n": 3}
        with pytest.raises(StoreUnfit, match="Authentication failed"):
            Store(address, str(place / "wrong")).begin()
        command = hub.command()
        command[command.index("--folder") + 1] = f"{hub.folder}/kept/another"
        done = subprocess.run(
            ["setpriv", *hub.as_user(), *command, "--store", address, "--store-password", f"{place}/wrong"],
            env={**os.environ, **hub.environment()}, capture_output=True, text=True, timeout=120, cwd="/", check=False,
        )  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "Authentication failed" in done.stderr
