"""What the hub says to the relay server of entries, for one of its people: as `joblens control` says it.

The server believes the hub about who asks (its roles name the hub's user), and has the last word on what his role may.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.control import client
from condor_joblens.hub.web.people import Person

PATIENCE = 10.0
"""Seconds for an answer: for a preview the server itself waits for 3 s."""

ADDED, ENDED, ASKED = "entry added", "entry ended", "entry asked for"
"""What rows of the audit call it."""


class Away(JobLensError):
    """The server does not do it, with its reason."""


class Unknown(Away):
    """It may have been done: the connection ended before the answer."""


def said(path: str, action: str, person: Person, given: Mapping[str, str]) -> dict[str, Any]:
    """The server's answer. path: its socket. Raises Away."""
    if not path:
        raise Away("this hub knows no relay server: its administrator starts it with --control")
    groups = "\n".join(dict.fromkeys(group for group, _ in person.groups))
    who = {"asker": person.name, "asker_role": person.role.value, "asker_groups": groups}
    try:
        parts = list(client.stream(path, action, {**given, **who}, PATIENCE, client.HUB, grants="done"))
        answer: dict[str, Any] = json.loads(b"".join(parts))
    except client.Lost as error:
        raise Unknown(str(error)) from None
    except JobLensError as error:
        raise Away(printable(str(error), 400)) from None
    except ValueError:
        raise Unknown("the relay server answers in another protocol: install the same version of both") from None
    return answer


def sentence(entry: Mapping[str, Any]) -> str:
    """An entry as the server told it, for the audit."""
    return f"{entry['Name']} for {entry['Whom']}: {entry['What']}; {entry['Reason']}"


def of_schedd(schedd: str) -> str:
    """The expression that a job is of a schedd, for which an entry has no word. schedd: letters, digits and . _ @ -"""
    return f'substr(GlobalJobId, 0, {len(schedd) + 1}) == "{schedd}#"'
