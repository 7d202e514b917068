"""Sessions of browsers, for commands beside the pages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from condor_joblens.hub.postgres import Postgres
from condor_joblens.hub.web.site import configure


def end_sessions(folder: Path, logins: Iterable[str], database: Postgres | None = None) -> int:
    """Of these logins; how many there were. folder: the hub's. Once a process."""
    configure(folder, [], False, database)
    from django.contrib.sessions.models import Session
    from django.db import connection

    ended, those = 0, frozenset(logins)
    if database is None:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA secure_delete = ON")
    for session in Session.objects.all():
        if session.get_decoded().get("login") in those:
            session.delete()
            ended += 1
    if database is None:
        with connection.cursor() as cursor:
            cursor.execute("VACUUM")
    return ended
