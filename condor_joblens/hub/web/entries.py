"""Entries of the controller, as the relay server has them: who says which, and what was said by the hub."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.entry_server import ADDED, ASKED, ENDED, of_schedd, said, sentence
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.desk import desk
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.who_sees import Role

LEVELS = ("off", "basic", "io", "profile", "trace")
WHOM = ("user", "group", "vo", "executable", "node", "cluster", "expression")
"""For which jobs: all that is given must fit."""

MOST_HOURS = 24
MOST_TEXT = 256
DAYS, MOST_ROWS = 30, 200
"""Of what was said by these pages."""

_NAME = re.compile(r"e[0-9a-f]{8}")
_NUMBER = re.compile(r"[0-9]{1,5}(\.[0-9]{1,3})?")
_STAFF = (Role.ADMINISTRATOR, Role.OPERATOR)


def may(person: Person) -> bool:
    """Whether entries are his business."""
    return person.role in _STAFF or (person.role is Role.MANAGER and bool(person.groups))


def entries(person: Person) -> dict[str, Any]:
    """Those that hold, as far as they concern him, and what was said here. Raises JobLensError."""
    found = _said("list", person, {})
    mine = f"hub:{person.name}"
    shown = [
        one
        for one in found["Entries"]
        if person.role in _STAFF or one["Author"] == mine or _schedds(person, one.get("Group", ""))
    ]
    access = desk().access
    rows = [] if access is None else list(access.audit(time.time() - DAYS * 86400))
    history = [
        {"time": row.time, "who": row.who, "what": row.what, "about": row.about}
        for row in reversed(rows)
        if row.what in (ADDED, ENDED) and (person.role in _STAFF or row.who == person.name)
    ]
    return {
        "entries": [{**one, "IsMine": one["Author"] == mine} for one in shown],
        **{word: found[word.capitalize()] for word in ("nodes", "taken", "refused")},
        "reasons": found["Reasons"] if person.role in _STAFF else {},
        "history": history[:MOST_ROWS],
    }


def fields(person: Person, given: Mapping[str, str]) -> dict[str, str]:
    """An entry of a form, as the server reads it. Raises WrongRequest."""
    found = {name: given.get(name, "").strip() for name in (*WHOM, "least", "most", "period", "reason")}
    if any(len(text) > MOST_TEXT for text in found.values()):
        raise WrongRequest(f"a text has at most {MOST_TEXT} characters")
    for name in ("least", "most"):
        if found[name] and found[name] not in LEVELS:
            raise WrongRequest(f"a level is one of {', '.join(LEVELS)}")
    hours = given.get("hours", "1")
    if not _NUMBER.fullmatch(hours) or not 0 < float(hours) <= MOST_HOURS:
        raise WrongRequest(f"an entry lasts for up to {MOST_HOURS} hours")
    if person.role is Role.MANAGER:
        found["expression"] = _of_schedds(person, found["group"], found["expression"])
    return {"seconds": str(max(1, round(3600 * float(hours)))), **{name: text for name, text in found.items() if text}}


def preview(person: Person, entry: Mapping[str, str]) -> dict[str, Any]:
    """How many running jobs it would be for. Raises JobLensError."""
    return _said("preview", person, entry)


def add(person: Person, entry: Mapping[str, str]) -> dict[str, Any]:
    """It holds from now on. What can't be noted is not said. Raises JobLensError."""
    words = ", ".join(f"{name} {text}" for name, text in entry.items())
    _note(person, ASKED, words)
    added: dict[str, Any] = _said("add", person, entry)["Added"]
    _note(person, ADDED, sentence(added))
    return added


def end(person: Person, name: str) -> None:
    """It holds no more. Raises JobLensError, WrongRequest."""
    if not _NAME.fullmatch(name):
        raise WrongRequest("an entry's name is e and eight hexadecimal digits")
    _note(person, ASKED, f"the end of {name}")
    _note(person, ENDED, sentence(_said("end", person, {"name": name})["Ended"]))


def _note(person: Person, what: str, about: str) -> None:
    access = desk().access
    if access is None:
        raise JobLensError("this hub has no audit")
    access.note(person.name, what, about)


def _schedds(person: Person, group: str) -> list[str]:
    """At which schedds a group is his to manage."""
    return [schedd for own, schedd in person.groups if group == own or group.startswith(f"{own}.")]


def _of_schedds(person: Person, group: str, expression: str) -> str:
    """A manager's groups are those of a schedd, and an entry has no word for one. Raises WrongRequest."""
    schedds = _schedds(person, group)
    if not schedds:
        raise WrongRequest(f"name a group of yours: {', '.join(sorted({own for own, _ in person.groups}))}")
    if expression:
        raise WrongRequest("an expression is for the site's staff")
    if not all(re.fullmatch(r"[A-Za-z0-9._@-]+", schedd) for schedd in schedds):
        raise WrongRequest("the schedd of this group has a name that can't be part of an entry")
    return " || ".join(map(of_schedd, sorted(schedds)))


def _said(action: str, person: Person, given: Mapping[str, str]) -> dict[str, Any]:
    """The server's answer. Raises Away."""
    return said(desk().control, action, person, given)
