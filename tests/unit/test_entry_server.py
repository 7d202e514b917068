"""Entries on the relay server's machine: who may say them, where they are kept, and how nodes get them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import stat
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_socket import Server
from entry_samples import entry
from test_commands import Site

from condor_joblens.agent.levels.entries import Entries
from condor_joblens.cli import control as control_command
from condor_joblens.cli import main
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common.config import Config
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.open_socket import listening_at
from condor_joblens.common.tokens import Who, digest
from condor_joblens.control import audit
from condor_joblens.control.entries import MOST_ENTRIES, BadEntries, Entry, Role
from condor_joblens.control.keys import key_in
from condor_joblens.model.levels import Level
from condor_joblens.relay import control, hub, paced_log, preview
from condor_joblens.relay.control import Control
from condor_joblens.relay.entry_store import EntryStore
from condor_joblens.relay.relay import Relay
from condor_joblens.relay.roles import read_roles
from condor_joblens.relay.server import RelayServer

ROLES = """
administrator ann   # of the site
operator carol
operator dave
manager erin physics
hub pages
owners example.org
"""


class Node(Site):
    """A node that has entries."""

    def __init__(self, entries: Entries, may: str) -> None:
        super().__init__(config=Config(hub_may=may))
        self.entries = entries

    def take_entries(self, packet: bytes) -> None:
        self.entries.take(packet, self.config)

    def count_entry(self, packet: bytes) -> dict[str, Any]:
        asked = self.entries.asked(packet, self.config)
        shared = {other.name: 2 for other in self.entries.holding(self.config)}
        return counts(Jobs=3, Raised=2, Beaten=1 if asked.user else 0, Contradicts=shared)


def counts(**fields: Any) -> dict[str, Any]:
    """What a node answers to a question: nothing, but for these."""
    usual = dict.fromkeys(("Jobs", "Raised", "Lowered", "Beaten", "Capped", "Begun"), 0)
    return {**usual, "Before": [0] * 5, "After": [0] * 5, "Contradicts": {}, **fields}


class Place:
    """A relay server with its socket for people, and nodes with their relays: all real, on the loopback."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.lines, self.asker = folder, list[str](), "root"
        monkeypatch.setattr(control, "name_of", lambda uid: self.asker)
        monkeypatch.setattr(control, "nobodys", lambda: (os.getuid(),) if self.asker == "nobody" else ())
        monkeypatch.setattr(control, "AGAIN_SECONDS", 0.05)
        monkeypatch.setattr(control, "COUNT_SECONDS", 60.0)
        monkeypatch.setattr(control, "TAKEN_SECONDS", 60.0)
        monkeypatch.setattr(control, "PATIENCE", 60.0)
        monkeypatch.setattr(control_command, "PATIENCE", 60.0)
        monkeypatch.setattr(control.Audit, "pace", lambda audit, uid: None)
        self.socket = str(folder / "control.sock")
        self.store = EntryStore(str(folder))
        self.nodes: dict[str, Entries] = {}
        self.joblensds: list[Server] = []
        self.relays: list[Relay] = []

    def node(self, name: str, may: str = "levels") -> Entries:
        (self.folder / f"{name}.run").mkdir()
        entries = Entries(str(self.folder / f"{name}.run"), key_in(self.store.public_key))
        self.joblensds.append(Server(str(self.folder / name), Dispatcher(Node(entries, may)).stream))
        self.nodes[name] = entries
        return entries

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        server = RelayServer({digest(name): Who("node", name) for name in self.nodes}, self.lines.append)
        people = Control(listening_at(self.socket), self.store, read_roles(ROLES), server, self.lines.append)
        self.people = people
        tasks = [asyncio.create_task(people.run())]
        async with server.start("127.0.0.1", 0) as listening:
            url = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
            for name in self.nodes:
                relay = Relay(url, name, str(self.folder / name), self.lines.append)
                tasks.append(asyncio.create_task(relay.run()))
            try:
                await self.until(lambda: len(server._nodes) == len(self.nodes))
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    def words(self, *arguments: str) -> list[str]:
        """The command line."""
        return ["control", "--json", "--socket", self.socket, *arguments]

    async def says(self, *arguments: str, who: str = "root") -> dict[str, Any]:
        """What `joblens control` answers. Raises JobLensError."""
        self.asker = who
        options = main.parser().parse_args(self.words(*arguments))
        fields = {"name": options.name} if options.action == "end" else {}
        if options.action in ("add", "preview"):
            fields = control_command._entry(options)
        return await asyncio.to_thread(control_command._asked, self.socket, options.action, fields)

    async def adds(self, *arguments: str, who: str = "root") -> str:
        """The name of a new entry."""
        answer = await self.says("add", "--for", "1h", "--reason", "why not", *arguments, who=who)
        name: str = answer["Added"]["Name"]
        return name

    async def refused(self, *arguments: str, who: str) -> str:
        """Why it is not done."""
        with pytest.raises(JobLensError) as refused:
            await self.says(*arguments, who=who)
        return str(refused.value)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    made = Place(tmp_path, monkeypatch)
    yield made
    for joblensd in made.joblensds:
        joblensd.stop()


