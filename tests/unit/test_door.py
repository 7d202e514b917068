"""joblens-door: an access point vouches for a job's user, for nobody else, and for that job alone."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sent_descriptors import are_refused, lingering

from condor_joblens.accesspoint import door_server, queue_child
from condor_joblens.accesspoint.door_server import Door
from condor_joblens.accesspoint.queue_answer import SEPARATOR, target
from condor_joblens.accesspoint.queue_child import QueueChild
from condor_joblens.cli import afar, elsewhere
from condor_joblens.common import descriptors, readiness
from condor_joblens.common.errors import JobLensError
from condor_joblens.common.open_socket import listening_at
from condor_joblens.control import audit, door, frames, keys, warrants
from condor_joblens.control.located import Located
from condor_joblens.control.verbs import Refused

KEY, NODE = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
OWN_KEY = keys.text_of(keys.public_half(KEY))
SEALING_KEY = X25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
ME = os.getuid()
MY_NAME = pwd.getpwuid(ME).pw_name
JOB = "ap#12.0#1700000000"
AD: dict[str, Any] = {
    "ClusterId": 12,
    "ProcId": 0,
    "User": f"{MY_NAME}@pool",
    "GlobalJobId": JOB,
    "NumShadowStarts": 2,
    "RemoteHost": "slot1_1@node",
    "JobStatus": 2,
    "JobLensKey": OWN_KEY,
    "JobLensUsage": {"NodeKey": keys.text_of(keys.public_half(NODE)), "Run": f"{JOB}#2"},
}
PASSWD = f"{MY_NAME}:x:{ME}:0::/:/bin/sh\n"


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    yield
    signal.signal(signal.SIGALRM, before)


def said(*ads: dict[str, Any], passwd: str = PASSWD, supers: str = "") -> bytes:
    return f"{passwd}{SEPARATOR}\n{supers}{SEPARATOR}\n{json.dumps(ads) if ads else ''}\n".encode()


# -- what the schedd says -------------------------------------------------------------------------------------


def test_a_users_own_running_job_is_vouched_for() -> None:
    found = target(said(AD), 0, ME, "pool", OWN_KEY)
    assert found.job == Located(f"{MY_NAME}@pool", f"{JOB}#2", "slot1_1@node", JOB, keys.public_half(NODE))
    assert found.asker == f"{MY_NAME}@pool"


BOBS = {**AD, "User": "bob@pool"}


@pytest.mark.parametrize("supers", ["{me}", "root, {me}", "condor {me}@pool", "root,\t{me}"])
def test_a_queue_super_user_is_vouched_for_in_others_jobs_by_his_name(supers: str) -> None:
    found = target(said(BOBS, supers=supers.format(me=MY_NAME) + "\n"), 0, ME, "pool", OWN_KEY)
    assert (found.job.user, found.asker) == ("bob@pool", f"{MY_NAME}@pool")


@pytest.mark.parametrize(
    "supers", ["{me}@elsewhere", "%{me}", "x{me}", "{me}x", "@pool", "*", "bob", "{me}@", "Not defined: {me};"]
)
def test_nobody_else_is_a_super_user(supers: str) -> None:
    with pytest.raises(Refused, match="only its user and queue super users"):
        target(said(BOBS, supers=supers.format(me=MY_NAME) + "\n"), 0, ME, "pool", OWN_KEY)


@pytest.mark.parametrize("user", [None, "", "/Expr(toLower(x))/\x1b", 7])
def test_a_super_user_commands_no_job_of_nobody_knows_whom(user: object) -> None:
    with pytest.raises(Refused, match="only its user"):
        target(said({**AD, "User": user}, supers=MY_NAME), 0, ME, "pool", OWN_KEY)


def with_usage(**usage: object) -> dict[str, Any]:
    return {**AD, "JobLensUsage": {**AD["JobLensUsage"], **usage}}


def started(start: object) -> dict[str, Any]:
    """The job, with whatever may be in its ad for the number of its starts."""
    return {**with_usage(Run=f"{JOB}#{start}"), "NumShadowStarts": start}


@pytest.mark.parametrize("starts, reconnects, is_its", [(2, 0, True), (3, 1, True), (5, 3, True), (4, 1, False)])
def test_a_shadow_that_has_found_its_job_again_begins_no_new_run(starts: int, reconnects: int, is_its: bool) -> None:
    """As after a restart of the schedd: HTCondor counts one more start of a shadow."""
    ad = {**AD, "NumShadowStarts": starts, "NumJobReconnects": reconnects}
    if is_its:
        assert target(said(ad), 0, ME, "pool", OWN_KEY).job.run == f"{JOB}#2"
    else:
        with pytest.raises(Refused, match="has begun anew"):
            target(said(ad), 0, ME, "pool", OWN_KEY)


REFUSED: dict[str, tuple[bytes, str]] = {
    "another user": (said({**AD, "User": "bob@pool"}), "only its user and queue super users may"),
    "another domain": (said({**AD, "User": f"{MY_NAME}@elsewhere"}), "only its user"),
    "no user": (said({**AD, "User": None}), "only its user"),
    "an expression": (said({**AD, "User": "/Expr(toLower(x))/"}), "only its user"),
    "idle": (said({**AD, "JobStatus": 1}), "the job is idle"),
    "held": (said({**AD, "JobStatus": 5}), "the job is held"),
    "no job": (said(), "no such job"),
    "two jobs": (said(AD, AD), "more than one"),
    "an old job": (said({**AD, "JobLensKey": None}), "submitted before"),
    "another key": (said({**AD, "JobLensKey": "mine"}), "submitted before"),
    "no numbers": (said({**AD, "JobLensUsage": {}}), "first numbers are on their way"),
    "odd numbers": (said({**AD, "JobLensUsage": "x"}), "first numbers are on their way"),
    "a run before": (said({**AD, "NumShadowStarts": 3}), "has begun anew"),
    "a run to come": (said({**AD, "NumShadowStarts": 1, "NumJobReconnects": 9}), "has begun anew"),
    "a run of no number": (said(with_usage(Run=f"{JOB}#x")), "has begun anew"),
    "a run of another job": (said({**with_usage(Run="ap#9.0#1#2"), "NumJobReconnects": 9}), "has begun anew"),
    "odd reconnects": (said({**AD, "NumJobReconnects": "1"}), "makes no sense"),
    "nowhere": (said({**AD, "RemoteHost": ["x"]}), "does not say where"),
    "a list as state": (said({**AD, "JobStatus": [2]}), "makes no sense"),
    "a text as state": (said({**AD, "JobStatus": "2"}), "makes no sense"),
    "no state": (said({**AD, "JobStatus": None}), "makes no sense"),
    "half a character": (said(started("\ud800")), "makes no sense"),
    "a truth as start": (said(started(True)), "makes no sense"),
    "half a character in the job": (said({**AD, "GlobalJobId": "ap#\ud800"}), "does not say where"),
    "half a character in the slot": (said({**AD, "RemoteHost": "slot1_1@\ud800"}), "does not say where"),
    "half a character in the key": (said(with_usage(NodeKey="ed25519:\ud800")), "first numbers are on their way"),
    "no name": (said(AD, passwd=""), "has no name"),
    "another's line": (said(AD, passwd=PASSWD.replace(f":{ME}:", f":{ME + 1}:")), "has no name"),
    "no JSON": (f"{PASSWD}{SEPARATOR}\n{SEPARATOR}\nError\n".encode(), "makes no sense"),
    "no list": (f"{PASSWD}{SEPARATOR}\n{SEPARATOR}\n{{}}\n".encode(), "makes no sense"),
    "too deep": (f"{PASSWD}{SEPARATOR}\n{SEPARATOR}\n{'[' * 100_000}\n".encode(), "makes no sense"),
}


@pytest.mark.parametrize("told, why", REFUSED.values(), ids=REFUSED)
def test_all_else_is_refused_in_words(told: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        target(told, 0, ME, "pool", OWN_KEY)


def test_a_schedd_that_does_not_answer_is_said() -> None:
    with pytest.raises(Refused, match="does not answer"):
        target(said(AD), 124, ME, "pool", OWN_KEY)


# -- the socket -----------------------------------------------------------------------------------------------


class Queue:
    """What asks the schedd; a test answers."""

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair()
        self.asked: list[tuple[int, str]] = []
        self.answers: list[bytes | Exception | None] = []  # None: a test answers later
        self.outstanding = 0

    def fileno(self) -> int:
        return self._here.fileno()

    def ask(self, uid: int, job: str) -> None:
        self.outstanding += 1
        assert self.outstanding == 1, "one question at a time"
        self.asked.append((uid, job))
        if self.answers and self.answers[0] is not None:
            self.answer()

    def answer(self) -> None:
        self._there.send(b"!")

    def take(self) -> tuple[bytes, int] | None:
        self._here.recv(1)
        self.outstanding -= 1
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return (said(AD) if answer is None else answer), 0


class Served:
    """A door in a thread."""

    def __init__(self, path: Path) -> None:
        self.path, self.queue, self.lines = str(path), Queue(), list[str]()
        self.door = Door(listening_at(self.path), self.queue, KEY, "pool", self.lines.append)
        self._over = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._over:
            self.door.turn(0.05)

    def stop(self) -> None:
        self._over = True
        self._thread.join()

    def ask(self, verb: str, job: str = "12.0", key: bytes = SEALING_KEY, **arguments: bytes) -> door.Signed:
        return door.sign(self.path, verb, job, key, arguments)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(door_server, "PATIENCE", 600.0)  # a machine may stand still
    served = Served(tmp_path / "door.sock")
    yield served
    served.stop()


def test_what_is_signed_is_what_was_asked_for(served: Served) -> None:
    served.queue.answers = [said(AD)]
    signed = served.ask("kill", signal=b"15")
    warrant = warrants.verify(signed.packet, keys.public_half(KEY))
    assert (warrant.user, warrant.run, warrant.node) == (f"{MY_NAME}@pool", f"{JOB}#2", "slot1_1@node")
    assert (warrant.verb, warrant.arguments, warrant.sealing_key) == ("kill", {"signal": b"15"}, SEALING_KEY)
    assert warrant.ends - warrant.begins == 60_000
    assert (signed.job, signed.node, signed.node_key) == (JOB, "slot1_1@node", keys.public_half(NODE))
    assert served.queue.asked == [(ME, "12.0")]
    assert served.lines == [f"job 12.0: {MY_NAME}@pool may kill in slot1_1@node: {warrants.name_of(warrant)}"]


def test_nobody_is_vouched_for_in_another_users_job(served: Served) -> None:
    served.queue.answers = [said({**AD, "User": "bob@pool"})]
    with pytest.raises(JobLensError, match="only its user and queue super users may do this"):
        served.ask("ps")
    assert served.lines == [
        f"job 12.0: user {ME} asked for ps, refused: only its user and queue super users may do this, "
        f"and you are {MY_NAME}@pool"
    ]


@pytest.mark.parametrize(
    ("passwd", "why"),
    [("", f"user {ME} has no name on this access point"), (f"newcomer:x:{ME}:0::/:/bin/sh\n", "you are newcomer@pool")],
    ids=["removed", "another has his number"],
)
def test_nobody_is_vouched_for_once_his_user_is_removed(passwd: str, why: str, served: Served) -> None:
    """The name is asked for each time: what he had a moment ago counts no more."""
    served.queue.answers = [said(AD), said(AD, passwd=passwd)]
    served.ask("ps")
    with pytest.raises(JobLensError, match=why):
        served.ask("ps")
    assert len(served.lines) == 2 and f"user {ME} asked for ps, refused: " in served.lines[1] and why in served.lines[1]


def test_the_warrant_and_the_log_say_for_whom_a_super_user_asks(served: Served) -> None:
    served.queue.answers = [said(BOBS, supers=f"{MY_NAME}\n")]
    signed = served.ask("kill", signal=b"15")
    warrant = warrants.verify(signed.packet, keys.public_half(KEY))
    assert (warrant.user, warrant.by, warrant.run) == ("bob@pool", f"{MY_NAME}@pool", f"{JOB}#2")
    name = warrants.name_of(warrant)
    assert served.lines == [f"job 12.0: {MY_NAME}@pool for bob@pool may kill in slot1_1@node: {name}"]


@pytest.mark.parametrize(
    "verb, job, arguments, why",
    [
        ("ps", "12.0;reboot", {}, "named by its cluster"),
        ("ps", "", {}, "named by its cluster"),
        ("ps", "-allusers", {}, "named by its cluster"),
        ("reboot", "12.0", {}, "nobody vouches for reboot"),
        ("warrant", "12.0", {"packet": b"x"}, "nobody vouches"),
        ("activate", "12.0", {}, "nobody vouches"),
        ("kill", "12.0", {"signal": b"99999"}, "signal"),
        ("kill", "12.0", {}, "needs the argument signal"),
        ("ps", "12.0", {"more": b"x"}, "has no argument more"),
    ],
)
def test_what_no_node_would_do_is_refused_before_the_schedd_is_asked(
    verb: str, job: str, arguments: dict[str, bytes], why: str, served: Served
) -> None:
    with pytest.raises(JobLensError, match=why):
        served.ask(verb, job, **arguments)
    assert served.queue.asked == []


def test_a_sealing_key_of_another_length_is_refused(served: Served) -> None:
    served.queue.answers = [said(AD)]
    with pytest.raises(JobLensError, match="sealing key"):
        served.ask("ps", key=b"short")


def test_a_user_has_some_that_wait_and_the_schedd_is_asked_about_one(served: Served) -> None:
    waiting = []
    message = frames.encode_words("ps", {"Job": b"12.0", "SealingKey": SEALING_KEY})
    for _ in range(door_server.MAX_OF_A_USER):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(served.path)
        for packet in frames.frames(frames.REQUEST, message):
            connection.send(packet)
        waiting.append(connection)
    with pytest.raises(JobLensError, match="4 of your requests wait here"):
        served.ask("ps")
    for connection in waiting:  # each is asked about when the one before has been answered
        served.queue.answer()
        connection.settimeout(60)
        assert b"signed" in connection.recv(1 << 16)
    assert len(served.queue.asked) == 4


def asking(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    connection.settimeout(60)
    return connection


def test_who_says_nothing_or_nonsense_is_dropped_and_the_others_are_served(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    odd.connect(served.path)
    odd.send(b"joblens/1\0activate\0")
    odd.settimeout(60)
    assert b"refused" in odd.recv(1 << 16)
    served.queue.answers = [said(AD)]
    served.ask("ps")
    monkeypatch.setattr(door_server, "PATIENCE", 0.0)
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent.connect(served.path)
    silent.settimeout(60)
    assert silent.recv(1) == b"", "its time is over"


def test_a_user_asks_for_so_many_a_minute(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    paced: list[int] = []

    def pace(uid: int) -> None:
        paced.append(uid)
        raise Refused("from now on one a second")

    monkeypatch.setattr(served.door._audit, "pace", pace)
    with pytest.raises(JobLensError, match="from now on one a second"):
        served.ask("ps")
    assert paced == [ME] and served.queue.asked == []


def test_an_answer_that_is_too_long_is_a_refusal_for_who_asked(served: Served) -> None:
    served.queue.answers = [Refused("the schedd says too much"), said(AD)]
    with pytest.raises(JobLensError, match="refuses: the schedd says too much"):
        served.ask("ps")
    served.ask("ps")


@pytest.mark.parametrize("step", ["understand", "target"])
def test_what_fails_costs_who_asked_alone(step: str, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TypeError("unhashable type")

    served.queue.answers = [said(AD)]
    with monkeypatch.context() as failing:
        failing.setattr(door_server, step, fail)
        with pytest.raises(JobLensError, match="joblens-door failed on this request: its log says how"):
            served.ask("ps")
    served.queue.answers = [said(AD)]
    served.ask("ps")
    failed, _ = served.lines
    assert failed.startswith(f"job 12.0: user {ME} asked for ps, refused: joblens-door failed")
    assert "Traceback" in failed and "in fail" in failed and "TypeError: unhashable type" in failed


def test_a_user_who_makes_it_fail_has_so_many_lines_a_minute(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TypeError("unhashable type")

    monkeypatch.setattr(door_server, "understand", fail)
    for _ in range(audit.REFUSALS + 2):
        with pytest.raises(JobLensError, match="failed on this request"):
            served.ask("ps")
    assert len(served.lines) == audit.REFUSALS


def test_a_flood_that_ends_has_its_sum_by_the_door_itself(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(audit.REFUSALS + 2):
        with pytest.raises(JobLensError, match="named by its cluster"):
            served.ask("ps", "x")
    assert len(served.lines) == audit.REFUSALS
    monkeypatch.setattr(audit, "REFUSALS_SECONDS", 0.0)
    served.door._audit._due = 0.0
    while len(served.lines) == audit.REFUSALS:
        time.sleep(0.01)
    assert served.lines[-1] == f"user {ME}: 2 more commands were refused in a minute"


def test_what_was_left_out_is_told_when_it_stops(served: Served) -> None:
    for _ in range(audit.REFUSALS + 1):
        with pytest.raises(JobLensError, match="named by its cluster"):
            served.ask("ps", "x")
    served.door.close_log()
    assert served.lines[-1] == f"user {ME}: 1 more commands were refused in a minute"


def test_a_queue_that_is_lost_ends_the_door(tmp_path: Path) -> None:
    queue = Queue()
    queue.answers = [OSError(0, "what asks the schedd has ended")]
    lost = Door(listening_at(str(tmp_path / "door.sock")), queue, KEY, "pool", print)
    queue.ask(ME, "12.0")
    queue.answer()
    with pytest.raises(OSError, match="has ended"):
        lost.turn(60)


def test_a_descriptor_that_is_sent_along_is_not_taken(served: Served) -> None:
    with asking(served.path) as connection, open(os.devnull) as file:
        if are_refused():
            with pytest.raises(PermissionError):
                descriptors.send(connection, b"x", [file.fileno()])
        else:
            descriptors.send(connection, b"x", [file.fileno()])
    served.queue.answers = [said(AD)]
    served.ask("ps")


@pytest.mark.parametrize("most", [64, 0])
def test_on_an_older_kernel_a_descriptor_keeps_nobody_waiting(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_server, "MAX_CONNECTIONS", most)
    path = str(tmp_path / "door.sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # takes descriptors, as before Linux 6.16
    listener.bind(path)
    listener.listen()
    waiting = Door(listener, Queue(), KEY, "pool", lambda _: None)
    connection, peer = lingering()
    with peer, asking(path) as asker:
        descriptors.send(asker, b"x", [connection.fileno()])
        os.close(connection.detach())  # it lives on in the packet
        began = time.monotonic()
        for _ in range(3):
            waiting.turn(0)
        assert time.monotonic() - began < 300  # of ten minutes


# -- who proves himself by condor_qedit -----------------------------------------------------------------------

KILL = {"signal": b"15"}


def proved(served: Served, nonce: bytes, verb: str = "kill", job: str = "12.0", **arguments: bytes) -> dict[str, Any]:
    """The job of bob's, into which somebody who may edit it has written this request's proof."""
    proof = door.proof(nonce, verb, job, SEALING_KEY, arguments or KILL)
    return {**BOBS, "User": "bob@elsewhere", "JobLensProof": proof}


def test_who_proves_that_he_may_edit_the_job_is_vouched_for_and_the_log_says_how(served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.queue.answers = [said(proved(served, nonce))]
    signed = door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, nonce)
    warrant = warrants.verify(signed.packet, keys.public_half(KEY))
    assert (warrant.user, warrant.by) == ("bob@elsewhere", f"{MY_NAME}@pool by condor_qedit")
    assert (warrant.verb, warrant.arguments, warrant.sealing_key) == ("kill", KILL, SEALING_KEY)
    assert f"job 12.0: {MY_NAME}@pool by condor_qedit for bob@elsewhere may kill in slot1_1@node" in served.lines[0]


OTHERS_KEY = X25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


@pytest.mark.parametrize(
    "verb, key, arguments",
    [
        ("kill", OTHERS_KEY, KILL),  # whose key it is reads the answer
        ("kill", SEALING_KEY, {"signal": b"9"}),
        ("kill", SEALING_KEY, {"signal": b"15", "pid": b"1"}),
        ("ps", SEALING_KEY, {}),
        ("cat", SEALING_KEY, {"file": b"x"}),
    ],
    ids=["another key", "another signal", "another process", "another verb", "a verb and a file"],
)
def test_whoever_carries_the_request_swaps_neither_key_nor_verb_nor_argument(
    verb: str, key: bytes, arguments: dict[str, bytes], served: Served
) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.queue.answers = [said(proved(served, nonce))]
    with pytest.raises(JobLensError, match="JobLensProof is not of this request"):
        door.sign(served.path, verb, "12.0", key, arguments, nonce)
    served.queue.answers = [said(proved(served, nonce))]
    with pytest.raises(JobLensError, match="has been used"):  # nor has he a second try
        door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, nonce)


def test_a_proof_is_good_for_one_warrant(served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.queue.answers = [said(proved(served, nonce))]
    door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, nonce)
    asked = len(served.queue.asked)
    for again in (nonce, b"", bytes(16)):
        served.queue.answers = [said(proved(served, nonce))]
        with pytest.raises(JobLensError, match=r"has been used|only its user"):
            door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, again)
    assert len(served.queue.asked) == asked + 1, "what has no nonce of ours costs the schedd nothing"


def test_a_nonce_is_for_one_job_and_for_a_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    nonce = door.nonce(served.path, "13.0")
    with pytest.raises(JobLensError, match="was not given for this"):
        door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, nonce)
    monkeypatch.setattr(door_server, "PROVING_SECONDS", 0.0)
    nonce = door.nonce(served.path, "12.0")
    with pytest.raises(JobLensError, match="too old"):
        door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, nonce)
    assert served.queue.asked == []


def test_another_user_s_nonce_is_none(served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.door._nonces[nonce] = (ME + 1, "12.0", time.monotonic() + 600)
    with pytest.raises(JobLensError, match="was not given for this"):
        door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, nonce)
    assert nonce in served.door._nonces, "nor is it used up for him"


@pytest.mark.parametrize("held", [None, "", 7, "mine", "0" * 64, ["x"], "\ud800"])
def test_what_is_no_proof_opens_nothing(held: object, served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.queue.answers = [said({**BOBS, "JobLensProof": held})]
    with pytest.raises(JobLensError, match="JobLensProof is not of this request"):
        door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, nonce)


def test_a_job_of_nobody_knows_whom_is_commanded_by_no_proof(served: Served) -> None:
    nonce = door.nonce(served.path, "12.0")
    served.queue.answers = [said({**proved(served, nonce), "User": None})]
    with pytest.raises(JobLensError, match="JobLensProof is not of this request"):
        door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, nonce)


def test_nonces_that_nobody_uses_fill_no_memory(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *rest = [door.nonce(served.path, "12.0") for _ in range(door_server.NONCES_OF_A_USER + 1)]
    assert list(served.door._nonces) == rest
    with pytest.raises(JobLensError, match="was not given for this"):
        door.sign(served.path, "kill", "12.0", SEALING_KEY, KILL, first)
    monkeypatch.setattr(door_server, "NONCES", 10)
    for other in range(6):  # of other users
        served.door._nonces[bytes([other])] = (ME + 1 + other, "12.0", time.monotonic() + 600)
    monkeypatch.setattr(door_server, "NONCES_OF_A_USER", 100)
    made = door.nonce(served.path, "12.0")
    assert len(served.door._nonces) == 10 and list(served.door._nonces)[-1] == made


def test_proofs_of_two_requests_are_never_the_same() -> None:
    requests = [
        (b"n" * 16, "ps", "12.0", SEALING_KEY, {}),
        (b"m" * 16, "ps", "12.0", SEALING_KEY, {}),
        (b"n" * 16, "ls", "12.0", SEALING_KEY, {}),
        (b"n" * 16, "ps", "13.0", SEALING_KEY, {}),
        (b"n" * 16, "ps", "12.0", OTHERS_KEY, {}),
        (b"n" * 16, "ps", "12.0", SEALING_KEY, {"a": b"b\0c"}),
        (b"n" * 16, "ps", "12.0", SEALING_KEY, {"a": b"b", "c": b""}),
    ]
    assert len({door.proof(*request) for request in requests}) == len(requests)
    one, other = {"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"}
    assert door.proof(b"n", "ps", "1.0", b"k", one) == door.proof(b"n", "ps", "1.0", b"k", other)


def test_the_command_proves_by_condor_qedit_if_it_is_told_to(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    edited: list[tuple[str, ...]] = []

    def edit(*command: str) -> str:
        edited.append(command)
        served.queue.answers = [said({**BOBS, "JobLensProof": command[-1].strip('"')})]
        return ""

    monkeypatch.setattr(elsewhere, "ask", edit)
    signed = afar._proved(served.path, "kill", "12", SEALING_KEY, KILL)
    assert warrants.verify(signed.packet, keys.public_half(KEY)).user == "bob@pool"
    assert [command[:3] for command in edited] == [("condor_qedit", "12.0", "JobLensProof")]


def test_whom_htcondor_does_not_let_edit_the_job_is_told_so_in_one_line(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "condor_qedit"
    program.write_text("#!/bin/sh\necho 'Failed to set it.' >&2\necho 'Nothing was set.' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    why = r"that job 12\.0 is yours can't be proved: condor_qedit fails: Failed to set it\. Nothing was set\.$"
    with pytest.raises(JobLensError, match=why):
        afar._proved(served.path, "kill", "12", SEALING_KEY, KILL)


# -- what asks the schedd -------------------------------------------------------------------------------------

CONDOR_Q = """#!/bin/sh
echo "$*" >>{log}
case "$*" in *99.0*) head -c {too_long} /dev/zero | tr '\\0' x ;; esac
printf '[\\n{{"ClusterId": 12}}\\n]\\n'
"""


CONDOR_CONFIG_VAL = """#!/bin/sh
echo "$*" >>{log}
echo 'root, {me}'
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueChild]:
    program = tmp_path / "condor_q"
    program.write_text(CONDOR_Q.format(log=tmp_path / "asked", too_long=2 * queue_child.MAX_BYTES))
    program.chmod(0o755)
    configuration = tmp_path / "condor_config_val"
    configuration.write_text(CONDOR_CONFIG_VAL.format(log=tmp_path / "configured", me=MY_NAME))
    configuration.chmod(0o755)
    monkeypatch.setattr(queue_child, "search_path", lambda: f"{tmp_path}:/usr/bin:/bin")
    child = QueueChild(None)
    yield child
    child.close()


