"""`joblens-hub forget`: a person, his jobs' rows and what was made of them, his tokens, sessions and mappings.

Rows of the audit stay, with another name for his. What other people's jobs say of him stays too.
"""

from __future__ import annotations

import os
import re
import tempfile
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.artifacts import Artifacts
from condor_joblens.hub.rules.firings import Firings
from condor_joblens.hub.store.client import Store
from condor_joblens.hub.store.forget import Forgetter
from condor_joblens.hub.web.access import Access
from condor_joblens.hub.web.people import Person, read_people

_ASKED_AT_ONCE = 200
"""Names of jobs in one question."""

_OF_JOBS = re.compile(r"^(/(?:api/v1/)?job/)([^/?]+)(.*)$", re.S)


@dataclass
class Forgotten:
    """What went."""

    rows: Mapping[str, int] = field(default_factory=dict)  # by table
    tokens: int = 0
    audit: int = 0  # rows that have another name now
    sessions: int = 0
    artifacts: int = 0
    firings: int = 0  # of rules, about him alone, and alarms that he posted
    is_unnamed: bool = False  # whether the file of people has lost his section

    def __str__(self) -> str:
        parts = [f"{count} rows of {table}" for table, count in self.rows.items()]
        parts += [
            f"{self.artifacts} artifacts",
            f"{self.firings} firings",
            f"{self.tokens} tokens",
            f"{self.sessions} sessions",
            f"another name in {self.audit} rows of the audit",
        ]
        return ", ".join([*parts, *(["his section of the file of people"] if self.is_unnamed else [])])


def forget(
    person: Person,
    store: Store,
    access: Access,
    artifacts: Artifacts,
    firings: Firings,
    people: Path | None,
    by: str,
    end_sessions: Callable[[Iterable[str]], int],
) -> Forgotten:
    """people: the file of which his section goes, too. end_sessions: of these logins; how many. by: who says so.

    Raises JobLensError, OSError: what is not done then is done by the next time.
    """
    forgetter, found = Forgetter(store, person.jobs), Forgotten()
    alias = f"forgotten-{os.urandom(4).hex()}"
    jobs = _his_jobs(forgetter, access.about())
    anew = Renamer(alias, [person.name, *person.logins, *(owner for owner, _ in person.jobs)], jobs)
    if people is not None:
        found.is_unnamed = take_section(people, person.name)
    found.sessions = end_sessions(person.logins)
    found.artifacts = artifacts.forget(person.jobs)
    found.firings = firings.forget(person.name, person.jobs, [person.mail] if person.mail else [])
    found.rows = forgetter.forget()
    found.tokens, found.audit = access.forget(person.name, anew, by, lambda tokens, audit: f"{alias}: {found.rows}")
    return found


def _his_jobs(forgetter: Forgetter, texts: Iterable[str]) -> set[str]:
    """Of the jobs and runs that are named in rows of the audit: those that are his."""
    named = sorted({name for text in texts for name in names_of_jobs(text)})
    found: set[str] = set()
    for begin in range(0, len(named), _ASKED_AT_ONCE):
        found |= forgetter.runs(named[begin : begin + _ASKED_AT_ONCE])
    return found


def names_of_jobs(text: str) -> Iterator[str]:
    """Those in an address."""
    if (match := _OF_JOBS.match(text)) is not None:
        yield urllib.parse.unquote(match[2]).removesuffix(".json")
    for _, value in urllib.parse.parse_qsl(text.partition("?")[2]):
        if value.count("#") >= 2:
            yield value


class Renamer:
    """What stands in the audit -> the same, with another name for his, and for his jobs."""

    def __init__(self, alias: str, names: Iterable[str], jobs: Iterable[str]) -> None:
        self._alias, self._jobs = alias, frozenset(jobs)
        known = sorted({name for name in names if name}, key=len, reverse=True)
        self._names = re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, known)) + r")(?![\w-])")

    def __call__(self, text: str) -> str:
        """The text anew; the same text, if he is not in it."""
        if not text.startswith("/"):
            return self._names.sub(self._alias, text)
        path, mark, query = text.partition("?")
        match = _OF_JOBS.match(path)
        if match is not None and urllib.parse.unquote(match[2]).removesuffix(".json") in self._jobs:
            path = f"{match[1]}{self._alias}{match[3]}"
        words = urllib.parse.parse_qsl(query, keep_blank_values=True)
        changed = [
            (name, self._alias if value in self._jobs else self._names.sub(self._alias, value)) for name, value in words
        ]
        return path + mark + (query if changed == words else urllib.parse.urlencode(changed))


def person_of(people: Path | None, name: str, jobs: Iterable[str]) -> Person:
    """As the file has him, with these jobs besides (OWNER@SCHEDD). Raises JobLensError, OSError."""
    given = ", ".join(jobs)
    (found,) = read_people(f"[{name}]\njobs = {given}\n")
    if people is not None:
        with open(people, encoding="utf-8", errors="replace") as file:
            known = [one for one in read_people(file.read()) if one.name == name]
        if known:
            return Person(
                name,
                known[0].role,
                known[0].logins,
                tuple(dict.fromkeys(known[0].jobs + found.jobs)),
                mail=known[0].mail,
            )
    if not found.jobs:
        raise JobLensError(f"{printable(name)} is not in the file of people: say whose jobs go by --jobs OWNER@SCHEDD")
    return found


def take_section(people: Path, name: str) -> bool:
    """Takes a person's section out of the file; whether there was one. All else stays as it is. Raises OSError."""
    lines = people.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True)
    kept, is_his = [], False
    for line in lines:
        if line.startswith("["):
            is_his = line.strip()[1:].partition("]")[0] == name
        if not is_his:
            kept.append(line)
    if kept == lines:
        return False
    status = people.stat()
    with tempfile.NamedTemporaryFile(
        "w", dir=people.parent, prefix=".people-", delete=False, encoding="utf-8", errors="surrogateescape"
    ) as file:
        file.writelines(kept)
    os.chmod(file.name, status.st_mode & 0o7777)
    os.replace(file.name, people)
    return True