def runs(place: Place, course: Callable[[], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        async with place.serve():
            await course()

    asyncio.run(asyncio.wait_for(all_of_it(), 120))


def held(entries: Entries) -> list[Entry]:
    return entries.holding(Config(hub_may="levels"))


def test_nodes_get_what_was_said_and_what_was_ended(place: Place) -> None:
    first, second = place.node("one"), place.node("two")

    async def course() -> None:
        name = await place.adds("--user", "alice", "--at-least", "io")
        assert held(first) and held(second), "its author is answered when they have taken it"
        (said,) = held(first)
        assert (said.name, said.user, said.least, said.role) == (name, "alice", Level.IO, Role.ADMINISTRATOR)
        await place.until(lambda: place.lines)
        listed = await place.says("list")
        assert [each["Name"] for each in listed["Entries"]] == [name]
        assert (listed["Nodes"], listed["Taken"]) == (2, 2)
        await place.says("end", name)
        assert not held(first) and not held(second)

    runs(place, course)


def test_a_node_that_does_not_answer_is_not_waited_for_long(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "TAKEN_SECONDS", 0.05)
    node = place.node("one")
    answers = threading.Event()
    monkeypatch.setattr(node, "take", lambda packet, config: answers.wait())

    async def course() -> None:
        try:
            said = await place.says("add", "--for", "1h", "--reason", "why", "--at-least", "io")
            assert (said["Nodes"], said["Taken"], said["Refused"]) == (1, 0, 0)
        finally:
            answers.set()

    runs(place, course)


def test_a_program_gets_all_that_an_entry_says() -> None:
    said = entry(least=Level.IO, most=Level.IO, period=5.0, user="alice", cluster=0, begins=1_000, ends=61_999)
    told = control.told(said)
    words = {"Whom": "user alice, cluster 0", "What": "exactly io, a period of 5 s", "Reason": "slow jobs"}
    who = {"Name": said.name, "Role": "operator", "Author": "carol"}
    bounds = {"AtLeast": "io", "AtMost": "io", "PeriodSeconds": 5.0}
    assert told == {**who, **words, **bounds, "Begin": 1, "Until": 61, "User": "alice", "Cluster": 0}
    assert "Cluster" not in control.told(entry(least=Level.IO))


def test_a_preview_sums_what_nodes_count_and_changes_nothing(place: Place) -> None:
    first, _, _ = place.node("one"), place.node("two", may="numbers"), place.node("three", may="none")

    async def course() -> None:
        preview = "preview", "--for", "1h", "--reason", "why", "--at-least", "io"
        said = await place.says(*preview, "--user", "alice")
        counted = {name: said[name] for name in ("Jobs", "Raised", "Lowered", "Beaten")}
        assert counted == {"Jobs": 6, "Raised": 4, "Lowered": 0, "Beaten": 2}
        assert (said["Nodes"], said["Answered"], said["NodesWithJobs"], said["AtMost"]) == (3, 2, 2, False)
        assert (await place.says(*preview, "--expression", "true"))["AtMost"] is True
        assert "your own jobs only" in await place.refused(*preview, "--user", "bob", who="alice")
        assert "says a level" in await place.refused(*preview[:-2], who="ann")
        assert held(first) == [] and place.store.holding() == []

    runs(place, course)


def test_a_preview_names_what_it_contradicts_and_how_many_jobs_are_of_both(place: Place) -> None:
    first, second = place.node("one"), place.node("two")

    async def course() -> None:
        most = await place.adds("--user", "alice", "--at-most", "basic", who="carol")
        await place.adds("--user", "bob", "--at-most", "basic")
        await place.adds("--at-most", "io")
        await place.until(lambda: len(held(first)) == len(held(second)) == 3)
        said = await place.says("preview", "--for", "1h", "--reason", "x", "--user", "alice@pool", "--at-least", "io")
        (contradicted,) = said["Contradicts"]
        assert contradicted["Name"] == most and contradicted["Jobs"] == 4
        assert (contradicted["Role"], contradicted["Author"]) == ("operator", "carol")

    runs(place, course)


def test_the_hub_alone_speaks_for_others_and_within_their_roles(place: Place) -> None:
    """As its pages do: for staff and managers, never as an owner of jobs."""

    async def course() -> None:
        entry = {"seconds": "60", "reason": "why", "least": "io", "group": "physics.top"}

        async def adds(who: str = "pages", **more: str) -> dict[str, Any]:
            place.asker = who
            return await asyncio.to_thread(control_command._asked, place.socket, "add", {**entry, **more})

        added = await adds(asker="Mona", asker_role="manager", asker_groups="chemistry\nphysics")
        assert (added["Added"]["Author"], added["Added"]["Role"]) == ("hub:Mona", "manager")
        for who, role, groups, why in (
            ("pages", "manager", "chemistry", "name a group of yours"),
            ("pages", "owner", "", "only administrator, operator, manager"),
            ("pages", "root", "", "only administrator, operator, manager"),
            ("ann", "operator", "", "speaks for others"),
        ):
            with pytest.raises(JobLensError, match=why):
                await adds(who, asker="Mona", asker_role=role, asker_groups=groups)

    runs(place, course)


@pytest.mark.parametrize(
    "one, other, may",
    [
        ({}, {"user": "alice"}, True),
        ({"user": "alice"}, {"user": "bob"}, False),
        ({"user": "alice"}, {"user": "alice@pool"}, True),
        ({"user": "alice@pool"}, {"user": "alice@other"}, False),
        ({"user": "alice"}, {"node": "wn1"}, True),
        ({"node": "wn1"}, {"node": "wn1.example.org"}, True),
        ({"node": "wn1"}, {"node": "wn2"}, False),
        ({"group": "physics"}, {"group": "physics.top"}, True),
        ({"group": "physics"}, {"group": "physicists"}, False),
        ({"group": "Physics"}, {"group": "physics.Top"}, True),
        ({"cluster": 1}, {"cluster": 1, "vo": "cms"}, True),
        ({"cluster": 1}, {"cluster": 2}, False),
        ({"executable": "a"}, {"executable": "b"}, False),
        ({"expression": "false"}, {}, True),
    ],
)
def test_which_entries_can_be_for_one_job(one: dict[str, Any], other: dict[str, Any], may: bool) -> None:
    pair = entry(least=Level.IO, **one), entry(most=Level.BASIC, **other)
    assert pair[0].may_share_jobs(pair[1]) is pair[1].may_share_jobs(pair[0]) is may
    assert preview.contradicting(pair[0], [pair[1]]) == ([pair[1]] if may else [])
    assert preview.contradicting(pair[0], [entry(most=Level.IO), entry(least=Level.TRACE)]) == []


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"[" * 999, b"{}", b'{"Jobs": "x"}', b"1" * 5000]
    + [
        json.dumps(counts(**wrong)).encode()
        for wrong in (
            {"Jobs": True},
            {"Jobs": 1.5},
            {"Begun": None},
            {"Before": [0] * 4},
            {"After": "00000"},
            {"After": [0, 0, 0, 0, "1"]},
            {"Contradicts": []},
            {"Contradicts": {"e1": "x"}},
        )
    ],
)
def test_a_node_that_counts_nonsense_is_left_out(answer: bytes) -> None:
    assert preview.counted(answer) is None
    huge = counts(Jobs=-5, Raised=1 << 90, Begun=-1 << 90, After=[-1, 0, 1 << 90, 0, 0], Contradicts={"e1": 1 << 90})
    most = 1 << 20
    wanted = counts(Raised=most, Begun=-most, After=[0, 0, most, 0, 0], Contradicts={"e1": most})
    assert preview.counted(json.dumps({**huge, "more": "x"}).encode()) == wanted


