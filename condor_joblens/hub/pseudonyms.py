"""Pseudonyms that old rows have instead of people's names: one a person and quarter of a year, made by a key.

Whoever has the key can tell which pseudonyms are a certain person's, and nobody else can. So each person still finds
his own rows, and `joblens-hub forget` those of him.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.store.schema import JOB_DAYS

FILE = "pseudonyms.key"
"""In the hub's folder."""

SHAPE = "^person-[0-9a-f]{16}$"
"""A regular expression, in Python and for the store."""

_BYTES = 32
_QUARTER = 92 * 86400.0


@dataclass(frozen=True)
class Quarter:
    """Of a year, in UTC; begin and end are epoch seconds."""

    begin: int
    end: int


def quarter_of(moment: float) -> Quarter:
    """The one in which this is (epoch seconds)."""
    then = datetime.datetime.fromtimestamp(moment, datetime.timezone.utc)
    month = 3 * ((then.month - 1) // 3) + 1
    begin = datetime.datetime(then.year, month, 1, tzinfo=datetime.timezone.utc)
    later = begin + datetime.timedelta(days=100)
    end = datetime.datetime(later.year, later.month, 1, tzinfo=datetime.timezone.utc)
    return Quarter(int(begin.timestamp()), int(end.timestamp()))


def quarters(since: float, until: float) -> list[Quarter]:
    """All that have something of this time, the oldest first."""
    found = []
    moment = since
    while moment < until:
        found.append(quarter_of(moment))
        moment = found[-1].end
    return found


class Pseudonyms:
    """By one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, owner: str, schedd: str, quarter: Quarter) -> str:
        """What stands for OWNER@SCHEDD in rows of this quarter."""
        text = f"{self._salt(quarter)}{owner}@{schedd}"
        return f"person-{hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"

    def expression(self, owner: str, schedd: str, quarter: Quarter) -> str:
        """The same for the store, of two expressions of its own. It has the salt of this quarter, and no key."""
        text = f"concat('{self._salt(quarter)}', {owner}, '@', {schedd})"
        return f"concat('person-', substring(lower(hex(SHA256({text}))), 1, 16))"

    def known(self, jobs: Iterable[tuple[str, str]], now: float) -> dict[str, tuple[str, str]]:
        """Those of these owners at these schedds, in all rows that can be there -> owner and schedd."""
        times = quarters(now - 86400 * JOB_DAYS - _QUARTER, now)
        return {self.of(*job, quarter): job for job in jobs for quarter in times}

    def _salt(self, quarter: Quarter) -> str:
        return hmac.new(self._key, str(quarter.begin).encode(), hashlib.sha256).hexdigest()


def made_in(folder: Path) -> Pseudonyms:
    """By the key in the hub's folder, which is made if there is none. Raises JobLensError, OSError."""
    new = folder / f".{FILE}-{secrets.token_hex(8)}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # the older one stays
            os.link(new, folder / FILE)
    finally:
        new.unlink()
    found = of_folder(folder)
    if found is None:
        raise JobLensError(f"{folder / FILE} is gone")
    return found


def of_folder(folder: Path) -> Pseudonyms | None:
    """By the key in the hub's folder; None: there is none, and no pseudonym either. Raises JobLensError."""
    try:
        key = (folder / FILE).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JobLensError(f"{folder / FILE} can't be read: {error.strerror}") from None
    if len(key) != _BYTES:
        raise JobLensError(f"{folder / FILE} is no key of pseudonyms: take it from a backup")
    return Pseudonyms(key)
