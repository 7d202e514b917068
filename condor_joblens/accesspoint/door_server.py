"""The door's sockets: requests come in, warrants go out. One question to the schedd at a time, whoever asks.

Who asks is known from SO_PEERCRED alone. Everybody on the access point can connect, so everything is bounded. A request
is whole within a second. A user has a few that wait, and so many a minute. Each has a line in the log. The relay has a
socket of its own, if there is one (from_afar.py). Who asks there is nobody, until he has proved more.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import struct
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from condor_joblens.accesspoint.from_afar import AFAR, AT_ONCE, Afar
from condor_joblens.accesspoint.queue_answer import Target, target
from condor_joblens.common.errors import printable
from condor_joblens.common.signals import interrupting
from condor_joblens.control import door, frames, keys, warrants
from condor_joblens.control.audit import Audit
from condor_joblens.control.frames import Assembler, FrameError, Words
from condor_joblens.control.verbs import REFUSED, VERBS, Refused, understand
from condor_joblens.control.warrants import BadWarrant, Warrant

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_CONNECTIONS = 64
MAX_OF_A_USER = 4
"""Connections that have not been answered, and requests of one user that wait."""

PATIENCE = 1.0
"""Seconds from a connection to its whole request."""

QUEUE_SECONDS = 40.0
"""Seconds for the answer to one question: the programs that answer it have 15 each, and two run at a time."""

SECONDS = 60
"""How long a warrant holds."""

PROVING_SECONDS = 120.0
"""In which a nonce has to come back, with the request of which the job's ad has the proof."""

NONCES, NONCES_OF_A_USER = 1024, 4
"""That are out at a time. Of more, the oldest counts no more; a user's own first."""

_JOB = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,10})?")
_NEVER = ("activate", "warrant")


class Queue(Protocol):
    """Who asks the schedd (queue_child.py)."""

    def fileno(self) -> int:
        """Readable when `take` may have something."""

    def ask(self, uid: int, job: str) -> None:
        """Asks about a user, AFAR if there is none, and a job. Raises OSError."""

    def take(self) -> tuple[bytes, int] | None:
        """The answer. Raises Refused if it is of no use, and OSError if there will never be one again."""


@dataclass(eq=False)
class _Asker:
    connection: socket.socket
    uid: int  # or AFAR
    until: float  # CLOCK_MONOTONIC: its request has to be whole
    assembler: Assembler = field(default_factory=lambda: Assembler(frames.REQUEST, frames.MAX_REQUEST))
    words: Words | None = None
    job: str = ""
    proof: str = ""  # what the job's ad has to hold; empty: who he is has to be enough