def test_a_node_that_comes_later_gets_them_and_one_that_takes_none_is_named(place: Place) -> None:
    place.store.add(entry(least=Level.IO))
    first, second = place.node("one"), place.node("two", may="numbers")

    async def course() -> None:
        await place.until(lambda: held(first))
        listed = await place.says("list")
        while listed["Taken"] + listed["Refused"] < 2:
            listed = await place.says("list")
        assert listed["Refused"] == 1 and "JOBLENS_HUB_MAY is numbers" in listed["Reasons"]["two"]

    runs(place, course)
    assert held(second) == []
    assert sum("node two does not take entries" in line for line in place.lines) == 1


def test_a_node_whose_joblensd_did_not_answer_is_told_again(place: Place) -> None:
    first = place.node("one")
    place.joblensds.pop().stop()

    async def course() -> None:
        await place.adds("--at-least", "io")
        await place.until(lambda: any("does not take entries" in line for line in place.lines))
        place.joblensds.append(Server(str(place.folder / "one"), Dispatcher(Node(first, "levels")).stream))
        await place.until(lambda: held(first))

    runs(place, course)


def test_a_server_that_was_killed_has_them_when_it_is_back_and_meanwhile_they_hold(place: Place) -> None:
    first = place.node("one")

    async def before() -> None:
        await place.adds("--user", "alice", "--at-least", "io")
        await place.until(lambda: held(first))

    runs(place, before)
    (name,) = (each.name for each in held(first))
    place.store = EntryStore(str(place.folder))

    async def after() -> None:
        listed = await place.says("list")
        while listed["Taken"] < 1:
            listed = await place.says("list")
        assert [each["Name"] for each in listed["Entries"]] == [name] == [each.name for each in held(first)]
        await place.says("end", name)
        await place.until(lambda: not held(first))

    runs(place, after)


