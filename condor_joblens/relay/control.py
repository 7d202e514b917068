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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.user_names import nobodys
from condor_joblens.control import frames
from condor_joblens.control.audit import Audit
from condor_joblens.control.entries import MAX_PERIOD, MAX_SECONDS, MIN_PERIOD, BadEntries, Entry, Role
from condor_joblens.control.frames import FrameError
from condor_joblens.control.verbs import REFUSED, Payer, Refused, level, number
from condor_joblens.relay import preview
from condor_joblens.relay.entry_store import EntryStore
from condor_joblens.relay.local import peer_of, request_on
from condor_joblens.relay.paced_log import tell_sums
from condor_joblens.relay.roles import Roles, within
from condor_joblens.relay.server import RelayServer

TAKEN_SECONDS = 2.0
"""For nodes to take a new list, before its author is told how many have."""

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

HUBS = "hub:"
"""Before the name of a person of the pages' hub: no user of a machine is called so."""

_OF_HUB = (Role.ADMINISTRATOR.value, Role.OPERATOR.value, Role.MANAGER.value)
_NOBODY = "nobody knows who you are: is the server in a user namespace (PrivateUsers)?"
_TEXTS = ("user", "group", "vo", "executable", "node", "expression")


@dataclass(frozen=True)
class _Asker:
    """Who says something: a user of this machine, or a person of the pages' hub, as that says."""

    name: str
    role: Role
    groups: Sequence[str] = ()  # that he manages


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
            payer: Payer = uid
            try:
                words = await asyncio.wait_for(request_on(connection), PATIENCE)
                payer = self._payer(words.fields, uid)
                self._audit.pace(payer)
                answer = await self._answer(words, uid)
            except (JobLensError, FrameError, Refused, BadEntries, ValueError) as error:
                self._audit.refused(
                    payer, f"{payer if isinstance(payer, str) else name_of(uid)}: refused: {printable(str(error), 300)}"
                )
                await asyncio.wait_for(_send(connection, None, str(error)), PATIENCE)
            else:
                await asyncio.wait_for(_send(connection, answer), PATIENCE)

    async def _answer(self, words: frames.Words, uid: int) -> dict[str, Any]:
        """Raises JobLensError, BadEntries, ValueError."""
        if words.word == "preview":
            return await self._preview(words, uid)
        try:
            answer = self._done(words, uid)
        except OSError as error:
            raise JobLensError(f"the entries can't be written: {error.strerror}") from None
        if words.word == "key":
            return answer
        if words.word in ("add", "end"):
            await self._server.entries_are_taken(TAKEN_SECONDS)
        return {**answer, **self._server.entries_taken()}

    def _done(self, words: frames.Words, uid: int) -> dict[str, Any]:
        if words.word == "key":
            return {"Key": self._store.public_key}
        asker = self._asker(words.fields, uid)
        if words.word == "list":
            return {"Entries": [told(entry) for entry in self._store.holding()]}
        if words.word == "add":
            return self._add(words.fields, asker)
        if words.word == "end":
            return self._end(words.fields.get("name", b"").decode("utf-8", "replace"), asker)
        raise JobLensError("only add, list, end and key are done here")

    def _payer(self, given: Mapping[str, bytes], uid: int) -> Payer:
        """Whose commands are counted: each person of the hub has his own pace."""
        if "asker" in given and self.roles.hub and name_of(uid) == self.roles.hub:
            return printable(f"{HUBS}{given['asker'].decode('utf-8', 'replace')}", 100)
        return uid

    def _asker(self, given: Mapping[str, bytes], uid: int) -> _Asker:
        """Raises JobLensError: he has no role, or speaks for another."""
        if uid in nobodys():
            raise JobLensError(_NOBODY)
        name = name_of(uid)
        if "asker" not in given:
            return _Asker(name, self.roles.of(name), self.roles.groups.get(name, ()))
        if not name or name != self.roles.hub:
            raise JobLensError("only the hub, as the roles name it, speaks for others")
        who, role, groups = (
            given.get(field, b"").decode("utf-8", "replace") for field in ("asker", "asker_role", "asker_groups")
        )
        if not who or role not in _OF_HUB:
            raise JobLensError(f"of the hub's people, only {', '.join(_OF_HUB)} say entries")
        return _Asker(f"{HUBS}{who}", Role(role), tuple(filter(None, groups.split("\n"))))

    async def _preview(self, words: frames.Words, uid: int) -> dict[str, Any]:
        """How many jobs an entry would be for, of which as many nodes as have answered in time tell. Raises as _add.

        Who is about to add it says so, and is told at once if there is no room for it.
        """
        entry = self._entry(words.fields, self._asker(words.fields, uid))
        if words.fields.get("is_added"):
            self._check_room(entry)
        answers = await self._server.preview(self._store.question(entry), COUNT_SECONDS)
        others = preview.contradicting(entry, self._store.holding())
        found, shared = preview.summed(answers, others)
        contradicted = [{**told(other), "Jobs": jobs} for other, jobs in zip(others, shared)]
        return {"Entry": told(entry), **found, "AtMost": bool(entry.expression), "Contradicts": contradicted}

    def _add(self, given: Mapping[str, bytes], asker: _Asker) -> dict[str, Any]:
        entry = self._entry(given, asker)
        self._check_room(entry)
        self._store.add(entry)
        self._audit.granted(f"{entry.author}: entry {entry.name} for {entry.whom()}: {entry.says()} ({entry.reason})")
        self._server.tell_entries()
        return {"Added": told(entry)}

    def _check_room(self, entry: Entry) -> None:
        """Raises JobLensError, BadEntries if one more has no room."""
        theirs = [each for each in self._store.holding() if each.role in _FEW]
        own = sum(each.author == entry.author for each in theirs)
        if entry.role in _FEW and (len(theirs) >= OF_ALL or own >= OF_ONE):
            most = f"{OF_ONE} entries of a user hold at a time, and {OF_ALL} of all users and managers"
            raise JobLensError(f"at most {most}: {own} are yours")
        self._store.check_room(entry)

    def _entry(self, given: Mapping[str, bytes], asker: _Asker) -> Entry:
        """Raises BadEntries, JobLensError, ValueError."""
        name, role = asker.name, asker.role
        texts = {field: given.get(field, b"").decode("utf-8", "replace") for field in _TEXTS}
        author = name
        if role is Role.OWNER:
            author = f"{name}@{self.roles.domain}"
            if texts["user"] not in ("", name, author):
                raise JobLensError("you may say this of your own jobs only")
            texts["user"] = author
        if role is Role.MANAGER and not within(texts["group"], asker.groups):
            raise JobLensError(f"name a group of yours by --group: {', '.join(asker.groups)}")
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

    def _end(self, wanted: str, asker: _Asker) -> dict[str, Any]:
        name, role = asker.name, asker.role
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
        return {"Ended": told(found)}


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
        seconds = float(value)
    except ValueError:
        raise ValueError("is a number of seconds") from None
    if not MIN_PERIOD <= seconds <= MAX_PERIOD:  # none is said by leaving it away, and not by 0
        raise ValueError(f"is from {MIN_PERIOD:g} to {MAX_PERIOD:g} s")
    return seconds


def told(entry: Entry) -> dict[str, Any]:
    """An entry for people and programs."""
    return {
        "Name": entry.name,
        "Role": entry.role.value,
        "Author": entry.author,
        "Whom": entry.whom(),
        "What": entry.says(),
        "Begin": entry.begins // 1000,
        "Until": entry.ends // 1000,
        "Reason": entry.reason,
        **{name: value for name, value in _fields(entry).items() if value not in (None, "")},
    }


def _fields(entry: Entry) -> dict[str, Any]:
    """The same as `Whom` and `What` say in words, each by itself."""
    return {
        "AtLeast": None if entry.least is None else entry.least.word,
        "AtMost": None if entry.most is None else entry.most.word,
        "PeriodSeconds": entry.period or None,
        "User": entry.user,
        "Group": entry.group,
        "Vo": entry.vo,
        "Executable": entry.executable,
        "Node": entry.node,
        "Cluster": None if entry.cluster < 0 else entry.cluster,
        "Expression": entry.expression,
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
