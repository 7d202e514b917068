"""Commands of somebody who is on no machine of the site: his request reaches the door, and nobody between has a say."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pwd
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from control_socket import Server
from test_door import MY_NAME, SEALING_KEY, Queue, interruptible, said
from test_relay import KNOWN, Site, runs
from test_remote_commands import ACCESS_POINT, CARRIER, ELSEWHERE, MEANT, NODE, Far, FarSite, Older, public
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from condor_joblens.accesspoint import door as door_process
from condor_joblens.accesspoint import door_server, from_afar
from condor_joblens.accesspoint.door_server import Door
from condor_joblens.accesspoint.from_afar import Afar, Nonces
from condor_joblens.cli import accesspoint, afar, elsewhere
from condor_joblens.commands.dispatch import Dispatcher
from condor_joblens.common import pace, privilege
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.open_socket import listening_at
from condor_joblens.common.tokens import Who, read_tokens
from condor_joblens.control import door, frames, keys, located, warrants
from condor_joblens.control.verbs import Refused
from condor_joblens.relay import messages, server
from condor_joblens.relay.messages import ASK, CARRY, DATA, Message
from condor_joblens.relay.relay import Relay
from condor_joblens.relay.server import RelayServer

__all__ = ["interruptible"]

ME = os.getuid()
JOB = MEANT.run.rpartition("#")[0]
REMOTE = "r"
KILL = {"signal": b"15"}
OTHERS_KEY = public(CARRIER)
CLOSED = "has ended the connection|is joblens-door running"


def ad(**changed: Any) -> dict[str, Any]:
    """The job's, as the schedd has it."""
    usage = {"NodeKey": keys.text_of(public(NODE)), "Run": MEANT.run}
    facts = {"ClusterId": 12, "ProcId": 0, "User": MEANT.user, "GlobalJobId": JOB, "NumShadowStarts": 1}
    more = {"RemoteHost": MEANT.node, "JobStatus": 2, "JobLensKey": keys.text_of(public(ACCESS_POINT))}
    return {**facts, **more, "JobLensUsage": usage, **changed}


class Schedd(Queue):
    """It has one job, in which whoever may edit it has written a proof."""

    def __init__(self) -> None:
        super().__init__()
        self.ad = ad()
        self.answers_itself = True

    def ask(self, uid: int, job: str) -> None:
        assert not self.outstanding, "one question at a time"
        self.asked.append((uid, job))
        self.outstanding += 1
        if self.answers_itself:
            self.answer()

    def take(self) -> tuple[bytes, int] | None:
        self._here.recv(1)
        self.outstanding -= 1
        return said(self.ad, passwd="", supers=f"root\nsomebody\n{MY_NAME}\n"), 0


class Served:
    """A door, with a socket for the relay, in a thread."""

    def __init__(self, folder: Path, relay_uid: int = ME) -> None:
        self.path, self.users = str(folder / "afar.sock"), str(folder / "door.sock")
        self.schedd, self.lines = Schedd(), list[str]()
        self.afar = Afar(listening_at(self.path), relay_uid, Nonces(600))
        listener = listening_at(self.users)
        self.door = Door(listener, self.schedd, ACCESS_POINT, "pool", self.lines.append, afar=self.afar)
        self._over = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over:
            self.door.turn(0.05)

    def stop(self) -> None:
        self._over = True
        self._thread.join()

    def prove(self, nonce: bytes, verb: str = "kill", **arguments: bytes) -> None:
        """The job's owner wants this."""
        proof = door.proof(nonce, verb, "12.0", SEALING_KEY, arguments or KILL)
        self.schedd.ad = ad(JobLensProof=proof)

    def sign(self, nonce: bytes, verb: str = "kill", key: bytes = SEALING_KEY, **arguments: bytes) -> warrants.Warrant:
        signed = door.sign(self.path, verb, "12.0", key, arguments or KILL, nonce)
        return warrants.verify(signed.packet, public(ACCESS_POINT))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(door_server, "PATIENCE", 600.0)  # a machine may stand still
    made = Served(tmp_path)
    yield made
    made.stop()