def test_of_two_servers_with_one_key_the_later_list_holds_and_another_key_says_nothing(
    place: Place, tmp_path: Path
) -> None:
    first = place.node("one")
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy2(place.folder / "online_key", copy)
    config = Config(hub_may="levels")
    place.store.add(entry(least=Level.IO, user="alice"))
    earlier = EntryStore(str(copy), lambda: 1_000_000.0)
    earlier.add(entry(least=Level.IO, user="bob"))
    first.take(place.store.packet(), config)
    with pytest.raises(BadEntries, match="a later list was taken already"):
        first.take(earlier.packet(), config)
    assert [each.user for each in held(first)] == ["alice"]
    (tmp_path / "third").mkdir()
    stranger = EntryStore(str(tmp_path / "third"))
    stranger.add(entry(least=Level.IO, user="eve"))
    with pytest.raises(BadEntries, match="has not signed this"):
        first.take(stranger.packet(), config)
    later = EntryStore(str(copy))
    later.add(entry(least=Level.IO, user="carol"))
    first.take(later.packet(), config)
    users = [each.user for each in held(first)]
    assert users == ["bob", "carol"], "a list is whole: what the other server alone has is over"


def test_who_may_say_what(place: Place) -> None:
    async def course() -> None:
        assert "you have no role" in await place.refused("list", who="")
        assert "nobody knows who you are" in await place.refused("list", who="nobody")
        add = "add", "--for", "1h", "--reason", "why"
        assert "name a group of yours" in await place.refused(*add, "--at-least", "io", who="erin")
        assert "name a group of yours" in await place.refused(*add, "--group", "phys", "--at-least", "io", who="erin")
        more = "--group", "physics", "--at-most", "basic"
        assert "closer, and no less" in await place.refused(*add, *more, who="erin")
        managers = await place.adds("--group", "Physics.top", "--at-least", "io", who="erin")
        assert "your own jobs only" in await place.refused(*add, "--user", "bob", "--at-least", "io", who="alice")
        owners = await place.adds("--at-least", "io", who="alice")
        operators = await place.adds("--exactly", "basic", who="carol")
        ours = await place.adds("--exactly", "io", who="ann")
        others = [await place.adds("--at-least", "basic", who="bob") for _ in range(control.OF_ONE)]
        assert "at most 4 entries of a user" in await place.refused(*add, "--at-least", "io", who="bob")
        for name in others:
            await place.says("end", name, who="bob")
        listed = {each["Name"]: each for each in (await place.says("list"))["Entries"]}
        assert [listed[name]["Role"] for name in (managers, owners, operators, ours)] == [
            "manager", "owner", "operator", "administrator"
        ]  # fmt: skip
        assert listed[owners]["Whom"] == "user alice@example.org"
        for name, who in ((managers, "alice"), (owners, "bob"), (operators, "erin"), (ours, "carol")):
            assert f"entry {name} is of" in await place.refused("end", name, who=who) or who == "bob"
        assert "only its author and the staff" in await place.refused("end", owners, who="bob")
        assert "no entry e00 holds" in await place.refused("end", "e00", who="ann")
        for name, who in ((owners, "alice"), (managers, "carol"), (operators, "dave"), (ours, "root")):
            await place.says("end", name, who=who)
        assert (await place.says("list"))["Entries"] == []

    runs(place, course)


