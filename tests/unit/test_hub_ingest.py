"""What the hub makes of posts: each line is checked by itself, nobody speaks for another, and all is bounded."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from condor_joblens.common.tokens import Who, digest
from condor_joblens.hub import strict_json
from condor_joblens.hub.ingest import app as application
from condor_joblens.hub.ingest import gather
from condor_joblens.hub.ingest.app import App
from condor_joblens.hub.ingest.gather import MOST_INSERTS, Gatherer
from condor_joblens.hub.ingest.records import MOST_BYTES, NotAPost, Post, read, unpacked
from condor_joblens.hub.store.client import StoreGone, StoreRefused
from condor_joblens.hub.store.schema import JOBS, SAMPLES, TABLES, Table
from condor_joblens.model.metrics import FIELDS, METRICS

NOW = time.time()


def sample(number: int = 1, **other: Any) -> dict[str, Any]:
    run = "ap#1.0#5#1"
    named = {"Run": run, "GlobalJobId": "ap#1.0#5", "RunNumber": 3, "Sequence": number, "Id": f"{run}/3/{number}"}
    return {"Type": "sample", "Schema": 1, "Node": "ep1", "Time": NOW, "UpdateTime": int(NOW), **named, **other}


def lines(*records: Any) -> bytes:
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in records)


def _named(value: Any) -> str:
    """Of a test's arguments: bodies have the time in them, which no name may have."""
    return value if isinstance(value, str) else "body"


def test_each_kind_goes_to_its_table() -> None:
    job = sample(2, Type="job", Id="ap#1.0#5#1/3/2/final")
    event = {"Type": "event", "Id": "ep1/0/1", "Schema": 1, "Node": "ep1", "Time": NOW, "Kind": "Oom", "Odd": [1]}
    health = {"Type": "health", "Id": "ep1/h/1", "Schema": 1, "Node": "ep1", "Time": NOW}
    found = read(lines(sample(), job, event, health), "ep1", NOW)
    assert not found.refused and [row.table.name for row in found.rows] == ["samples", "jobs", "events", "health"]
    assert json.loads(json.loads(found.rows[2].line)["Whole"]) == event


def step(**other: Any) -> dict[str, Any]:
    """Of a job's life, as an access point tells it."""
    named = {"GlobalJobId": "ap1#1.0#5", "JobId": "9.9", "Owner": "alice", "Sequence": 7, "Kind": "hold"}
    said = {"State": "held", "Reason": "transfer of /data/17 to 10.0.0.1:9618 failed", "Code": 13}
    return {"Type": "job_event", "Schema": 1, "Node": "ap1", "Time": NOW, "Id": "ap1#1.0#5/f", **named, **said, **other}


def test_an_access_point_tells_of_its_own_jobs_and_of_nothing_else() -> None:
    others = [step(GlobalJobId="ap2#1.0#5"), step(GlobalJobId="ap2@ap10#1.0#5"), step(Node="ap2"), sample(Node="ap1")]
    found = read(lines(step(), step(GlobalJobId="s@AP1#1.0#5"), *others), "ap1", NOW, role="access-point")
    assert [row.table.name for row in found.rows] == ["job_events", "job_events"]
    assert list(found.refused) == [2, 3, 4, 5]
    row = json.loads(found.rows[0].line)
    assert (row["JobId"], row["Cause"]) == ("1.0", "transfer of /data/N to an address failed")
    assert list(read(lines(step(), sample(Node="ap1")), "ap1", NOW).refused) == [0]
    assert not read(lines(step(), sample(Node="ap1")), "ap1", NOW, role="both").refused


@pytest.mark.parametrize(
    "other",
    [
        {"Owner": ""}, {"Owner": 5}, {"Sequence": -1}, {"Sequence": 1 << 70}, {"Sequence": True}, {"Sequence": 1.5},
        {"Code": "13"}, {"Reason": ["x"]}, {"GlobalJobId": "ap1#1"}, {"GlobalJobId": "ap1#1.0#5#6"}, {"State": None},
        {"Time": NOW - 31 * 86400}, {"Time": NOW + 7200},
    ],
)  # fmt: skip
def test_a_step_that_makes_no_sense_is_refused_by_itself(other: dict[str, Any]) -> None:
    found = read(lines(step(), step(**other)), "ap1", NOW, role="access-point")
    assert len(found.rows) == 1 and list(found.refused) == [1]


