"""Who somebody is: a file that names people, how each logs in, and whose jobs are his.

    [alice]
    role = user
    login = unix:alice, remote:alice@EXAMPLE.ORG
    jobs = alice@ap1.example.org, asmith@ap2.example.org

`jobs` are OWNER@SCHEDD, as records have them. Equal names are never enough: who is not named there has no jobs. A
manager also has `groups`, GROUP@SCHEDD: these accounting groups, and what is below them (GROUP.OTHER). Whoever has
`mail` is told of his own jobs there, by rules that say so.
"""

from __future__ import annotations

import configparser
import re
from dataclasses import dataclass
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.web.who_sees import Role

_ADDRESS = re.compile(r"[A-Za-z0-9._+=-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")

UNIX, REMOTE, OIDC, CONDOR = "unix", "remote", "oidc", "condor"
WAYS = (UNIX, REMOTE, OIDC, CONDOR)
"""How somebody logs in: by a Unix socket's peer, what the proxy says, an OpenID provider, a token of HTCondor."""


@dataclass(frozen=True)
class Person:
    """One of them."""

    name: str
    role: Role
    logins: frozenset[str]  # WAY:NAME
    jobs: tuple[tuple[str, str], ...]  # owner and schedd
    groups: tuple[tuple[str, str], ...] = ()  # accounting group and schedd, of a manager
    former: tuple[tuple[str, int], ...] = ()  # pseudonyms in old rows -> the place in `jobs` of who that is
    mail: str = ""  # where rules tell him of his own jobs; empty: they don't

    @property
    def scope(self) -> tuple[Any, ...]:
        """Who has the same sees the same."""
        return self.role, self.jobs, self.groups


def read_people(text: str) -> list[Person]:
    """Raises JobLensError with what is wrong."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), default_section="")
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise JobLensError(f"the file of people can't be read: {printable(str(error), 200)}") from None
    people = [_person(name, parser[name]) for name in parser.sections()]
    logins = [login for person in people for login in person.logins]
    for login in logins:
        if logins.count(login) > 1:
            raise JobLensError(f"{printable(login)} is the login of two people: name it once")
    return people


def _person(name: str, section: configparser.SectionProxy) -> Person:
    unknown = set(section) - {"role", "login", "jobs", "groups", "mail"}
    if unknown:
        known = "write role, login, jobs, groups or mail"
        raise JobLensError(f"{printable(name)}: there is no {printable(min(unknown))}: {known}")
    try:
        role = Role(section.get("role", "user"))
    except ValueError:
        roles = ", ".join(one.value for one in Role)
        raise JobLensError(f"{printable(name)}: the role is one of {roles}") from None
    logins = frozenset(_list(section.get("login", "")))
    for login in logins:
        way, _, who = login.partition(":")
        if way not in WAYS or not who:
            ways = ", ".join(f"{one}:NAME" for one in WAYS)
            raise JobLensError(f"{printable(name)}: {printable(login)} is none of {ways}")
        if way == CONDOR and "@" not in who:
            raise JobLensError(f"{printable(name)}: {printable(login)} has no domain: write condor:NAME@DOMAIN")
    jobs, groups = _at_schedds(name, section, "jobs", "OWNER"), _at_schedds(name, section, "groups", "GROUP")
    if groups and role is not Role.MANAGER:
        raise JobLensError(f"{printable(name)}: a {role.value} has no groups: write role = manager")
    mail = section.get("mail", "")
    if mail and not is_address(mail):
        raise JobLensError(f"{printable(name)}: {printable(mail)} is no address of mail")
    return Person(name, role, logins, jobs, groups, mail=mail)


def is_address(text: str) -> bool:
    """Whether this is an address of mail as people write it: nothing in it could begin another line or header."""
    return len(text) <= 254 and _ADDRESS.fullmatch(text) is not None


def _at_schedds(name: str, section: configparser.SectionProxy, word: str, what: str) -> tuple[tuple[str, str], ...]:
    """Raises JobLensError."""
    found = []
    for one in _list(section.get(word, "")):
        left, at, schedd = one.partition("@")
        if not (left and at and schedd):
            raise JobLensError(f"{printable(name)}: {printable(one)} is no {what}@SCHEDD")
        found.append((left, schedd))
    return tuple(found)


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]
