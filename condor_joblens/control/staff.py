"""Who is staff of the site, by his key: a file of root's on each node says whose keys count there, and for what.

    # name  key             verbs        of which jobs; without: of all
    carol   ed25519:AAAA    ps,log,kill  user=alice@pool,*@example.org  job=submit01.example.org#12.*

A star stands for any characters, and as the verbs for all that are done for staff (commands/authority.py).
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.common.trusted_folder import changeable_by
from condor_joblens.control.keys import key_in
from condor_joblens.control.verbs import VERBS

MOST_BYTES = 65536
"""Of the file."""

ALL = "*"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PATTERN = re.compile(r"[A-Za-z0-9._@#*+/:-]{1,256}")


@dataclass(frozen=True)
class Person:
    """One of the staff."""

    name: str
    verbs: frozenset[str]  # or ALL in it
    users: tuple[str, ...] = ()  # patterns of the job's User; none: all users
    jobs: tuple[str, ...] = ()  # patterns of the GlobalJobId; none: all jobs

    def refusal(self, verb: str, user: str, job: str) -> str:
        """Why his key is not good for this; empty: it is."""
        if not self.verbs & {verb, ALL}:
            return f"the key of {self.name} is not for {printable(verb, 20)} on this node"
        if not _fits(user, self.users):
            return f"the key of {self.name} is not for jobs of {printable(user, 100)} on this node"
        if not _fits(job, self.jobs):
            return f"the key of {self.name} is not for this job on this node"
        return ""


def read_staff(path: str) -> Mapping[bytes, Person]:
    """Whose public keys are in this file; nobody's if it is missing.

    Raises JobLensError if anybody but root, or who we are, could have written it, or if one line of it is wrong.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            status, data = os.fstat(file.fileno()), file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise JobLensError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
        raise JobLensError(f"{path} is no file of root's")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JobLensError(f"{path} may be written by others than its owner: chmod 644")
    if strangers := changeable_by(os.path.dirname(os.path.abspath(path))):
        raise JobLensError(f"{path} is not taken: {strangers}")
    if len(data) > MOST_BYTES:
        raise JobLensError(f"{path} has more than {MOST_BYTES} bytes")
    return parse_staff(data.decode("utf-8", "replace"))


def parse_staff(text: str) -> Mapping[bytes, Person]:
    """A line each. Raises JobLensError with the wrong one: then none counts."""
    found: dict[bytes, Person] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            key, person = _person(words)
        except ValueError as error:
            raise JobLensError(f"line {number} of the staff's keys: {error}") from None
        if key in found:
            raise JobLensError(f"line {number} of the staff's keys has the key of {found[key].name} once more")
        found[key] = person
    return found


def _person(words: list[str]) -> tuple[bytes, Person]:
    """Raises ValueError."""
    if len(words) < 3 or not _NAME.fullmatch(words[0]):
        raise ValueError("write NAME KEY VERBS, and user=... and job=... if not all jobs are meant")
    key, verbs = key_in(words[1]), frozenset(words[2].split(","))
    if not key:
        raise ValueError(f"{printable(words[1], 60)} is no key: write what `joblens staff` has said")
    if unknown := sorted(verbs - VERBS.keys() - {ALL}):
        raise ValueError(f"there is no verb {printable(unknown[0], 20)}")
    which: dict[str, tuple[str, ...]] = {}
    for word in words[3:]:
        name, _, value = word.partition("=")
        patterns = tuple(value.split(","))
        if name not in ("user", "job") or name in which or not all(map(_PATTERN.fullmatch, patterns)):
            raise ValueError(f"{printable(word, 60)} is not user=NAME@DOMAIN,... or job=GLOBALJOBID,...")
        which[name] = patterns
    return key, Person(words[0], verbs, which.get("user", ()), which.get("job", ()))


def _fits(value: str, patterns: tuple[str, ...]) -> bool:
    """The patterns have no character but the star that fnmatch knows."""
    return not patterns or any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
