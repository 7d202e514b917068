"""Commands that a child does, as joblensd hands them out and passes their answers on (agent/owner_commands.py)."""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from condor_joblens.agent import owner_commands
from condor_joblens.agent.owner_commands import OwnerCommands
from condor_joblens.common import descriptors
from condor_joblens.control.verbs import Payer, Refused
from condor_joblens.jobs.run_state import STATE
from condor_joblens.jobs.sandbox import JobSandbox
from condor_joblens.owner_commands import children
from condor_joblens.owner_files.operations import Operations


class Reader:
    """The end of a stream, at which somebody takes what comes or not."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.has_room, self.is_ended = True, False
        self.on_room: Any = None
        self.on_close: Any = None

    def send(self, data: bytes) -> bool:
        self.said.append(data)
        return self.has_room

    def end(self, fields: object) -> None:
        self.is_ended = True


class Site:
    """A node with one run; a test is the child."""

    def __init__(self, folder: Path) -> None:
        state = np.zeros(1, STATE)
        state["cgroup_id"] = folder.stat().st_ino
        scratch = os.open(folder, os.O_RDONLY)
        sandbox = JobSandbox(Operations(), str(folder), scratch, os.getuid(), scratch, os.getuid())
        handles = {0: SimpleNamespace(path=str(folder), sandbox=sandbox)}
        self.node: Any = SimpleNamespace(handles=handles, runs=SimpleNamespace(state=state))
        self.children: list[socket.socket] = []
        self.fails: OSError | None = None
        self.charges: list[Callable[[float], None]] = []
        self.selector = selectors.DefaultSelector()
        self.commands = OwnerCommands(self.node, self, self.selector)  # type: ignore[arg-type]

    def start(self, channel: socket.socket, folder: int, for_whom: object, charge: Callable[[float], None]) -> None:
        if self.fails is not None:
            raise self.fails
        self.charges.append(charge)
        self.children.append(channel.dup())

    def begin(self, whose: Payer = 1000, **request: object) -> Reader:
        reader = Reader()
        self.commands.begin(0, whose, request, reader)  # type: ignore[arg-type]
        return reader

    def serve(self) -> None:
        """Serves what is ready now."""
        while ready := self.selector.select(0):
            for key, _ in ready:
                key.data()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    yield found
    for child in found.children:
        child.close()


def test_the_child_gets_the_request_the_folder_and_the_cgroup(site: Site, tmp_path: Path) -> None:
    reader = site.begin(verb="ps")
    packet, given = descriptors.receive(site.children[0], 1000, 2)
    assert json.loads(packet) == {"verb": "ps"}
    assert [os.fstat(each).st_ino for each in given] == [tmp_path.stat().st_ino] * 2
    for each in given:
        os.close(each)
    site.children[0].send(b"=1")
    site.children[0].send(b".")
    site.children[0].close()
    site.serve()
    assert (reader.said, reader.is_ended) == ([b"=1", b"."], True)


def test_what_children_use_is_their_users_share_and_nobody_elses(site: Site) -> None:
    def ends(reader: Reader, seconds: float) -> None:
        site.charges[-1](seconds)
        reader.on_close()

    for seconds in (1.0, owner_commands.SAVED_OF_A_USER + 2):
        ends(site.begin(verb="ps"), seconds)
    with pytest.raises(Refused, match=r"their share of CPU \(0\.1 of a core, and 10 s\): try again in [0-9]+ s"):
        site.begin(verb="ps")
    ends(site.begin(1001, verb="ps"), 0.1)
    for _ in range(2):
        ends(site.begin(0, verb="ps"), 100.0)


def test_a_child_is_read_as_fast_as_its_reader_is(site: Site) -> None:
    reader = site.begin(verb="tail", follow=True)
    reader.has_room = False
    for number in range(3):
        site.children[0].send(b"=%d" % number)
    site.serve()
    assert reader.said == [b"=0"]
    reader.has_room = True
    reader.on_room()
    site.serve()
    assert reader.said == [b"=0", b"=1", b"=2"] and not reader.is_ended


def test_a_child_whose_reader_leaves_learns_of_it(site: Site) -> None:
    reader = site.begin(verb="tail", follow=True)
    reader.on_close()
    site.serve()
    descriptors.receive(site.children[0], 1000, 2)
    assert site.children[0].recv(10) == b""


def test_commands_at_a_time_are_bounded_for_a_user_and_for_all(site: Site) -> None:
    for _ in range(owner_commands.MOST_OF_A_USER):
        last = site.begin(1000, verb="tail", follow=True)
    with pytest.raises(Refused, match="4 of your commands still go on"):
        site.begin(1000, verb="ps")
    site.begin("staff carol", verb="ps").on_close()  # has places of his own
    for uid in range(owner_commands.MOST_AT_ONCE - owner_commands.MOST_OF_A_USER):
        site.begin(2000 + uid, verb="ps")
    with pytest.raises(Refused, match="commands go on here"):
        site.begin(5000, verb="ps")
    last.on_close()
    site.begin(5000, verb="ps")


def test_few_users_leave_places_for_others(site: Site) -> None:
    """Each who has none yet gets one, as long as there are any; half of them are for those who have more."""
    for uid in range(1000, 1000 + owner_commands.MOST_AT_ONCE):
        while True:
            try:
                site.begin(uid, verb="tail", follow=True)
            except Refused as refused:
                assert "commands" in str(refused)
                break
    owners = [command.whose for command in site.commands._running]
    assert len(owners) == owner_commands.MOST_AT_ONCE
    assert len(set(owners)) >= owner_commands.MOST_AT_ONCE // 2


def test_a_child_that_says_nothing_is_given_up(site: Site) -> None:
    quick, slow = site.begin(verb="ps"), site.begin(verb="tail", follow=True)
    now = time.monotonic()
    assert 0 < site.commands.timeout(now) <= owner_commands.PATIENCE
    site.commands.expire(now + owner_commands.PATIENCE + 1)
    assert (quick.is_ended, slow.is_ended) == (True, False)
    site.commands.expire(now + owner_commands.FOLLOWING_SECONDS + 1)
    assert slow.is_ended
    assert site.commands.timeout(now) == 3600.0


def test_a_child_that_says_too_much_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_commands, "MOST_BYTES", 1500)
    reader = site.begin(verb="tail", follow=False)
    for _ in range(2):
        site.children[0].send(b"=" * 1000)
    site.serve()
    assert (len(reader.said), reader.is_ended) == (1, True)


def test_a_cgroup_of_another_run_is_not_handed_out(site: Site) -> None:
    site.node.runs.state["cgroup_id"] += 1
    with pytest.raises(Refused, match="the job is over"):
        site.begin(verb="kill")
    assert site.children == []


def test_nobody_does_anything_as_who_has_got_the_folder_meanwhile(site: Site) -> None:
    """As when a user is removed, and his files are given to somebody else: a child would be that one."""
    site.node.handles[0].sandbox.scratch_uid = os.getuid() + 1
    for verb in (*children.VERBS, "peek", "trace"):
        with pytest.raises(Refused, match="the job's folder belongs to another user than when the job began"):
            site.begin(verb=verb)
    assert site.children == []


def test_a_machine_that_can_not(site: Site) -> None:
    site.fails = OSError(32, "Broken pipe")
    with pytest.raises(Refused, match="Broken pipe"):
        site.begin(verb="ps")
    site.node.handles[0].sandbox = None
    with pytest.raises(Refused, match="folder is unknown"):
        site.begin(verb="ps")
    with pytest.raises(Refused, match="can't become the job's owner"):
        OwnerCommands(site.node, None, site.selector).begin(0, 0, {}, Reader())  # type: ignore[arg-type]
