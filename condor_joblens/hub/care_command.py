"""`joblens-hub backup|restore|migrate|forget`: what a hub keeps, looked after. As the hub's user."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub import backups
from condor_joblens.hub.access_command import access_of, database_of, folder_of_ours, of_all_commands, who_types
from condor_joblens.hub.artifacts import Artifacts
from condor_joblens.hub.database import VERSION
from condor_joblens.hub.forget import forget, person_of
from condor_joblens.hub.own_store import own_store
from condor_joblens.hub.postgres import Postgres
from condor_joblens.hub.pseudonyms import of_folder
from condor_joblens.hub.rules.firings import Firings
from condor_joblens.hub.store import migrations
from condor_joblens.hub.store.forget import Forgetter
from condor_joblens.hub.web.access import Access


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joblens-hub", description="What a hub keeps, looked after.")
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    common = of_all_commands()
    backup = words.add_parser("backup", parents=[common], help="copies all that the hub keeps, while it runs")
    backup.add_argument("target", metavar="FOLDER", type=Path, help="that is not there yet")
    restore = words.add_parser("restore", parents=[common], help="makes a hub's folder of a backup; no hub may run")
    restore.add_argument("--hub-role", metavar="NAME", default="", help="in the database: what a hub needs is granted")
    restore.add_argument("source", metavar="FOLDER", type=Path, help="of `backup`")
    migrate = words.add_parser(
        "migrate", parents=[common], help="makes what an older hub has kept as this one keeps it"
    )
    migrate.add_argument("--hub-role", metavar="NAME", default="", help="in the database: what a hub needs is granted")
    one = words.add_parser("forget", parents=[common], help="takes a person out: jobs, tokens, sessions, mappings")
    one.add_argument("person", help="as the file of people calls him")
    one.add_argument("--people", metavar="FILE", type=Path, help="that the hub reads; his section goes, too")
    one.add_argument("--jobs", metavar="OWNER@SCHEDD", action="append", default=[], help="his besides; may be repeated")
    one.add_argument("--yes", action="store_true", help="do it; without this, say what would go")
    options = parser.parse_args(arguments)
    os.umask(0o077)
    try:
        return {"backup": _backup, "restore": _restore, "migrate": _migrate, "forget": _forget}[options.word](options)
    except (JobLensError, OSError) as error:
        print(f"joblens-hub: {error}", file=sys.stderr)
        return 1


def _backup(options: argparse.Namespace) -> int:
    with own_store(folder_of_ours(options.folder)) as store:
        backups.back_up(store, options.folder, options.target.absolute(), database_of(options))
    print(f"all that {options.folder} keeps is in {options.target}, but for sessions of browsers")
    return 0


def _restore(options: argparse.Namespace) -> int:
    source = options.source.absolute()
    backups.about_of(source)
    options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    backups.refuse_used(folder_of_ours(options.folder))
    database = database_of(options)
    if database is not None:
        _prepare(database, options)
    with own_store(options.folder, is_to_be_alone=True) as store:
        backups.restore(store, options.folder, source, database)
    print(f"{options.folder} keeps what {source} has; tokens that were ended since are good again: see `token list`")
    return 0


def _migrate(options: argparse.Namespace) -> int:
    database = database_of(options)
    if database is not None:
        before = _prepare(database, options)
        print(f"{database.name} is of version {VERSION}; " + (f"it was {before}" if before else "there was none"))
    else:
        Access(folder_of_ours(options.folder))
    Artifacts(options.folder, 0)
    Firings(options.folder)
    with own_store(options.folder) as store:
        found = store.prepare()
    was = "there was none" if found is None else f"it was {found}"
    print(f"the store of {options.folder} is of version {migrations.VERSION}; {was}")
    return 0


def _prepare(database: Postgres, options: argparse.Namespace) -> int:
    """As the role that is to own the tables: makes them; which version they were. Raises JobLensError."""
    from condor_joblens.hub.web.site import configure, make_session_table

    was = database.prepare()
    configure(folder_of_ours(options.folder), [], False, database)
    make_session_table()
    if getattr(options, "hub_role", ""):
        database.grant(options.hub_role)
    return was


def _forget(options: argparse.Namespace) -> int:
    from condor_joblens.hub.web.sessions import end_sessions

    folder = folder_of_ours(options.folder)
    person = person_of(options.people, options.person, options.jobs)
    pseudonyms = of_folder(folder)
    if pseudonyms is not None:  # under which he is in old rows
        former = ((name, schedd) for name, (_, schedd) in pseudonyms.known(person.jobs, time.time()).items())
        person = replace(person, jobs=(*person.jobs, *former))
    access = access_of(options)
    artifacts = Artifacts(folder, 0)
    can_change = options.people is not None and os.access(options.people.absolute().parent, os.W_OK)
    with own_store(folder) as store:
        if not options.yes:
            rows = Forgetter(store, person.jobs).count()
            what = ", ".join(f"{count} rows of {table}" for table, count in rows.items()) or "no rows"
            count = artifacts.forget(person.jobs, is_to_be_done=False)
            print(
                f"with --yes there go: {what}; {count} artifacts, tokens, sessions, his section of the file of people"
            )
            return 0
        found = forget(
            person,
            store,
            access,
            artifacts,
            Firings(folder),
            options.people if can_change else None,
            who_types(),
            lambda logins: end_sessions(folder, logins, database_of(options)),
        )
        print(f"gone: {found}")
        left = Forgetter(store, person.jobs).count()
    if left:
        raise JobLensError("rows of him came meanwhile: once his last job has ended, say the same again with --jobs")
    if options.people is not None and not can_change:
        raise JobLensError(f"{options.people} can't be changed by this user: take his section out of it yourself")
    return 0


if __name__ == "__main__":
    sys.exit(main())