# -- the door -------------------------------------------------------------------------------------------------


def test_a_proof_in_the_job_is_enough_and_the_log_has_no_user(served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.prove(nonce)
    warrant = served.sign(nonce)
    assert (warrant.user, warrant.by) == (MEANT.user, "somebody by condor_qedit")
    assert (warrant.verb, warrant.arguments, warrant.sealing_key) == ("kill", KILL, SEALING_KEY)
    assert served.schedd.asked == [(from_afar.AFAR, "12.0")]
    assert f"somebody by condor_qedit for {MEANT.user} may kill in {MEANT.node}" in served.lines[-1]


@pytest.mark.parametrize(
    "verb, key, arguments",
    [
        ("kill", OTHERS_KEY, KILL),
        ("kill", SEALING_KEY, {"signal": b"9"}),
        ("kill", SEALING_KEY, {"signal": b"15", "pid": b"1"}),
        ("cat", SEALING_KEY, {"file": b"x"}),
    ],
    ids=["another key", "another signal", "another process", "another verb"],
)
def test_who_carries_it_swaps_nothing_and_does_not_use_up_the_nonce_of_its_owner(
    verb: str, key: bytes, arguments: dict[str, bytes], served: Served
) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.prove(nonce)
    with pytest.raises(JobLensError, match="JobLensProof is not of this request"):
        served.sign(nonce, verb, key, **arguments)
    assert served.sign(nonce).verb == "kill"


def test_a_request_that_is_replayed_opens_nothing_and_costs_the_schedd_nothing(served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.prove(nonce)
    served.sign(nonce)
    asked = len(served.schedd.asked)
    for again in (nonce, bytes(len(nonce)), b"x", b""):
        with pytest.raises(JobLensError, match=r"has been used|proves that he may edit"):
            served.sign(again)
    assert len(served.schedd.asked) == asked


def request(path: str, nonce: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    connection.settimeout(600)
    fields = {door.JOB: b"12.0", door.SEALING_KEY: SEALING_KEY, door.NONCE: nonce}
    for packet in frames.frames(frames.REQUEST, frames.encode_words("kill", {**fields, **KILL})):
        connection.send(packet)
    return connection


def test_of_a_request_that_waits_twice_one_is_signed(served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.prove(nonce)
    served.schedd.answers_itself = False
    both = [request(served.path, nonce) for _ in range(2)]
    while not served.door._waiting:  # one is being asked about
        time.sleep(0.01)
    answers = []
    for each in both:
        while not served.schedd.outstanding:
            time.sleep(0.01)
        served.schedd.answer()
        answers.append(each.recv(1 << 16))
    assert b"signed" in answers[0] and b"has been used" in answers[1]


def test_users_of_this_machine_come_before_those_who_wait_from_afar(tmp_path: Path) -> None:
    served = Served(tmp_path, relay_uid=ME)
    served.stop()  # its turns are this test's
    served.schedd.answers_itself = False
    nonce = served.afar.nonces.new("12.0")
    waiting = [request(served.path, nonce) for _ in range(2)]
    while len(served.door._waiting) < 1:  # the schedd is being asked about one
        served.door.turn(0.05)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    served.door._admit(theirs, ME + 1, True)
    ours.send(next(iter(frames.frames(frames.REQUEST, frames.encode_words("ps", {door.JOB: b"13.0"})))))
    while len(served.door._waiting) < 2:
        served.door.turn(0.05)
    served.schedd.answer()
    while len(served.schedd.asked) < 2:
        served.door.turn(0.05)
    assert served.schedd.asked == [(from_afar.AFAR, "12.0"), (ME + 1, "13.0")]
    for each in (*waiting, ours):
        each.close()


def test_the_relay_s_socket_is_the_relay_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "afar.sock"
    monkeypatch.setattr(privilege, "user", lambda _: pwd.getpwuid(ME))
    made = door_process._afar(str(path))
    assert made is not None and path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_uid == made.relay_uid
    made.listener.close()


def test_no_more_than_some_of_them_wait(served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.schedd.answers_itself = False
    waiting = [request(served.path, nonce) for _ in range(from_afar.AT_ONCE)]
    while len(served.door._askers) < from_afar.AT_ONCE or not served.schedd.outstanding:
        time.sleep(0.01)
    with pytest.raises(JobLensError, match=f"{from_afar.AT_ONCE} requests from afar wait here"):
        served.sign(nonce)
    for each in waiting:
        each.close()


def test_all_of_them_together_have_a_pace(served: Served) -> None:
    served.afar._pace = pace.Pace(2, from_afar.A_SECOND, lambda: 0.0)
    for _ in range(2):
        door.nonce(served.path, "12.0")
    with pytest.raises(JobLensError, match="2 requests a second are taken from afar"):
        door.nonce(served.path, "12.0")


def test_without_a_proof_nobody_asks_whatever_his_name(served: Served) -> None:
    with pytest.raises(JobLensError, match="proves that he may edit the job"):
        door.sign(served.path, "ps", "12.0", SEALING_KEY, {})
    assert served.schedd.asked == []
    for user in ("somebody", "somebody@pool", "root@pool", None, ""):
        nonce = door.nonce(served.path, "12.0")
        served.schedd.ad = ad(User=user)
        with pytest.raises(JobLensError, match="JobLensProof is not of this request"):
            served.sign(nonce)


def test_a_nonce_of_a_user_is_none_from_afar(served: Served) -> None:
    nonce = bytes(16)
    served.door._nonces[nonce] = (from_afar.AFAR, "12.0", time.monotonic() + 600)
    with pytest.raises(JobLensError, match="was not given for this"):
        served.sign(nonce)


def test_the_relay_is_nobody_where_users_ask(served: Served) -> None:
    with pytest.raises(JobLensError, match=CLOSED):
        door.sign(served.users, "ps", "12.0", SEALING_KEY, {})


def test_nobody_but_the_relay_asks_for_those_who_are_afar(tmp_path: Path) -> None:
    other = Served(tmp_path, relay_uid=ME + 1)
    try:
        with pytest.raises(JobLensError, match=CLOSED):
            door.nonce(other.path, "12.0")
    finally:
        other.stop()


def test_nonces_are_known_by_a_secret_for_one_job_a_time_and_a_use() -> None:
    now = [100.0]
    nonces = Nonces(120, lambda: now[0])
    first = nonces.new("12.0")
    nonces.check(first, "12.0")
    wrong = [
        (first, "12.1"),
        (first[:-1], "12.0"),
        (first + b"x", "12.0"),
        (b"", "12.0"),
        (Nonces(120).new("1.0"), "1.0"),
    ]
    for nonce, job in wrong:
        with pytest.raises(Refused, match="was not given for this"):
            nonces.check(nonce, job)
    nonces.use(first, "12.0")
    with pytest.raises(Refused, match="has been used"):
        nonces.use(first, "12.0")
    late = nonces.new("12.0")
    now[0] += 120
    with pytest.raises(Refused, match="too old"):
        nonces.check(late, "12.0")


def test_nonces_that_were_used_are_remembered_as_long_as_they_would_be_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_afar, "USED", 3)
    now = [100.0]
    nonces = Nonces(120, lambda: now[0])
    for _ in range(3):
        nonces.use(nonces.new("12.0"), "12.0")
    with pytest.raises(Refused, match="too many have proved themselves"):
        nonces.use(nonces.new("12.0"), "12.0")
    now[0] += 120
    nonces.use(nonces.new("12.0"), "12.0")
    assert len(nonces._used) == 1


def test_a_pace_is_each_source_s_own_and_sources_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MOST_SOURCES", 2)
    now = [0.0]
    paced = pace.Pace(3, 2.0, lambda: now[0])
    assert [paced.may("a") for _ in range(4)] == [True, True, True, False]
    assert paced.may("b")
    now[0] = 0.5
    assert [paced.may("a"), paced.may("a")] == [True, False]
    for other in "cdef":
        paced.may(other)
    assert len(paced._left) == 2


# -- the way there --------------------------------------------------------------------------------------------


class Person:
    """Somebody elsewhere, with a token; HTCondor lets him edit his job."""

    def __init__(self, site: Site, served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site, self.served = site, served
        self.token = folder / "token"
        self.token.write_text(f"{REMOTE}\n")
        self.token.chmod(0o600)
        self.edits: list[Sequence[str]] = []
        monkeypatch.setattr(elsewhere, "ask", self._qedit)
        monkeypatch.setattr(accesspoint, "read_ads", lambda *_, **__: [served.schedd.ad])
        monkeypatch.setattr(afar, "_sockets", lambda: elsewhere.Server(site.url, str(self.token), ""))

    def _qedit(self, *command: str) -> str:
        self.edits.append(command)
        self.served.schedd.ad = ad(JobLensProof=command[-1].strip('"'))
        return ""

    def asks(self, verb: str, **arguments: str) -> list[bytes]:
        """Raises JobLensError."""
        here = JobLensError("not here")
        return list(afar.from_afar(verb, {"job": "12.0", **arguments}, here))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(warrants, "Acceptance", Older)
    made, path = FarSite(), str(tmp_path / "activate.sock")
    made.runs.rows["global_job_id"][0] = JOB.encode()
    joblensd = Server(path, Dispatcher(made).stream)
    found = Site(Far(path, made))
    know(found)
    yield found
    for relay in elsewhere._relays.values():
        relay.close()
    elsewhere._relays.clear()
    joblensd.stop()


def know(site: Site) -> None:
    remotes = {REMOTE: Who("remote", "alice"), "s": Who("remote", "bob"), "t": Who("remote", "carol")}
    site.server.know({**KNOWN, **{hashlib.sha256(token.encode()).hexdigest(): who for token, who in remotes.items()}})


def course(site: Site, served: Served, what: Callable[[], Awaitable[None]], with_door: bool = True) -> None:
    """While the relay of the access point brings requests to the door."""

    async def all_of_it() -> None:
        relay = Relay(site.url, "a", "", site.lines.append, door=served.path if with_door else "")
        task = asyncio.create_task(relay.run())
        await site.until(lambda: relay.is_connected and sum(p.who.name == "ap" for p in site.server._peers) == 2)
        try:
            await what()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    runs(site, all_of_it)


def test_somebody_elsewhere_asks_his_job_by_a_proof_and_his_token(
    site: Site, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(site, served, tmp_path, monkeypatch)

    async def what() -> None:
        assert await asyncio.to_thread(person.asks, "ps") == [b"=hello"]
        assert await asyncio.to_thread(person.asks, "kill", signal="15") == [b"=hello"]
        assert len(elsewhere._relays) == 1  # one connection for both

    course(site, served, what)
    assert [command[:3] for command in person.edits] == [("condor_qedit", "12.0", "JobLensProof")] * 2
    assert [request["verb"] for _, request in site.far.site.done] == ["ps", "kill"]
    assert "remote alice is here, from 127.0.0.1" in site.lines and "alice to ap: carried" in site.lines


class Hostile(RelayServer):
    """It has all that passes, and does with it what it likes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.swaps: dict[str, bytes] = {}
        self.word = ""
        self.answer: Callable[[bytes], bytes] = bytes
        self.asked: list[bytes] = []

    def _ask(self, peer: Any, message: Message) -> None:
        words = frames.decode_words(message.fields["Packet"])
        if words.word != door.PROVE:
            self.asked.append(message.fields["Packet"])
            swapped = {**words.fields, **self.swaps}
            packet = frames.encode_words(self.word or words.word, {n: v for n, v in swapped.items() if v != b"-"})
            message = Message(ASK, message.number, {**message.fields, "Packet": packet})
        super()._ask(peer, message)

    def _pass_on(self, node: Any, message: Message) -> None:
        if node.who.is_access_point and b"signed" in message.fields["Data"][:20]:
            message = Message(DATA, message.number, {"Data": self.answer(message.fields["Data"])})
        super()._pass_on(node, message)


@pytest.fixture
def hostile(site: Site) -> Hostile:
    site.server = made = Hostile(KNOWN, site.lines.append)
    know(site)
    return made


@pytest.mark.parametrize(
    "word, swaps",
    [
        ("", {"signal": b"9"}),
        ("", {"pid": b"1"}),
        ("", {door.SEALING_KEY: OTHERS_KEY}),
        ("", {door.JOB: b"13.0"}),
        ("ps", {"signal": b"-"}),
        ("cat", {"signal": b"-", "file": b"x"}),
        ("", {door.NONCE: b"-"}),
        ("", {door.NONCE: bytes(40)}),
    ],
    ids=["argument", "more arguments", "sealing key", "job", "verb", "verb and argument", "no nonce", "its own nonce"],
)
def test_a_server_that_swaps_a_part_of_the_request_gets_no_warrant(
    word: str, swaps: dict[str, bytes], site: Site, hostile: Hostile, served: Served, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    person = Person(site, served, tmp_path, monkeypatch)
    hostile.word, hostile.swaps = word, swaps

    async def what() -> None:
        with pytest.raises(JobLensError, match=r"not of this request|was not given for this|proves that he may edit"):
            await asyncio.to_thread(person.asks, "kill", signal="15")

    course(site, served, what)
    assert site.far.site.done == [] and not any(" may " in line and "refused" not in line for line in served.lines)


def invented(change: dict[str, Any], key: Any = ELSEWHERE) -> Callable[[bytes], bytes]:
    """A warrant of the server's own, of what it likes, in place of the door's."""

    def made(answer: bytes) -> bytes:
        words = frames.decode_words(answer)
        fields = warrants.verify(words.fields["Packet"], public(ACCESS_POINT)).__dict__
        packet = warrants.sign(warrants.Warrant(**{**fields, **change}), key)
        return frames.encode_words(words.word, {**words.fields, "Packet": packet})

    return made


def with_its_own_node_key(answer: bytes) -> bytes:
    words = frames.decode_words(answer)
    return frames.encode_words(words.word, {**words.fields, "NodeKey": public(ELSEWHERE), "Node": b"slot1@evil"})


@pytest.mark.parametrize(
    "answer",
    [
        invented({}),
        invented({"verb": "cat"}),
        invented({"verb": "cat"}, ACCESS_POINT),  # one that it has from elsewhere
        invented({"sealing_key": OTHERS_KEY}, ACCESS_POINT),
        invented({"node": "slot1_1@evil"}, ACCESS_POINT),
        lambda _: frames.encode_words("signed", {"Packet": b"x", "Job": b"x", "Node": b"x", "NodeKey": b"x"}),
    ],
    ids=["its own", "another verb", "another's", "another key", "another node", "nonsense"],
)
def test_an_invented_warrant_is_not_believed(
    answer: Callable[[bytes], bytes], site: Site, hostile: Hostile, served: Served, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    person = Person(site, served, tmp_path, monkeypatch)
    hostile.answer = answer

    async def what() -> None:
        with pytest.raises(JobLensError, match=r"is not believed|is of another request"):
            await asyncio.to_thread(person.asks, "ps")

    course(site, served, what)
    assert site.far.site.done == []


def test_whose_answer_is_believed_the_schedd_says_and_nobody_between(
    site: Site, hostile: Hostile, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(site, served, tmp_path, monkeypatch)
    hostile.answer = with_its_own_node_key

    async def what() -> None:
        assert await asyncio.to_thread(person.asks, "ps") == [b"=hello"]

    course(site, served, what)


def test_a_server_that_asks_again_with_what_it_has_seen_gets_nothing(
    site: Site, hostile: Hostile, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(site, served, tmp_path, monkeypatch)

    async def what() -> None:
        await asyncio.to_thread(person.asks, "kill", signal="15")
        relay = Relay(site.url, "s", "", site.lines.append)
        task = asyncio.create_task(relay.run())
        await site.until(lambda: relay.is_connected)
        answer = await relay.ask("ap", hostile.asked[-1])
        assert b"has been used" in answer
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    course(site, served, what)
    assert len(site.far.site.done) == 1


def test_a_request_that_is_kept_back_opens_nothing_when_he_has_given_up(
    site: Site, hostile: Hostile, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(site, served, tmp_path, monkeypatch)
    hostile.swaps = {door.SEALING_KEY: OTHERS_KEY}  # something that is refused, and the request itself is kept

    async def what() -> None:
        with pytest.raises(JobLensError, match="not of this request"):
            await asyncio.to_thread(person.asks, "kill", signal="15")
        hostile.swaps = {}
        relay = Relay(site.url, "s", "", site.lines.append)
        task = asyncio.create_task(relay.run())
        await site.until(lambda: relay.is_connected)
        assert b"not of this request" in await relay.ask("ap", hostile.asked[-1])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    course(site, served, what)
    assert [command[-1] == '""' for command in person.edits] == [False, True]
    assert site.far.site.done == []


def test_the_relay_takes_no_module_from_the_folder_in_which_he_is(
    site: Site, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(site, served, tmp_path, monkeypatch)
    folder = tmp_path / "of others"
    folder.mkdir()
    for name in ("websockets", "condor_joblens", "asyncio"):
        (folder / f"{name}.py").write_text("raise SystemExit('a module of others')\n")
    monkeypatch.chdir(folder)

    async def what() -> None:
        assert await asyncio.to_thread(person.asks, "ps") == [b"=hello"]

    course(site, served, what)


def test_what_is_said_on_the_way_is_said_to_be_of_nobody(
    site: Site, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(site, served, tmp_path, monkeypatch)

    async def what() -> None:
        with pytest.raises(JobLensError, match=r"said on the way.*JOBLENS_DOOR_AFAR_SOCKET is not set"):
            await asyncio.to_thread(person.asks, "ps")

    course(site, served, what, with_door=False)

    async def nowhere() -> None:
        served.schedd.ad = ad(
            GlobalJobId="schedd@nowhere#12.0#1", JobLensUsage={**ad()["JobLensUsage"], "Run": "schedd@nowhere#12.0#1#1"}
        )
        with pytest.raises(JobLensError, match=r"said on the way.*no relay of the access point nowhere is connected"):
            await asyncio.to_thread(person.asks, "ps")

    course(site, served, nowhere)
    assert person.edits == []  # nothing is written into the job if nobody reads it


@pytest.mark.parametrize(
    "token, mode, why",
    [("x", 0o600, "401"), (REMOTE, 0o644, "not its owner's alone"), ("", 0o600, "has no token")],
)
def test_who_has_no_token_is_told_so(
    token: str, mode: int, why: str, site: Site, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(site, served, tmp_path, monkeypatch)
    person.token.write_text(token)
    person.token.chmod(mode)

    async def what() -> None:
        with pytest.raises(JobLensError, match=f"no connection to the relay server: .*{why}"):
            await asyncio.to_thread(person.asks, "ps")

    course(site, served, what)


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"JobStatus": 1}, "the job is idle"),
        ({"JobLensKey": None}, "access point has no key"),
        ({"JobLensUsage": {}}, "first numbers are on their way"),
    ],
)
def test_a_job_that_can_t_be_asked_is_said_before_anything_is_sent(
    changed: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accesspoint, "read_ads", lambda *_, **__: [ad(**changed)])
    with pytest.raises(JobLensError, match=why):
        elsewhere.sign(elsewhere.Server("wss://nowhere/", "", ""), "ps", "12", SEALING_KEY, {})


@pytest.mark.parametrize(
    "schedd, name",
    [("ap.example.org", "ap.example.org"), ("x@ap.example.org", "ap.example.org"), ("x@", "x@"), ("a@b@c", "c")],
)
def test_an_access_point_is_known_by_its_schedd_s_host_if_the_schedd_names_one(schedd: str, name: str) -> None:
    assert elsewhere._host(located.Located("u", "r", "s", f"{schedd}#12.0#1", b"k")) == name


def test_the_knob_says_that_the_access_point_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "JOBLENS_RELAY_SERVER": "wss://relay/",
        "JOBLENS_RELAY_SERVER_TOKEN_FILE": "/t",
        "JOBLENS_RELAY_CA_FILE": "/c",
    }
    monkeypatch.setattr("condor_joblens.common.condor_config.read_macros", lambda _: found)
    monkeypatch.setattr(afar, "DOOR", "/nonexistent")
    assert afar._sockets() == elsewhere.Server("wss://relay/", "/t", "/c")
    monkeypatch.setattr(afar, "DOOR", "/")
    monkeypatch.setattr(afar, "RELAY", "/")
    assert afar._sockets() == ("/", "/")
    monkeypatch.setenv(elsewhere.KNOB, "wss://relay/")
    assert afar._sockets() == elsewhere.Server("wss://relay/", "/t", "/c")


# -- what the server bounds -----------------------------------------------------------------------------------


def an_ask(number: int, to: str = "ap", packet: bytes = b"x") -> bytes:
    return Message(ASK, number, {"AccessPoint": to.encode(), "Packet": packet}).encoded()


async def reason(connection: Any) -> str:
    return messages.decoded(await connection.recv()).text("reason")


def test_who_is_elsewhere_has_a_few_at_a_time_and_all_of_them_a_few_of_a_door(site: Site, served: Served) -> None:
    served.schedd.answers_itself = False  # what has come waits

    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    async def what() -> None:
        async with (
            connect(site.url, additional_headers=bearer("b")) as silent,
            connect(site.url, additional_headers=bearer(REMOTE)) as one,
            connect(site.url, additional_headers=bearer("s")) as two,
            connect(site.url, additional_headers=bearer("t")) as three,
        ):
            del silent
            for each in (one, two):
                for number in range(server.OF_A_REMOTE):
                    await each.send(an_ask(number, "other"))
                await each.send(an_ask(99, "other"))
                assert f"{server.OF_A_REMOTE} commands of yours go on" in await reason(each)
            await three.send(an_ask(1, "other"))
            assert f"{server.OF_REMOTES} requests wait at other" in await reason(three)
            await three.send(an_ask(1, "ap", b""))
            assert await reason(three) == "this is no request"
            await three.send(an_ask(1, "ap", bytes(frames.MAX_REQUEST + 1)))
            assert await reason(three) == "this is no request"

    course(site, served, what)


def test_one_token_takes_half_of_a_door_s_pace_at_most() -> None:
    assert 2 * server.IN_A_ROW <= from_afar.IN_A_ROW and 2 * server.A_SECOND <= from_afar.A_SECOND


def test_who_is_elsewhere_has_a_pace(site: Site, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    site.server._pace = pace.Pace(2, 2.0, lambda: 0.0)

    async def what() -> None:
        async with connect(site.url, additional_headers={"Authorization": f"Bearer {REMOTE}"}) as one:
            for number in range(2):
                await one.send(Message(CARRY, number, {"Node": b"nowhere"}).encoded())
                assert "no relay of nowhere" in await reason(one)
            await one.send(Message(CARRY, 3, {"Node": b"nowhere"}).encoded())
            assert "you have asked for" in await reason(one)
            await one.send(an_ask(4, "nowhere"))  # requests to doors have a pace of their own
            assert "no relay of the access point nowhere" in await reason(one)

    course(site, served, what)


@pytest.mark.parametrize(
    "token, word", [(REMOTE, "data"), (REMOTE, "end"), ("n", "ask"), ("a", "ask"), ("c", "ask"), ("a", "data")]
)
def test_who_says_what_is_not_his_to_say_is_sent_away(token: str, word: str, site: Site, served: Served) -> None:
    async def what() -> None:
        async with connect(site.url, additional_headers={"Authorization": f"Bearer {token}"}) as peer:
            await peer.send(Message(word, 1, {"AccessPoint": b"ap", "Packet": b"x"}).encoded())
            with pytest.raises(ConnectionClosed):
                while True:
                    await peer.recv()

    course(site, served, what)


def test_a_token_of_somebody_elsewhere_is_a_line_and_no_machine_is_one_by_certificate() -> None:
    (who,) = read_tokens(f"remote alice {'0' * 64}").values()
    assert who.is_remote and not who.is_node and not who.is_access_point
    with pytest.raises(JobLensError, match="line 1 of the tokens"):
        read_tokens("remote alice certificate")