def test_records_of_another_schema_are_kept_as_they_came() -> None:
    other = sample(1, Schema=2, Cpu={"Seconds": "of another meaning"})
    found = read(lines(other, sample(2)), "ep1", NOW)
    assert not found.refused and [row.table.name for row in found.rows] == ["other_schemas", "samples"]
    row = json.loads(found.rows[0].line)
    assert json.loads(row["Whole"]) == other and (row["Schema"], row["Id"]) == (2, other["Id"])


def test_why_a_run_failed_is_said_without_what_differs_and_by_nobody_else() -> None:
    job = sample(2, Type="job", Id="ap#1.0#5#1/3/2/final", Death="out of memory: reco held 3.9 GiB of 4 GiB")
    for record in (job, {**job, "Cause": "forged"}):
        (row,) = read(lines(record), "ep1", NOW, period=300).rows
        assert json.loads(row.line) == {**job, "Cause": "out of memory: reco", "SinkPeriodSeconds": 300}
    (row,) = read(lines(sample(2, Death="x")), "ep1", NOW).rows
    assert json.loads(row.line) == sample(2, Death="x"), "a run that goes on has not failed"


@pytest.mark.parametrize(
    "record, why",
    [
        (b"{", "Expecting"),
        (b"[" * 100_000, ""),
        (b"7", "is a JSON object"),
        (b'{"Type": ["sample"]}', "it has no Type"),
        (sample(Type="other"), "no type of record 'other'"),
        (sample(Schema=True), "its schema is True"),
        (sample(Schema=1 << 20), "its schema is 1048576"),
        (sample(Node="ep2"), "the token is ep1's"),
        (lines(sample()).replace(b'"Node": "ep1"', b'"Node": "ep1", "Node": "ep2"').strip(), "the token is ep1's"),
        (sample(Time=NOW + 7200), "ahead of the hub's clock"),
        (sample(Time=NOW - 15 * 86400), "more than 14 days ago"),
        (sample(Time="now"), "no Time"),
        (sample(UpdateTime=None), "no UpdateTime"),
        (sample(UpdateTime=int(NOW) + 86400), "its UpdateTime is 86"),
        (sample(UpdateTime=10**400), "no UpdateTime"),
        (sample(Time=10**400), "no Time"),
        (sample(Time=True), "no Time"),
        (lines(sample()).replace(str(NOW).encode(), b"NaN").strip(), "NaN is no number"),
        (sample(Id="ap#2.0#5#1/3/1"), "its Id is not that"),
        (sample(GlobalJobId=""), "no GlobalJobId"),
        (sample(Cpu={"Seconds": "x" * (300 << 10)}), "too long"),
        (sample(Executable="/x/\udc80"), "half a character"),
        (sample(Schema=2, Executable="\ud83d \ude00"), "half a character"),
    ],
    ids=_named,
)
def test_a_wrong_record_is_refused_by_itself(record: Any, why: str) -> None:
    found = read(lines(sample(1), record, sample(2)), "ep1", NOW)
    assert [row.position for row in found.rows] == [0, 2]
    assert list(found.refused) == [1] and why in found.refused[1] and found.refused[1].isprintable()


def test_a_character_of_two_escapes_is_one() -> None:
    (row,) = read(lines(sample(Executable="/x/\U0001f600 \\udc80")), "ep1", NOW).rows
    assert json.loads(row.line)["Executable"] == "/x/\U0001f600 \\udc80"


def test_a_name_that_stands_twice_stands_once_in_the_row() -> None:
    twice = lines(sample()).replace(b'"Node": "ep1"', b'"Node": "ep2", "Node": "ep1"')
    (row,) = read(twice, "ep1", NOW).rows
    assert row.line.count(b'"Node"') == 1 and b"ep2" not in row.line


@pytest.mark.parametrize(
    "line",
    [
        lines(sample()).replace(b'"Node": "ep1"', b'"Node": "ep1", "\\u004eode": "ep2"'),
        lines(sample()).replace(b'"Node": "ep1"', b'"\\u004eode": "ep2", "Node": "ep1"'),
        lines(sample()).replace(b'"Run": "ap#1.0#5#1"', b'"Run": "x", "Run": "ap#1.0#5#1"'),
    ],
    ids=["after", "before", "run"],
)
def test_no_other_name_is_hidden_in_what_the_store_gets(line: bytes) -> None:
    found = read(line, "ep1", NOW)
    for row in found.rows:
        assert b"\\u" not in row.line and row.line.count(b'"Node"') == row.line.count(b'"Run"') == 1
        assert b"ep2" not in row.line and b'"x"' not in row.line


