"""The socket on which people of the relay server's machine say who is watched: `joblens control`.

In frames of joblens/2. The request is `add`, `list`, `end` or `key` with its fields; the answer is DATA with a JSON
object, and an END. Who asks is known by the kernel, and what he may say by his role (roles.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.user_names import nobodys
from condor_joblens.control import frames
from condor_joblens.control.audit import Audit
from condor_joblens.control.entries import MAX_SECONDS, BadEntries, Entry, Role
from condor_joblens.control.frames import FrameError
from condor_joblens.control.verbs import REFUSED, Refused, level, number
from condor_joblens.relay import preview
from condor_joblens.relay.entry_store import EntryStore
from condor_joblens.relay.local import peer_of, request_on
from condor_joblens.relay.paced_log import tell_sums
from condor_joblens.relay.roles import Roles
from condor_joblens.relay.server import RelayServer

PATIENCE = 5.0
"""Seconds from a connection to its whole request, and for its answer to be read."""

AT_ONCE = 32

AGAIN_SECONDS = 10.0
"""After which a node that has not taken the list is told it again."""

OF_ONE, OF_ALL = 4, 20
"""Entries of a manager or an owner that hold, and of all of them: staff has room for others."""

DONE = "done"

COUNT_SECONDS = 3.0
"""For all nodes to answer a question."""

_NOBODY = "nobody knows who you are: is the server in a user namespace (PrivateUsers)?"
_TEXTS = ("user", "group", "vo", "executable", "node", "expression")


class Control:
    """Serves the people of this machine, and tells the nodes what they have said."""

    def __init__(
        self, listener: socket.socket, store: EntryStore, roles: Roles, server: RelayServer, log: Callable[[str], None]
    ) -> None:
        listener.setblocking(False)
        self.roles = roles
        self._listener, self._store, self._server, self._log = listener, store, server, log
        self._audit = Audit(log)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """For ever."""
        self._server.entries = self._store.packet
        try:
            await asyncio.gather(self._listen(), self._tell_again(), tell_sums(self._audit))
        finally:
            self._audit.sums(at_once=True)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # who came is gone, or there is no descriptor left for a moment
                await asyncio.sleep(0.1)
                continue
            if len(self._tasks) >= AT_ONCE:
                connection.close()
                continue
            task = loop.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell_again(self) -> None:
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            self._server.tell_entries(only_again=True)

    async def _serve(self, connection: socket.socket) -> None:
        uid = peer_of(connection)
        with connection, contextlib.suppress(OSError, asyncio.TimeoutError):
            try:
                words = await asyncio.wait_for(request_on(connection), PATIENCE)
                self._audit.pace(uid)
                answer = await self._preview(words, uid) if words.word == "preview" else self._answer(words, uid)
            except (JobLensError, FrameError, Refused, BadEntries, ValueError) as error:
                self._audit.refused(uid, f"{name_of(uid)}: refused: {printable(str(error), 300)}")
                await asyncio.wait_for(_send(connection, None, str(error)), PATIENCE)
            else:
                await asyncio.wait_for(_send(connection, answer), PATIENCE)

    def _answer(self, words: frames.Words, uid: int) -> dict[str, Any]:
        """Raises JobLensError, BadEntries, ValueError."""
        try:
            return self._done(words, uid)
        except OSError as error:
            raise JobLensError(f"the entries can't be written: {error.strerror}") from None

    def _done(self, words: frames.Words, uid: int) -> dict[str, Any]:
        if words.word == "key":
            return {"Key": self._store.public_key}
        if uid in nobodys():
            raise JobLensError(_NOBODY)
        name = name_of(uid)
        role = self.roles.of(name)
        if words.word == "list":
            return {"Entries": [told(entry) for entry in self._store.holding()], **self._server.entries_taken()}
        if words.word == "add":
            return self._add(words.fields, name, role)
        if words.word == "end":
            return self._end(words.fields.get("name", b"").decode("utf-8", "replace"), name, role)
        raise JobLensError("only add, list, end and key are done here")

    async def _preview(self, words: frames.Words, uid: int) -> dict[str, Any]:
        """How many jobs an entry would be for, of which as many nodes as have answered in time tell. Raises as _add."""
        if uid in nobodys():
            raise JobLensError(_NOBODY)
        name = name_of(uid)
        entry = self._entry(words.fields, name, self.roles.of(name))
        answers = await self._server.preview(self._store.question(entry), COUNT_SECONDS)
        others = preview.contradicting(entry, self._store.holding())
        found, shared = preview.summed(answers, others)
        contradicted = [{**told(other), "Jobs": jobs} for other, jobs in zip(others, shared)]
        return {"Entry": told(entry), **found, "AtMost": bool(entry.expression), "Contradicts": contradicted}

    def _add(self, given: Mapping[str, bytes], name: str, role: Role) -> dict[str, Any]:
        entry = self._entry(given, name, role)
        theirs = [each for each in self._store.holding() if each.role in _FEW]
        if role in _FEW and (len(theirs) >= OF_ALL or sum(each.author == entry.author for each in theirs) >= OF_ONE):
            raise JobLensError(f"at most {OF_ONE} entries of a user hold at a time, and {OF_ALL} of all but staff")
        self._store.add(entry)
        self._audit.granted(f"{entry.author}: entry {entry.name} for {entry.whom()}: {entry.says()} ({entry.reason})")
        self._server.tell_entries()
        return {"Added": told(entry), **self._server.entries_taken()}

    def _entry(self, given: Mapping[str, bytes], name: str, role: Role) -> Entry:
        """Raises BadEntries, JobLensError, ValueError."""
        texts = {field: given.get(field, b"").decode("utf-8", "replace") for field in _TEXTS}
        author = name
        if role is Role.OWNER:
            author = f"{name}@{self.roles.domain}"
            if texts["user"] not in ("", name, author):
                raise JobLensError("you may say this of your own jobs only")
            texts["user"] = author
        if role is Role.MANAGER and not self.roles.may(name, texts["group"]):
            raise JobLensError(f"name a group of yours by --group: {', '.join(self.roles.groups[name])}")
        now, lasts = int(time.time() * 1000), _read(given, "seconds", "for", number(MAX_SECONDS))
        cluster = _read(given, "cluster", "cluster", number((1 << 31) - 1))
        return Entry(
            name=f"e{os.urandom(4).hex()}", role=role, author=author, begins=now,
            ends=now + 1000 * (3600 if lasts is None else lasts),
            reason=given.get("reason", b"").decode("utf-8", "replace"),
            least=_read(given, "least", "at least", level), most=_read(given, "most", "at most", level),
            period=_read(given, "period", "period", _period) or 0.0,
            cluster=-1 if cluster is None else cluster, **texts,
        )  # fmt: skip

    def _end(self, wanted: str, name: str, role: Role) -> dict[str, Any]:
        found = next((entry for entry in self._store.holding() if entry.name == wanted), None)
        if found is None:
            raise JobLensError(f"no entry {printable(wanted, 20)} holds: `joblens control list` names them")
        is_own = found.author in (name, f"{name}@{self.roles.domain}") and found.role is role
        if not is_own and _RANKS.index(role) > _RANKS.index(found.role):
            raise JobLensError(f"entry {found.name} is of {found.role.value} {found.author}")
        if not is_own and role not in (Role.ADMINISTRATOR, Role.OPERATOR):
            raise JobLensError("only its author and the staff end an entry")
        self._store.end(found.name)
        self._audit.granted(f"{name}: entry {found.name} of {found.author} is ended")
        self._server.tell_entries()
        return {"Ended": told(found), **self._server.entries_taken()}


_T = TypeVar("_T")
_RANKS = list(Role)
_FEW = (Role.MANAGER, Role.OWNER)


def _read(given: Mapping[str, bytes], field: str, word: str, parse: Callable[[bytes], _T]) -> _T | None:
    """What somebody has said; None if he has not. Raises JobLensError that says of what it is wrong."""
    if not given.get(field):
        return None
    try:
        return parse(given[field])
    except ValueError as error:
        raise JobLensError(f"{word}: {error}") from None


def _period(value: bytes) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("is a number of seconds") from None


def told(entry: Entry) -> dict[str, Any]:
    """An entry for people and programs."""
    return {
        "Name": entry.name,
        "Role": entry.role.value,
        "Author": entry.author,
        "Whom": entry.whom(),
        "What": entry.says(),
        "Until": entry.ends // 1000,
        "Reason": entry.reason,
    }


def name_of(uid: int) -> str:
    """A user of this machine; his number if he has no name, which is nobody's in the file of roles."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


async def _send(connection: socket.socket, answer: Mapping[str, Any] | None, reason: str = "") -> None:
    """Raises OSError."""
    loop = asyncio.get_running_loop()
    if answer is not None:
        for frame in frames.frames(frames.DATA, json.dumps(answer).encode()):
            await loop.sock_sendall(connection, frame)
    word, fields = (REFUSED, {"reason": printable(reason, 300).encode()}) if answer is None else (DONE, {})
    for frame in frames.frames(frames.END, frames.encode_words(word, fields)):
        await loop.sock_sendall(connection, frame)
