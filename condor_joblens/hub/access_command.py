"""`joblens-hub token add|list|end` and `joblens-hub audit`: tokens of people, and who did what. As the hub's user."""

from __future__ import annotations

import argparse
import os
import pwd
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.postgres import Postgres
from condor_joblens.hub.syslog import Syslog
from condor_joblens.hub.web.access import JOBS, MOST_DAYS, SCOPES, Access
from condor_joblens.hub.web.people import read_people


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="joblens-hub", description="Who may ask the hub, and who did.")
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True)
    folder = of_all_commands()
    token = words.add_parser("token", help="tokens of people, for /api/v1").add_subparsers(dest="verb", required=True)
    add = token.add_parser("add", parents=[folder], help="a new one; it is printed once")
    add.add_argument("person", help="as the file of people calls him")
    add.add_argument("--people", metavar="FILE", required=True, help="that the hub reads")
    scopes = ", ".join(f"{name}: {what}" for name, what in SCOPES.items())
    add.add_argument("--scope", metavar="LIST", default=JOBS, help=f"with commas ({JOBS}); {scopes}")
    add.add_argument("--days", metavar="N", type=int, default=90, help=f"until it is over, 1 to {MOST_DAYS} (90)")
    add.add_argument("--note", metavar="TEXT", default="", help="what it is for")
    token.add_parser("list", parents=[folder], help="all, without what is secret")
    end = token.add_parser("end", parents=[folder], help="nobody is admitted by it any more")
    end.add_argument("number", type=int, help="that `token list` says")
    audit = words.add_parser("audit", parents=[folder], help="log-ins, tokens and administrators' looks")
    audit.add_argument("--days", metavar="N", type=float, default=1.0, help="how far back (%(default)s)")
    options = parser.parse_args(arguments)
    os.umask(0o077)
    try:
        access = access_of(options)
        if options.word == "audit":
            return _audit(access, options.days)
        return {"add": _add, "list": _list, "end": _end}[options.verb](access, options)
    except (JobLensError, OSError) as error:
        print(f"joblens-hub: {error}", file=sys.stderr)
        return 1


def of_all_commands() -> argparse.ArgumentParser:
    """A parser of the options that each command on a hub's folder has: a parent of theirs."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--folder", metavar="FOLDER", type=Path, default=Path("/var/lib/joblens-hub"), help="the hub's (%(default)s)"
    )
    common.add_argument(
        "--database", metavar="ADDRESS", default="", help="postgresql://ROLE@HOST/DATABASE of the hub's"
    )
    common.add_argument("--database-password", metavar="FILE", default="", help="that role's password")
    common.add_argument("--syslog", metavar="WHERE", default="", help="copy the audit there: /dev/log, or HOST:PORT")
    return common


def access_of(options: argparse.Namespace) -> Access:
    """The hub's, with its audit copied where the options say. Raises JobLensError, OSError."""
    folder, say = folder_of_ours(options.folder), Syslog(options.syslog) if options.syslog else lambda line: None
    return Access(database_of(options) or folder, say=say)


def database_of(options: argparse.Namespace) -> Postgres | None:
    """None: the hub's folder has all. Raises JobLensError, OSError."""
    return Postgres(options.database, options.database_password) if options.database else None


def folder_of_ours(folder: Path) -> Path:
    """Raises JobLensError, OSError: another user's file would keep the hub from its own."""
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise JobLensError(f"{folder} belongs to the user {_name(owner)}: run this as that user")
    return folder


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def who_types() -> str:
    """Who types: behind sudo its caller, by his own word."""
    caller = os.environ.get("SUDO_USER", "")
    return f"unix:{_name(os.getuid())}" + (f" for {caller}" if caller else "")


def _add(access: Access, options: argparse.Namespace) -> int:
    with open(options.people, encoding="utf-8", errors="replace") as file:
        names = [person.name for person in read_people(file.read())]
    if options.person not in names:
        raise JobLensError(f"{options.people} does not know {options.person}: it has {', '.join(names) or 'nobody'}")
    scopes = frozenset(options.scope.split(","))
    token, secret = access.add(options.person, scopes, options.days, who_types(), options.note)
    print(f"token {token.id} of {token.person}, until {_day(token.until)}; it is shown this once:", file=sys.stderr)
    print(secret)
    return 0


def _list(access: Access, options: argparse.Namespace) -> int:
    now = time.time()
    for token in access.tokens():
        state = f"ended {_day(token.ended)}" if token.ended is not None else f"until {_day(token.until)}"
        over = "over" if token.is_over(now) else "good"
        print(f"{token.id:4} {over}  {state}  {token.person}  {','.join(sorted(token.scopes))}  {token.note}".rstrip())
    return 0


def _end(access: Access, options: argparse.Namespace) -> int:
    token = access.end(options.number, who_types())
    print(f"token {token.id} of {token.person} is over")
    return 0


def _audit(access: Access, days: float) -> int:
    for row in access.audit(time.time() - 86400 * days):
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row.time))
        print(f"{when}\t{row.who}\t{row.what}\t{row.about}")
    return 0


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


if __name__ == "__main__":
    sys.exit(main())