def test_what_is_wrong_is_said_and_changes_nothing(place: Place) -> None:
    async def course() -> None:
        for arguments, why in (
            (("--at-least", "nonsense"), "at least: nonsense is not a level"),
            (("--at-most", "9"), "at most: 9 is not a level"),
            (("--at-least", "io", "--cluster", "x"), "cluster: is a whole number from 0 to 2147483647"),
            (("--at-least", "io", "--cluster", str(1 << 31)), "cluster: is a whole number from 0 to 2147483647"),
            (("--period", "x"), "period: is a number of seconds"),
            (("--period", "0.01"), "period: is from 0.1 to 3600 s"),
            (("--at-least", "io", "--period", "0"), "period: is from 0.1 to 3600 s"),
            (("--period", "3601"), "period: is from 0.1 to 3600 s"),
            (("--period", "nan"), "period: is from 0.1 to 3600 s"),
            ((), "says a level"),
            (("--at-least", "io", "--at-most", "basic"), "at least io and at most basic contradict each other"),
            (("--at-least", "io", "--user", "é"), "user: write at most 256 printable ASCII"),
            (("--at-least", "io", "--expression", "x" * 257), "expression: write at most 256 printable ASCII"),
            (("--at-least", "io", "--reason", "x" * 201), "reason: write at most 200 printable ASCII characters"),
            (("--at-least", "io", "--reason", "für"), "reason: write at most 200 printable ASCII characters"),
            (("--at-least", "io", "--reason", ""), "an author and a reason"),
        ):
            assert why in await place.refused("add", "--for", "1h", "--reason", "why", *arguments, who="ann")
        for seconds, why in (("86401", "for: is a whole number from 0 to 86400"), ("0", "ends after it begins")):
            with pytest.raises(JobLensError, match=why):
                fields = {"seconds": seconds, "least": "io", "reason": "why"}
                await asyncio.to_thread(control_command._asked, place.socket, "add", fields)
        assert place.store.holding() == []
        place.store._keep([entry(least=Level.IO) for _ in range(MOST_ENTRIES)])
        one_more = "add", "--for", "1h", "--reason", "why", "--at-least", "io"
        assert "at most 50 entries hold at a time: end one" in await place.refused(*one_more, who="ann")
        with pytest.raises(JobLensError, match="at most 50 entries hold at a time: end one"):  # before it is previewed
            await asyncio.to_thread(control_command.run, main.parser().parse_args(place.words(*one_more, "--yes")))
        assert (await place.says("preview", *one_more[1:], who="ann"))["Jobs"] == 0, "who only asks needs no room"
        assert len(place.store.holding()) == MOST_ENTRIES

    runs(place, course)


@pytest.mark.parametrize("time", ["0s", "25h", "2d", "-1s", "x"])
def test_an_entry_holds_for_a_day_at_most(time: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["control", "add", "--at-least", "io", "--reason", "why", f"--for={time}"])
    assert "is no time from 1s to 24h: write 30s, 10m or 2h" in capsys.readouterr().err


def test_what_was_said_and_the_key_outlive_the_server_and_a_later_list_is_later(tmp_path: Path) -> None:
    clock = [2_000_000.0]
    store = EntryStore(str(tmp_path), lambda: clock[0])
    store.add(entry(least=Level.IO, begins=2_000_000_000, ends=2_000_060_000))
    serial = store.held.serial
    clock[0] = 1_000_000.0  # it was set back
    again = EntryStore(str(tmp_path), lambda: clock[0])
    assert again.public_key == store.public_key and len(again.holding()) == 1
    again.end(again.holding()[0].name)
    assert again.held.serial > serial
    assert {stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in ("online_key", "entries")} == {0o600}
    (tmp_path / "entries").write_bytes(b"x")
    with pytest.raises(JobLensError, match="remove it, and add its entries again"):
        EntryStore(str(tmp_path))


