"""The entries that hold on this node: what the site's server has signed, and for which runs each is.

They are kept in JOBLENS_RUN_DIR as they came, and verified again by whoever reads them. Each ends at its own time,
whether the server lives or not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from condor_joblens.agent.levels.ranks import NONE_LEAST, NONE_MOST, OF_ROLE, Word
from condor_joblens.common import files
from condor_joblens.common.config import Config
from condor_joblens.common.errors import printable
from condor_joblens.common.time_of_day import time_of_day
from condor_joblens.control import entries as signed
from condor_joblens.control.entries import BadEntries, Entry, EntryList
from condor_joblens.control.keys import key_in
from condor_joblens.jobs.run_table import Runs
from condor_joblens.model.levels import Level
from condor_joblens.policy.job_identity import Identity

FILE = "entries"
LEVELS = "levels"
"""The value of JOBLENS_HUB_MAY with which entries hold."""

NOTHING = "none"
"""The value with which not even questions are answered."""

ASKED_SECONDS = 300.0
"""After which a question is not answered any more, and so much may clocks differ."""

CLOCKS = 60.0
"""Seconds by which the clocks of node and server may differ before it is said."""

_NONE = EntryList(0, 0, ())


class Entries:
    """What the server said last."""

    def __init__(
        self, folder: str = "", key: bytes = b"", log: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`key` is the server's; empty: none is known, and nothing is taken. `clock` gives seconds since 1970."""
        self._path, self._key, self._log, self._clock = os.path.join(folder, FILE), key, log, clock
        self._held = _NONE
        self._host = platform.node()
        if key:
            self._load()

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:
                self._held = signed.verify(file.read(signed.MAX_BYTES + 1), self._key)
        except FileNotFoundError:
            return
        except (OSError, BadEntries) as error:
            self._log(f"{self._path}: {error}: the entries that held before are gone until the server says them again")

    def take(self, packet: bytes, config: Config) -> None:
        """These hold from now on, and no others. Raises BadEntries."""
        if config.hub_may != LEVELS:
            raise BadEntries(f"this node takes no entries: JOBLENS_HUB_MAY is {config.hub_may}")
        new = signed.verify(packet, self._key)
        if new.serial < self._held.serial:
            raise BadEntries("a later list was taken already")
        is_known = new.serial == self._held.serial
        if is_known and new.issued <= self._held.issued:
            return  # anybody may bring again what was taken: how old it is by now says nothing of clocks
        off = self._clock() - new.issued / 1000
        if abs(off) > CLOCKS:
            self._log(
                f"a list of entries was signed {abs(off):.0f} s {'ago' if off > 0 else 'from now'}: it was kept back, "
                "or this node's clock or the server's is wrong. Entries begin and end by this node's"
            )
        if is_known:
            self._held = dataclasses.replace(self._held, issued=new.issued)
            return
        try:
            files.write(self._path, packet, 0o600)
        except OSError as error:  # they hold, until joblensd ends
            self._log(f"{self._path}: {error.strerror}: entries are not kept")
        self._say(self._held.entries, new.entries)
        self._held = new

    def _say(self, before: Sequence[Entry], now: Sequence[Entry]) -> None:
        old, new = ({entry.name: entry for entry in entries} for entries in (before, now))
        for name in new.keys() - old.keys():
            self._log(f"entry {name} for {printable(new[name].whom(), 300)}: {self.words(name, new[name])}")
        for name in old.keys() - new.keys():
            if old[name].ends / 1000 > self._clock():
                self._log(f"entry {name} was ended by the server")

    def asked(self, packet: bytes, config: Config) -> Entry:
        """The entry of a question how many jobs it would be for. Raises BadEntries."""
        if config.hub_may == NOTHING:
            raise BadEntries(f"this node tells no numbers: JOBLENS_HUB_MAY is {config.hub_may}")
        question = signed.verify(packet, self._key, signed.QUESTION)
        if len(question.entries) != 1 or abs(self._clock() - question.issued / 1000) > ASKED_SECONDS:
            raise BadEntries("a question is about one entry, and is asked now: a clock may be wrong")
        return question.entries[0]

    def holding(self, config: Config) -> list[Entry]:
        """Those that hold now."""
        if not self._held.entries or config.hub_may != LEVELS:
            return []
        now = self._clock()
        return [each for each in self._held.entries if each.begins / 1000 - CLOCKS <= now < each.ends / 1000]

    def expressions(self, config: Config) -> list[tuple[str, str]]:
        """Names of those that hold, and are for jobs by an expression."""
        return [(each.name, each.expression) for each in self.holding(config) if each.expression]

    def words(self, name: str, entry: Entry | None = None) -> str:
        """An entry for people: at least io, by operator carol until 14:05: why. Empty if it is not known any more."""
        entry = entry or next((each for each in self._held.entries if each.name == name), None)
        if entry is None:
            return ""
        until = time_of_day(entry.ends / 1000)
        return printable(f"{entry.says()}, by {entry.role.value} {entry.author} until {until}: {entry.reason}", 300)

    def fits(self, entry: Entry, table: Runs, runs: np.ndarray, matching: Sequence[Sequence[str]]) -> np.ndarray:
        """For which of `runs` (n,) it is, shape (n,). `matching` are the entries whose expression is true of each."""
        rows, state = table.rows, table.state
        found: np.ndarray = np.full(len(runs), not entry.node or self._is_here(entry.node))
        if entry.user:
            found &= (state["user"] if "@" in entry.user else rows["owner"])[runs] == entry.user.encode()
        if entry.group:
            groups = np.char.add(np.char.lower(rows["accounting_group"][runs]), b".")  # as signed.is_of_group
            found &= np.char.startswith(groups, f"{entry.group}.".lower().encode())
        for column, wanted in (("vo", entry.vo), ("executable", entry.executable)):
            if wanted:
                found &= rows[column][runs] == wanted.encode()
        if entry.cluster >= 0:
            found &= np.char.startswith(rows["job_id"][runs], f"{entry.cluster}.".encode())
        if entry.expression:
            found &= np.array([entry.name in names for names in matching], "?")
        return found

    def may_raise(self, job: Identity, level: Level, config: Config) -> bool:
        """Whether one that holds could raise a job to `level`, as far as its ad tells without being evaluated."""
        return any(self._could_be(entry, job) for entry in self.holding(config) if self._least(entry, config) >= level)

    def _could_be(self, entry: Entry, job: Identity) -> bool:
        return not (
            (entry.node and not self._is_here(entry.node))
            or (entry.user and entry.user.partition("@")[0] != job.get("Owner"))
            or (entry.group and not signed.is_of_group(str(job.get("AcctGroup", "")), entry.group))
            or (entry.vo and entry.vo != job.get("x509UserProxyVOName"))
            or (entry.executable and entry.executable != job.get("Cmd"))
            or (entry.cluster >= 0 and entry.cluster != job.get("ClusterId"))
        )

    def _is_here(self, node: str) -> bool:
        return self._host in (node, node.partition(".")[0]) or self._host.partition(".")[0] == node

    @staticmethod
    def _least(entry: Entry, config: Config) -> int:
        return NONE_LEAST if entry.least is None else min(entry.least, config.hub_max_level)

    def said(
        self, config: Config, table: Runs, runs: np.ndarray, matching: Sequence[Sequence[str]], bound: np.ndarray
    ) -> Iterator[tuple[Entry, np.ndarray, Word]]:
        """Each that holds, for which of `runs` (n,) it is, and what it says; `source` is its place in this order.

        Nothing is raised above `bound`, shape (n,).
        """
        for source, entry in enumerate(self.holding(config)):
            fits = self.fits(entry, table, runs, matching)
            yield entry, fits, self.word(entry, source, fits, config, bound)

    def word(self, entry: Entry, source: int, fits: np.ndarray, config: Config, bound: np.ndarray) -> Word:
        """What an entry says of the runs that it `fits`, shape (n,)."""
        least = np.where(fits, np.minimum(self._least(entry, config), bound), NONE_LEAST)
        most = np.where(fits, NONE_MOST if entry.most is None else entry.most, NONE_MOST)
        return Word(OF_ROLE[entry.role], source, least, most)


def open_entries(config: Config, log: Callable[[str], None]) -> Entries:
    """What this node holds. `cryptography` is loaded if there is a key, before joblensd confines itself."""
    key = key_in(config.hub_key)
    if config.hub_key and not key:
        log("JOBLENS_HUB_KEY is no key: write what `joblens control key` says on the relay server's machine")
    try:
        if key:
            _warm_up(key)
        return Entries(config.run_dir, key, log)
    except ImportError as error:
        log(f"no entries are taken: {error.name or error} is missing: make install EXTRAS=relay")
        return Entries()


def _warm_up(key: bytes) -> None:
    """What the package loads at its first use can't be opened later. Raises ImportError."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    with contextlib.suppress(InvalidSignature, ValueError):
        Ed25519PublicKey.from_public_bytes(key).verify(bytes(signed.SIGNATURE_BYTES), b"")
