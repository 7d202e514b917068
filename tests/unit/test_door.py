"""joblens-door: an access point vouches for a job's user, for nobody else, and for that job alone."""

from __future__ import annotations

import json
import os
import pwd
import select
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from condor_joblens.accesspoint import door_server, queue_child
from condor_joblens.accesspoint.door_server import Door
from condor_joblens.accesspoint.queue_answer import SEPARATOR, Target, target
from condor_joblens.accesspoint.queue_child import QueueChild
from condor_joblens.common.errors import JobLensError
from condor_joblens.control import door, frames, keys, warrants
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


def said(*ads: dict[str, Any], passwd: str = PASSWD) -> bytes:
    return f"{passwd}{SEPARATOR}\n{json.dumps(ads) if ads else ''}\n".encode()


# -- what the schedd says -------------------------------------------------------------------------------------


def test_a_users_own_running_job_is_vouched_for() -> None:
    found = target(said(AD), 0, ME, "pool", OWN_KEY)
    assert found == Target(f"{MY_NAME}@pool", f"{JOB}#2", "slot1_1@node", JOB, keys.public_half(NODE))


REFUSED: dict[str, tuple[bytes, str]] = {
    "another user": (said({**AD, "User": "bob@pool"}), "only its user may do this"),
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
    "nowhere": (said({**AD, "RemoteHost": ["x"]}), "does not say where"),
    "no name": (said(AD, passwd=""), "has no name"),
    "another's line": (said(AD, passwd=PASSWD.replace(f":{ME}:", f":{ME + 1}:")), "has no name"),
    "no JSON": (f"{PASSWD}{SEPARATOR}\nError\n".encode(), "makes no sense"),
    "no list": (f"{PASSWD}{SEPARATOR}\n{{}}\n".encode(), "makes no sense"),
    "too deep": (f"{PASSWD}{SEPARATOR}\n{'[' * 100_000}\n".encode(), "makes no sense"),
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
        self.answers: list[bytes | None] = []  # None: a test answers later
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
        return (said(AD) if answer is None else answer), 0


class Served:
    """A door in a thread."""

    def __init__(self, path: Path) -> None:
        self.path, self.queue, self.lines = str(path), Queue(), list[str]()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.path)
        listener.listen()
        self.door = Door(listener, self.queue, KEY, "pool", self.lines.append)
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
    with pytest.raises(JobLensError, match="only its user may do this"):
        served.ask("ps")
    assert served.lines == [
        f"job 12.0: user {ME} asked for ps, refused: only its user may do this, and you are {MY_NAME}@pool"
    ]


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


# -- what asks the schedd -------------------------------------------------------------------------------------

CONDOR_Q = """#!/bin/sh
echo "$*" >>{log}
printf '[\\n{{"ClusterId": 12}}\\n]\\n'
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueChild]:
    program = tmp_path / "condor_q"
    program.write_text(CONDOR_Q.format(log=tmp_path / "asked"))
    program.chmod(0o755)
    monkeypatch.setattr(queue_child, "search_path", lambda: f"{tmp_path}:/usr/bin:/bin")
    child = QueueChild(None)
    yield child
    child.close()


def taken(child: QueueChild) -> tuple[bytes, int]:
    while (answer := child.take()) is None:
        select.select([child], [], [], 60)
    return answer


def test_the_queue_and_the_users_are_asked_as_often_as_is_needed(child: QueueChild, tmp_path: Path) -> None:
    for job in ("12.0", "13.0"):
        child.ask(ME, job)
        answer, code = taken(child)
        passwd, _, listed = answer.partition(f"{SEPARATOR}\n".encode())
        assert code == 0 and passwd.startswith(MY_NAME.encode()) and json.loads(listed) == [{"ClusterId": 12}]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.split()[:2] for line in asked] == [["-allusers", "12.0"], ["-allusers", "13.0"]]


def test_its_end_is_noticed(child: QueueChild) -> None:
    child._process.kill()
    with pytest.raises(OSError, match="has ended"):
        taken(child)


# -- what the process with the key can do ---------------------------------------------------------------------

CONFINED = """
    import os, select, socket, sys
    from condor_joblens.accesspoint import door
    from condor_joblens.accesspoint.door_server import Door
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
    os.geteuid = lambda: 1  # it stays who it is
    door._confine(Daemon())
    while not select.select([asker], [], [], 0)[0]:
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