@pytest.mark.parametrize("line", ["administrator", "manager erin", "owners", "root carol", "operator a b"])
def test_a_wrong_line_of_the_roles_is_named(line: str) -> None:
    with pytest.raises(JobLensError, match="line 2 of the roles is not"):
        read_roles(f"# who\n{line}\n")


def test_the_answers_are_sentences(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = {**control.told(entry(least=Level.IO, user="alice\x1b")), "Name": "e1"}
    nodes = {"Nodes": 3, "Taken": 1, "Refused": 1, "Reasons": {"two": "why"}}
    answers = {"add": {"Added": said, **nodes}, "list": {"Entries": [said], **nodes}, "key": {"Key": "ed25519:x"}}
    answers["preview"], answers["end"] = previewed(), {"Ended": said, **nodes}
    monkeypatch.setattr(control_command, "_asked", lambda path, action, fields: answers[action])
    assert main.main(["control", "add", "--at-least", "io", "--for", "1h", "--reason", "x"]) == 0
    assert main.main(["control", "list"]) == 0
    assert main.main(["control", "end", "e1"]) == 0
    assert main.main(["control", "key"]) == 0
    out = capsys.readouterr().out
    assert "entry e1 for user alice\\x1b: at least io, by operator carol until " in out
    assert out.count("taken by 1 of 3 connected nodes, 1 refuses, 1 has not answered yet") == 3
    assert out.count(" yet: ask `joblens control list`\n") == 2
    assert "two: why" in out and out.endswith("ed25519:x\n")
    monkeypatch.setattr(control_command, "_asked", lambda path, action, fields: {"Entries": [], **nodes})
    for words in (["--json", "list"], ["list", "--json"]):
        assert main.main(["control", *words]) == 0
        assert json.loads(capsys.readouterr().out)["Nodes"] == 3
    assert main.main(["control", "add", "--exactly", "io", "--at-most", "io", "--for", "1h", "--reason", "x"]) == 2
    assert "--exactly says both bounds: leave --at-most away" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["add", "preview"])