def test_a_plain_line_says_to_the_store_what_it_says() -> None:
    record = sample(Cpu={"Seconds": 1.5, "Users": {"a": [-1e-300, 2**63 - 1]}}, Owner="\xe9", Odd=None, UpdateTime=NOW)
    for big in ({}, {"Big": 2**70}):
        (row,) = read(lines({**record, **big}), "ep1", NOW).rows
        assert json.loads(row.line) == {**record, **big} and row.names == tuple({**record, **big})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400 + ".0"])
def test_no_number_is_infinite(number: str) -> None:
    found = read(lines(sample(Cpu={"Seconds": 4711})).replace(b"4711", number.encode()), "ep1", NOW)
    assert not found.rows and list(found.refused) == [0]


@pytest.mark.parametrize(
    "body, why",
    [
        (b"no gzip", "not gzip"),
        (gzip.compress(b"x" * 100)[:-4], "not one whole"),
        (gzip.compress(b"x" * 100)[:-8] + bytes(8), "not gzip"),
        (gzip.compress(b"x") + b"more", "not one whole"),
        (gzip.compress(bytes(MOST_BYTES + 1)), "more than 16 MiB"),
    ],
    ids=_named,
)
def test_a_body_that_is_no_post(body: bytes, why: str) -> None:
    with pytest.raises(NotAPost, match=why):
        unpacked(body)


def test_too_many_records_are_no_post() -> None:
    with pytest.raises(NotAPost, match="more than 5000"):
        read(b"\n" * 5001, "ep1", NOW)


def test_a_line_ends_where_a_node_says_so_and_nowhere_else() -> None:
    found = read(b"\r" * 100_000 + b"\n" + b"7\n8", "ep1", NOW)
    assert list(found.refused) == [0, 1, 2]


def test_the_tables_have_every_field_and_metric() -> None:
    for table in (SAMPLES, JOBS):
        assert {field.record_name for field in FIELDS} <= set(table.columns)
        for metric in METRICS:
            group, *_, name = metric.path.split(".")
            assert f"`{name}` Nullable(" in table.columns[group]
    for table in TABLES:
        assert set(table.key) <= set(table.columns)
        assert "Node" in table.key or "Node" not in table.columns, "one node's word would take the place of another's"


# --- posts, from afar