def taken(child: QueueChild) -> tuple[bytes, int]:
    while (answer := child.take()) is None:
        readiness.readable([child], 60)
    return answer


def test_the_queue_and_the_users_are_asked_as_often_as_is_needed(child: QueueChild, tmp_path: Path) -> None:
    for job in ("12.0", "13.0"):
        child.ask(ME, job)
        answer, code = taken(child)
        passwd, supers, listed = answer.split(f"{SEPARATOR}\n".encode())
        assert code == 0 and passwd.startswith(MY_NAME.encode()) and json.loads(listed) == [{"ClusterId": 12}]
        assert supers == f"root, {MY_NAME}\n".encode()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[:2] for line in asked] == [["-allusers", "12.0"], ["-allusers", "13.0"]]


def test_nobody_is_a_super_user_if_the_configuration_says_none(child: QueueChild, tmp_path: Path) -> None:
    (tmp_path / "condor_config_val").write_text("#!/bin/sh\necho 'Not defined: QUEUE_SUPER_USERS'\nexit 1\n")
    child.ask(ME, "12.0")
    answer, _ = taken(child)
    assert answer.split(f"{SEPARATOR}\n".encode())[1] == b""


def test_an_answer_that_is_too_long_is_refused_and_the_next_one_is_taken(child: QueueChild) -> None:
    for _ in range(2):
        child.ask(ME, "99.0")
        with pytest.raises(Refused, match="says more than 1 MiB of this job"):
            taken(child)
        child.ask(ME, "12.0")
        answer, code = taken(child)
        assert code == 0 and answer.endswith(b'[\n{"ClusterId": 12}\n]\n')