def test_what_is_no_expression_is_said_at_once(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    rest = ["--at-least", "io", "--for", "1h", "--reason", "x"]
    assert main.main(["control", action, "--expression", "Owner ==\x1b", *rest]) == 2
    assert "--expression: Owner ==\\x1b is no ClassAd expression" in capsys.readouterr().err


def previewed(**fields: Any) -> dict[str, Any]:
    """What the server answers to a preview, but for these."""
    jobs = counts(Jobs=1240, Raised=1200, Beaten=40, Before=[0, 1240, 0, 0, 0], After=[0, 40, 1200, 0, 0], Begun=1240)
    nodes = {"Nodes": 312, "Answered": 310, "NodesWithJobs": 309, "AtMost": False}
    return {**jobs, **nodes, "Contradicts": [], **fields}


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `joblens control preview` says of an answer with these fields."""

    def said(**fields: Any) -> str:
        monkeypatch.setattr(control_command, "_asked", lambda path, action, asked: previewed(**fields))
        assert main.main(["control", "preview", "--at-least", "io", "--for", "1h", "--reason", "x"]) == 0
        return capsys.readouterr().out

    return said


def test_a_preview_is_sentences(says: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    first, cost = says(AtMost=True).splitlines()
    assert first.startswith("matches at most 1240 running jobs on 309 nodes: 1200 would be raised, 0 lowered, 40 ")
    assert first.endswith("2 of 312 connected nodes have not answered, or refuse")
    assert cost == (
        "these nodes gain 0.45 % of a core each on average, by what was measured, at 10,000 system calls and 1,000 "
        "context switches a second in each job (docs/policies.md)"
    )
    assert "have not answered" not in says(Nodes=310)
    assert "are spared 0.45 % of a core" in says(Before=[0, 0, 1240, 0, 0], After=[0, 1240, 0, 0, 0], Begun=-1240)
    assert "gain 0 % of a core" in says(Before=[0] * 5, After=[0] * 5, Begun=0)
    monkeypatch.setattr(control_command, "gained", lambda *_: 2e-18)
    assert "gain 0 % of a core" in says()
    assert says(Jobs=0, NodesWithJobs=0).startswith("matches no running job: it would be for jobs that start later. 2 ")
    assert "core" not in says(Jobs=0, NodesWithJobs=0)
    assert "1 running job on 1 node: 1 would be raised, 0 lowered. 1 of 2 connected nodes has not answered" in says(
        Jobs=1, Raised=1, Beaten=0, NodesWithJobs=1, Nodes=2, Answered=1
    )
    assert "7 of them are not as close as it says: their nodes allow less to entries" in says(Capped=7)
    other = control.told(entry(most=Level.BASIC, node="wn12", reason="load\x1b"))
    contradicts = says(Contradicts=[{**other, "Jobs": 12}]).splitlines()[-1]
    assert contradicts.startswith(f"contradicts entry {other['Name']} for node wn12: at most basic, by operator carol")
    assert re.search(r" until \d\d:\d\d \S+: load\\x1b \(12 running jobs\)$", contradicts)


@pytest.mark.parametrize("word, holds", [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_what_an_entry_comes_to_is_shown_before_it_holds_and_at_a_terminal_it_is_asked_for(
    word: str, holds: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    nodes = {"Nodes": 3, "Taken": 3, "Refused": 0, "Reasons": {}}
    answers = {"preview": previewed(), "add": {"Added": control.told(entry(least=Level.IO)), **nodes}}
    monkeypatch.setattr(control_command, "_asked", lambda path, action, fields: asked.append(action) or answers[action])
    stdin = io.StringIO(word)
    monkeypatch.setattr(sys, "stdin", stdin)
    add = ["control", "add", "--at-least", "io", "--for", "1h", "--reason", "x"]
    assert main.main(add) == 0, "who is no person is not asked"
    assert main.main(["control", "--json", *add[1:]]) == 0
    said = capsys.readouterr()
    assert "matches 1240 running jobs" in said.err and said.out.startswith("entry e")
    assert '"CoresGained": 1.39' in said.out
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    assert main.main([*add, "--yes"]) == 0
    assert "Does it hold" not in capsys.readouterr().err
    asked.clear()
    assert main.main(add) == (0 if holds else 1)
    assert asked == (["preview", "add"] if holds else ["preview"])
    said = capsys.readouterr()
    assert "Does it hold from now on? [y/N]" in said.err and ("no entry was added" in said.err) is not holds


def test_the_server_makes_a_socket_and_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "roles").write_text(ROLES)
    options = main_options(tmp_path)
    lines: list[str] = []
    monkeypatch.setattr(hub, "_log", lines.append)
    made = hub._control(RelayServer({}, lines.append), options)
    assert made.roles.of("carol") is Role.OPERATOR
    assert stat.S_IMODE(os.stat(tmp_path / "control.sock").st_mode) == 0o666
    assert "entries are signed by ed25519:" in lines[0]
    made._listener.close()


def main_options(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(entries=str(folder), roles=str(folder / "roles"), control=str(folder / "control.sock"))


def test_a_flood_at_its_socket_has_its_sum_without_another_word(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced_log, "LOOK_SECONDS", 0.01)

    async def course() -> None:
        for _ in range(audit.REFUSALS + 1):
            await place.refused("end", "e1", who="nobody")
        assert not any("more commands" in line for line in place.lines)
        monkeypatch.setattr(audit, "REFUSALS_SECONDS", 0.0)
        place.people._audit._due = 0.0
        await place.until(lambda: any("1 more commands were refused" in line for line in place.lines))

    runs(place, course)


def test_nodes_that_come_at_once_have_one_list_and_later_ones_another(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o700)
    now = [1_800_000_000.0]
    store = EntryStore(str(tmp_path / "folder"), lambda: now[0])
    first = store.packet()
    now[0] += 0.9
    assert store.packet() is first
    store.add(entry(least=Level.IO, user="alice"))
    second = store.packet()
    assert second != first and store.packet() is second, "what is new is told at once"
    for change in (1.0, -3600.0):
        now[0] += change
        assert store.packet() != second


@pytest.mark.parametrize("name", ["user", "group", "expression", "cluster"])
def test_an_empty_word_for_whom_is_not_all_jobs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    socket = str(tmp_path / "control.sock")
    words = ["add", f"--{name}", "", "--at-least", "io", "--for", "1m", "--reason", "slow reads"]
    assert main.main(["control", "--socket", socket, *words]) == 2
    assert capsys.readouterr().err.startswith(f"joblens: --{name} is empty: ")