class Kept:
    """A store that keeps lines, or says what a test wants."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.inserts = 0
        self.error: Callable[[list[bytes]], Exception | None] = lambda lines: None

    def insert(
        self, table: Table, lines: list[bytes], leave_out: bool = False, names: frozenset[str] = frozenset()
    ) -> None:
        assert all(json.loads(line).keys() <= names for line in lines), "what is not named would be lost"
        self.inserts += 1
        error = self.error(lines)
        if error is not None:
            raise error
        self.lines += lines


TOKENS = {
    digest("swordfish"): Who("node", "ep1"),
    digest("tuna"): Who("node", "ep2"),
    digest("c"): Who("access-point", "ap1"),
    digest("d"): Who("remote", "r"),
    digest("e"): Who("both", "m1"),
}


async def posted(app: App, body: bytes, token: str = "swordfish", **other: Any) -> tuple[int, dict[str, Any]]:
    head = [(b"authorization", f"Bearer {token}".encode()), (b"content-encoding", b"gzip")]
    head.append((b"content-length", str(other.pop("length", len(body))).encode()))
    scope = {"type": "http", "method": "POST", "path": "/v1/records", "headers": head, **other}
    pieces = [{"type": "http.request", "body": body, "more_body": False}]
    said: list[Any] = []

    async def receive() -> Any:
        return pieces.pop(0)

    async def send(message: Any) -> None:
        said.append(message)

    await app(scope, receive, send)
    return said[0]["status"], json.loads(said[1]["body"])


def run(store: Kept, *posts: Any) -> list[tuple[int, dict[str, Any]]]:
    """The answers to posts that come at a time."""

    async def all_of_them() -> list[Any]:
        app = App(Gatherer(store), lambda: TOKENS)  # type: ignore[arg-type]
        task = asyncio.create_task(app._gatherer.run())
        try:
            return await asyncio.gather(*(post(app) for post in posts))
        finally:
            task.cancel()

    return asyncio.run(all_of_them())


def test_a_post_is_answered_when_its_rows_are_kept() -> None:
    store = Kept()
    body = gzip.compress(lines(sample(1), b"garbage", sample(2)))
    ((status, answer),) = run(store, lambda app: posted(app, body))
    assert status == 200 and list(answer["refused"]) == ["1"] and len(store.lines) == 2


def test_posts_that_come_together_are_one_insert() -> None:
    store = Kept()
    one, two = gzip.compress(lines(sample())), gzip.compress(lines(sample(Node="ep2")))
    found = run(store, lambda app: posted(app, one), lambda app: posted(app, two, "tuna"))
    assert [status for status, _ in found] == [200, 200] and len(store.lines) == 2 and store.inserts <= 2


def test_many_small_posts_that_come_together_are_few_inserts(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [f"n{number}" for number in range(100)]
    monkeypatch.setitem(globals(), "TOKENS", {**TOKENS, **{digest(node): Who("node", node) for node in nodes}})
    store = Kept()
    bodies = {node: gzip.compress(lines(sample(Node=node))) for node in nodes}
    found = run(store, *(lambda app, node=node: posted(app, bodies[node], node) for node in nodes))
    assert [status for status, _ in found] == [200] * 100 and len(store.lines) == 100 and store.inserts < 10


def test_while_much_waits_for_the_store_posts_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    store, may_go_on = Kept(), threading.Event()
    for name in ("MOST_WAITING", "LEAST_WAITING"):
        monkeypatch.setattr(gather, name, 1)
    store.error = lambda lines: None if may_go_on.wait(60) else StoreGone("never")
    one, two = gzip.compress(lines(sample())), gzip.compress(lines(sample(Node="ep2")))

    async def second(app: App) -> Any:
        while not app._gatherer.is_full:
            await asyncio.sleep(0)
        try:
            return await posted(app, two, "tuna")
        finally:
            may_go_on.set()

    (first, (status, answer)) = run(store, lambda app: posted(app, one), second)
    assert first == (200, {"refused": {}}) and status == 503 and answer["error"]
    ((status, _),) = run(store, lambda app: posted(app, two, "tuna"))
    assert status == 200


def test_bodies_that_come_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "MOST_HELD", 300)
    body = gzip.compress(lines(*(sample(number, Owner=str(number)) for number in range(50))))
    assert len(body) > 300

    async def both(app: App) -> Any:
        return [await posted(app, body), await posted(app, gzip.compress(lines(sample())))]

    ((too_much, taken),) = run(Kept(), both)
    assert too_much[0] == 503 and taken == (200, {"refused": {}}), "what was held is free again"


@pytest.mark.parametrize(
    "text",
    [
        b"1e999", b"-1e999", b"NaN", b"1" + b"0" * 400 + b".0", b'"\x01"', b'"\xff"', b"[" * 1010 + b"]" * 1010,
        b'{"a":' * 1010 + b"1" + b"}" * 1010, b"\xef\xbb\xbf1", b'{"a":1,}', b"1 2", b"", b"'x'",
    ],
    ids=_named,
)  # fmt: skip
def test_what_python_refuses_no_quicker_library_takes(text: bytes) -> None:
    for read_it in (strict_json.decoded, lambda text: strict_json.DECODER.decode(text.decode("utf-8"))):
        with pytest.raises((ValueError, RecursionError)):
            read_it(text)


def test_a_line_of_many_brackets_is_known_among_others() -> None:
    flat, deep = b'{"a": [{"b": 1}, {}]}', b'{"a":' * 150 + b"[" * 50 + b"]" * 50 + b"}" * 150
    assert not strict_json.has_deep_line(b"") and not strict_json.has_deep_line(b"\n".join([flat] * 1000))
    for lines in (deep, b"\n" + deep, deep + b"\n", b"\n".join([flat, deep, flat])):
        assert strict_json.has_deep_line(lines)


def test_both_read_the_same() -> None:
    for text in (
        b' {"a": [1, -2.5, "x\\u00e9", null, true], "a": {"b": 0.1}} \r',
        b"18446744073709551615",
        b"[" * 900 + b"]" * 900,
    ):
        assert strict_json.decoded(text) == strict_json.DECODER.decode(text.decode("utf-8"))


def test_a_node_has_one_post_at_a_time() -> None:
    body = gzip.compress(lines(sample()))
    found = run(Kept(), lambda app: posted(app, body), lambda app: posted(app, body))
    assert sorted(status for status, _ in found) == [200, 429]


def test_the_exporter_of_a_machine_of_both_roles_does_not_keep_its_event_log_away() -> None:
    told = step(Node="m1", GlobalJobId="m1#1.0#5", Id="m1#1.0#5/f")
    bodies = [gzip.compress(lines(one)) for one in (sample(Node="m1"), told)]
    both = [lambda app, body=body: posted(app, body, "e") for body in bodies]
    store = Kept()
    assert run(store, *both) == [(200, {"refused": {}})] * 2 and len(store.lines) == 2
    assert sorted(status for status, _ in run(Kept(), *both, both[0])) == [200, 200, 429]


def test_a_store_that_is_gone_promises_nothing() -> None:
    store = Kept()
    store.error = lambda lines: StoreGone("it is gone")
    ((status, answer),) = run(store, lambda app: posted(app, gzip.compress(lines(sample()))))
    assert status == 503 and "it is gone" in answer["error"]


def test_a_failure_of_any_kind_promises_nothing() -> None:
    store = Kept()
    store.error = lambda lines: KeyError("what")
    ((status, _),) = run(store, lambda app: posted(app, gzip.compress(lines(sample()))))
    assert status == 503


def test_a_row_that_the_store_refuses_costs_no_other() -> None:
    store = Kept()
    store.error = lambda lines: StoreRefused("CANNOT_PARSE") if any(b"bad" in line for line in lines) else None
    body = gzip.compress(lines(*(sample(n, Owner="bad" if n == 3 else "good") for n in range(6))))
    ((status, answer),) = run(store, lambda app: posted(app, body))
    assert status == 200 and list(answer["refused"]) == ["3"]
    assert len(set(store.lines)) == 5


def test_a_post_of_wrong_rows_does_not_keep_the_store_from_others() -> None:
    store = Kept()
    store.error = lambda lines: (
        StoreRefused("CANNOT_PARSE " + "x" * 200) if any(b"bad" in each for each in lines) else None
    )
    bodies = [gzip.compress(lines(*(sample(n, Node=node, Owner=who) for n in range(2000)))) for node, who in
              (("ep1", "bad"), ("ep2", "good"))]  # fmt: skip
    bad, good = run(store, lambda app: posted(app, bodies[0]), lambda app: posted(app, bodies[1], "tuna"))
    assert good == (200, {"refused": {}}) and store.inserts <= MOST_INSERTS + 3
    status, answer = bad
    assert status == 200 and list(answer["refused"]) == [str(n) for n in range(2000)]
    assert len(json.dumps(answer)) < 64 << 10, "a node reads no more"


def test_nodes_that_send_slowly_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [f"slow{number}" for number in range(application.COMING // 2)]
    monkeypatch.setattr(application, "SECONDS", 600.0)
    monkeypatch.setitem(globals(), "TOKENS", {**TOKENS, **{digest(node): Who("node", node) for node in nodes}})

    async def slow(app: App, node: str) -> None:
        head = [
            (b"authorization", f"Bearer {node}".encode()),
            (b"content-encoding", b"gzip"),
            (b"content-length", b"9"),
        ]
        scope = {"type": "http", "method": "POST", "path": "/v1/records", "headers": head}
        await app(scope, asyncio.Event().wait, asyncio.Event().wait)

    async def meanwhile(app: App) -> Any:
        tasks = [asyncio.create_task(slow(app, node)) for node in nodes]
        while len(app._busy) < len(nodes):
            await asyncio.sleep(0)
        try:
            return await posted(app, gzip.compress(lines(sample())))
        finally:
            for task in tasks:
                task.cancel()

    assert run(Kept(), meanwhile) == [(200, {"refused": {}})]


@pytest.mark.parametrize(
    "status, other",
    [
        (401, {"token": "trout"}),
        (401, {"token": "d"}),  # somebody's who asks from elsewhere
        (404, {"path": "/"}),
        (405, {"method": "GET"}),
        (413, {"length": 5 << 20}),
        (413, {"length": "x"}),
    ],
)
def test_who_asks_wrongly_is_told(status: int, other: dict[str, Any]) -> None:
    ((found, answer),) = run(Kept(), lambda app: posted(app, gzip.compress(b""), **other))
    assert found == status and answer["error"]


def test_a_body_that_never_comes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "SECONDS", 0.01)

    async def half(app: App) -> Any:
        said: list[Any] = []

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            said.append(message)

        head = [(b"authorization", b"Bearer swordfish"), (b"content-encoding", b"gzip"), (b"content-length", b"9")]
        await app({"type": "http", "method": "POST", "path": "/v1/records", "headers": head}, receive, send)
        return said[0]["status"], {}

    assert run(Kept(), half) == [(408, {})]


def test_an_empty_post_needs_no_store() -> None:
    assert read(b"", "ep1", NOW) == Post()


def test_by_its_token_an_access_point_sends_steps_and_no_artifacts() -> None:
    store = Kept()
    body = gzip.compress(lines(step()))
    (taken, refused) = run(
        store,
        lambda app: posted(app, body, "c"),
        lambda app: posted(app, body, "c", path="/v1/artifacts"),
    )
    assert taken == (200, {"refused": {}}) and len(store.lines) == 1
    assert refused[0] == 403