class Door:
    """Serves one after the other, in its own loop."""

    def __init__(
        self,
        listener: socket.socket,
        queue: Queue,
        key: Ed25519PrivateKey,
        uid_domain: str,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        afar: Afar | None = None,
    ) -> None:
        """`listener` is a socket of packets that listens; `clock` gives seconds since 1970.

        Without `afar`, nobody asks from afar. SIGALRM must have a handler.
        """
        self._listener, self._queue, self._key, self._domain = listener, queue, key, uid_domain
        self._own_key = keys.text_of(keys.public_half(key))
        self._log, self._clock = log, clock
        self._afar = afar
        self._audit = Audit(log)
        self._askers: dict[socket.socket, _Asker] = {}
        self._waiting: deque[_Asker] = deque()
        self._nonces: OrderedDict[bytes, tuple[int, str, float]] = OrderedDict()  # for whom, which job, until when
        self._asked: _Asker | None = None  # about whom the schedd has been asked
        self._asked_until = 0.0
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        if afar is not None:
            afar.listener.setblocking(False)
            self._selector.register(afar.listener, selectors.EVENT_READ, self._accept_from_afar)
        self._selector.register(queue, selectors.EVENT_READ, self._answer)

    def serve(self, wake: socket.socket, woken: Callable[[], object]) -> None:
        """Serves until `woken` raises, which is called when `wake` is readable. Raises OSError if the queue is lost."""
        self._selector.register(wake, selectors.EVENT_READ, woken)
        while True:
            self.turn(3600.0)

    def turn(self, most: float) -> None:
        """Waits for something to do, for `most` seconds, and does it."""
        ends = [asker.until for asker in self._askers.values() if asker.words is None]
        ends += [self._asked_until] if self._asked is not None else []
        wait = min([most, self._audit.timeout(), *(end - time.monotonic() for end in ends)])
        ready = self._selector.select(max(0.0, wait))
        with interrupting():
            for key, _ in ready:
                key.data()
            now = time.monotonic()
            if self._asked is not None and now >= self._asked_until:
                raise OSError(0, "what asks the schedd does not answer")
            for asker in [each for each in self._askers.values() if each.words is None and now >= each.until]:
                self._drop(asker)
            self._audit.sums()

    def close_log(self) -> None:
        """What was left out of the log until now has its sums."""
        self._audit.sums(at_once=True)

    def _accept(self) -> None:
        if (accepted := _accepted(self._listener)) is not None:
            connection, uid = accepted
            self._admit(connection, uid, self._afar is None or uid != self._afar.relay_uid)

    def _accept_from_afar(self) -> None:
        assert self._afar is not None
        if (accepted := _accepted(self._afar.listener)) is not None:
            connection, uid = accepted
            self._admit(connection, AFAR, uid == self._afar.relay_uid)

    def _admit(self, connection: socket.socket, uid: int, may: bool) -> None:
        """Hears what he asks, if he may, and not too many do."""
        if not may or len(self._askers) >= MAX_CONNECTIONS or self._count(uid) >= 2 * _most_of(uid):
            connection.close()
            return
        asker = _Asker(connection, uid, time.monotonic() + PATIENCE)
        self._askers[connection] = asker
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(asker))

    def _count(self, uid: int) -> int:
        return sum(each.uid == uid for each in self._askers.values())

    def _receive(self, asker: _Asker) -> None:
        if asker.connection not in self._askers:
            return
        try:
            packet = asker.connection.recv(frames.MAX_PACKET + 1)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet or asker.words is not None:  # who says more than his request, or leaves, has had it
            self._drop(asker)
            return
        with self._refusing(asker):
            found = asker.assembler.add(packet)
            if found is not None:
                self._take(asker, frames.decode_words(found[1]))
        self._next()

    @contextlib.contextmanager
    def _refusing(self, asker: _Asker) -> Iterator[None]:
        """Whatever is raised within costs this asker alone."""
        try:
            yield
        except (Refused, BadWarrant, FrameError) as refused:
            self._refuse(asker, str(refused))
        except Exception:
            self._refuse(asker, "joblens-door failed on this request: its log says how", f": {traceback.format_exc()}")

    def _take(self, asker: _Asker, words: Words) -> None:
        """A whole request. Raises Refused."""
        asker.words = words
        most = _most_of(asker.uid)
        if sum(each.uid == asker.uid and each.words is not None for each in self._askers.values()) > most:
            whose = "requests from afar" if asker.uid == AFAR else "of your requests"
            raise Refused(f"{most} {whose} wait here: ask when they are answered")
        self._pace(asker)
        job = words.fields.get(door.JOB, b"").decode("utf-8", "replace")
        if not _JOB.fullmatch(job):
            raise Refused("a job is named by its cluster and process: 12.0")
        asker.job = job if "." in job else f"{job}.0"
        if words.word == door.PROVE:
            self._send(asker, door.PROVING, {door.NONCE: self._new_nonce(asker)})
            return
        if words.word in _NEVER or words.word not in VERBS:
            raise Refused(f"nobody vouches for {printable(words.word, 20)}")
        understand(Words(words.word, {**_arguments(words), "job": job.encode()}), 0, asker.uid, 2)
        if door.NONCE in words.fields:
            asker.proof = self._proof(asker, words)
        elif asker.uid == AFAR:
            raise Refused("who asks from afar proves that he may edit the job: JobLensProof")
        self._waiting.append(asker)

    def _pace(self, asker: _Asker) -> None:
        """Counts a request. Raises Refused."""
        if asker.uid != AFAR:
            self._audit.pace(asker.uid)
        elif self._afar is not None:
            self._afar.pace()

    def _new_nonce(self, asker: _Asker) -> bytes:
        if asker.uid == AFAR and self._afar is not None:
            return self._afar.nonces.new(asker.job)
        own = [nonce for nonce, (uid, _, _) in self._nonces.items() if uid == asker.uid]
        for nonce in own[: max(0, len(own) - NONCES_OF_A_USER + 1)]:
            del self._nonces[nonce]
        if len(self._nonces) >= NONCES:
            self._nonces.popitem(last=False)
        made = warrants.new_nonce()
        self._nonces[made] = asker.uid, asker.job, time.monotonic() + PROVING_SECONDS
        return made

    def _proof(self, asker: _Asker, words: Words) -> str:
        """What the job's ad has to hold for this request. Raises Refused if it has no nonce that is good."""
        nonce = words.fields[door.NONCE]
        if asker.uid == AFAR and self._afar is not None:
            self._afar.nonces.check(nonce, asker.job)
        else:
            self._use_own_nonce(asker, nonce)
        job = words.fields[door.JOB].decode("utf-8", "replace")
        return door.proof(nonce, words.word, job, words.fields.get(door.SEALING_KEY, b""), _arguments(words))

    def _use_own_nonce(self, asker: _Asker, nonce: bytes) -> None:
        """It is used then, whatever comes. Raises Refused."""
        uid, job, until = self._nonces.get(nonce, (-1, "", 0.0))
        if uid == asker.uid:
            del self._nonces[nonce]
        if (uid, job) != (asker.uid, asker.job) or time.monotonic() >= until:
            raise Refused("this nonce was not given for this, has been used, or is too old: ask for another")

    def _next(self) -> None:
        """Asks the schedd about whoever waits longest, if it is not being asked. Users of this machine come first."""
        while self._asked is None and self._waiting:
            asker = next((each for each in self._waiting if each.uid != AFAR), self._waiting[0])
            self._waiting.remove(asker)
            if asker.connection in self._askers:
                self._asked, self._asked_until = asker, time.monotonic() + QUEUE_SECONDS
                self._queue.ask(asker.uid, asker.job)

    def _answer(self) -> None:
        answer: tuple[bytes, int] | Refused | None
        try:
            answer = self._queue.take()
        except Refused as refused:
            answer = refused
        if answer is None:
            return
        asker, self._asked = self._asked, None
        if asker is not None and asker.connection in self._askers:
            with self._refusing(asker):
                if isinstance(answer, Refused):
                    raise answer
                uid = None if asker.uid == AFAR else asker.uid
                found = target(*answer, uid, self._domain, self._own_key, asker.proof)
                self._use(asker)
                self._send(asker, door.SIGNED, self._signed(asker, found).fields())
        self._next()

    def _use(self, asker: _Asker) -> None:
        """His proof was good: it is so once. Raises Refused if another request has used it meanwhile."""
        if asker.uid == AFAR and self._afar is not None and asker.words is not None:
            self._afar.nonces.use(asker.words.fields[door.NONCE], asker.job)

    def _signed(self, asker: _Asker, found: Target) -> door.Signed:
        """Raises BadWarrant."""
        assert asker.words is not None
        words, now = asker.words, int(self._clock() * 1000)
        job = found.job
        warrant = Warrant(
            job.user, found.asker, job.run, job.slot, words.word, _arguments(words),
            words.fields.get(door.SEALING_KEY, b""), warrants.new_nonce(), now, now + SECONDS * 1000,
        )  # fmt: skip
        packet = warrants.sign(warrant, self._key)
        name = warrants.name_of(warrant)
        who = job.user if found.asker == job.user else f"{found.asker} for {job.user}"
        self._audit.granted(f"job {asker.job}: {who} may {words.word} in {job.slot}: {name}")
        return door.Signed(packet, job.job, job.slot, job.node_key)

    def _refuse(self, asker: _Asker, why: str, trace: str = "") -> None:
        """Tells the asker why, and the log how it came to that."""
        what = printable(asker.words.word, 20) if asker.words is not None else "something"
        who = "somebody afar" if asker.uid == AFAR else f"user {asker.uid}"
        self._audit.refused(asker.uid, f"job {asker.job or '?'}: {who} asked for {what}, refused: {why}{trace}")
        self._send(asker, REFUSED, {"reason": printable(why, 300).encode("utf-8", "replace")})

    def _send(self, asker: _Asker, word: str, fields: dict[str, bytes]) -> None:
        with contextlib.suppress(OSError):
            for packet in frames.frames(frames.END, frames.encode_words(word, fields)):
                asker.connection.send(packet)
        self._drop(asker)

    def _drop(self, asker: _Asker) -> None:
        if self._askers.pop(asker.connection, None) is not None:
            self._selector.unregister(asker.connection)
        asker.connection.close()


def _accepted(listener: socket.socket) -> tuple[socket.socket, int] | None:
    """Who has connected, and his user id; None if he has left."""
    try:
        connection, _ = listener.accept()
    except OSError:
        return None
    connection.setblocking(False)
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return connection, uid


def _most_of(uid: int) -> int:
    """Requests that wait, and half the connections."""
    return AT_ONCE if uid == AFAR else MAX_OF_A_USER


def _arguments(words: Words) -> dict[str, bytes]:
    return {name: value for name, value in words.fields.items() if name not in (door.JOB, door.SEALING_KEY, door.NONCE)}