def test_its_end_is_noticed(child: QueueChild) -> None:
    child._process.kill()
    with pytest.raises(OSError, match="has ended"):
        taken(child)


# -- what the process with the key can do ---------------------------------------------------------------------

CONFINED = """
    import os, signal, socket, sys
    from condor_joblens.accesspoint import door
    from condor_joblens.accesspoint.door_server import Door
    from condor_joblens.common import readiness
    from condor_joblens.common.log import open_log
    from condor_joblens.control import frames
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    class Log:
        def error(self, message):
            print(message)

    class Daemon:
        log = Log()

    answer = bytes.fromhex(sys.argv[1])
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(sys.argv[2]))
    here, there = socket.socketpair()

    class Queue:
        fileno = here.fileno
        def ask(self, uid, job):
            there.send(b"!")
        def take(self):
            here.recv(1)
            return answer, 0

    listener, asker = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    listener.bind(sys.argv[3])
    listener.listen()
    asker.connect(sys.argv[3])
    for packet in frames.frames(frames.REQUEST, frames.encode_words("ps", {"Job": b"12.0", "SealingKey": b"k" * 32})):
        asker.send(packet)
    log = open_log(sys.argv[3] + ".log")
    served = Door(listener, Queue(), key, "pool", log)
    signal.signal(signal.SIGALRM, lambda *_: None)
    os.geteuid = lambda: 1  # it stays who it is
    door._confine(Daemon())
    while not readiness.readable([asker], 0):
        served.turn(0.05)
    assert b"signed" in asker.recv(1 << 16)
    def refused(what):
        try:
            what()
        except PermissionError:
            return True
        return False
    def forks():
        if os.fork() == 0:
            os._exit(0)
    print(refused(lambda: socket.socket(socket.AF_INET)), refused(lambda: socket.socket(socket.AF_UNIX)),
          refused(forks), refused(lambda: os.execv("/bin/true", ["true"])),
          refused(lambda: open("/dev/null", "w")), refused(lambda: os.kill(os.getppid(), 0)), flush=True)
    os._exit(0)
"""


def test_the_process_with_the_key_signs_and_makes_no_connection(tmp_path: Path) -> None:
    arguments = [said(AD).hex(), KEY.private_bytes_raw().hex(), str(tmp_path / "door.sock")]
    command = [sys.executable, "-c", textwrap.dedent(CONFINED), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "True True True True True True\n", done.stderr
    assert "may ps in slot1_1@node" in (tmp_path / "door.sock.log").read_text()


def test_the_configuration_has_the_key_that_is_made_with_it(tmp_path: Path) -> None:
    path = tmp_path / "door.key"
    first, again = keys.key_at(str(path)), keys.key_at(str(path))
    assert keys.public_half(first) == keys.public_half(again) and path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"short")
    with pytest.raises(JobLensError, match="is no key"):
        keys.key_at(str(path))
