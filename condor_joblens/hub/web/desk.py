"""What all requests share: the store, its answers, and the people."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from condor_joblens.common.errors import JobLensError
from condor_joblens.hub.artifacts import Artifacts
from condor_joblens.hub.pseudonyms import FILE, of_folder, quarter_of
from condor_joblens.hub.rules.firings import Firings
from condor_joblens.hub.rules.posted import Posted
from condor_joblens.hub.store.client import Store
from condor_joblens.hub.web.access import Access
from condor_joblens.hub.web.condor_tokens import CondorTokens
from condor_joblens.hub.web.live_snapshots import LiveSnapshots
from condor_joblens.hub.web.login_rates import LoginRates
from condor_joblens.hub.web.oidc import Provider
from condor_joblens.hub.web.people import Person, read_people
from condor_joblens.hub.web.shared import Shared
from condor_joblens.hub.web.store_shares import StoreShares
from condor_joblens.hub.web.streams import Streams


@dataclass
class Desk:
    """Of one process."""

    store: Store
    people_file: str
    proxy_uid: int = -1  # the site's proxy; nobody else is believed about who asks
    standing: Mapping[str, str] = field(default_factory=dict)  # code -> login, with no end: the demo's
    access: Access | None = None
    artifacts: Artifacts | None = None
    firings: Firings | None = None
    posted: Posted | None = None
    rules_file: str = ""
    folder: Path | None = None  # the hub's, with the key of pseudonyms
    control: str = ""  # the socket of the relay server, by which entries are said; empty: there are none
    oidc: Provider | None = None
    condor: CondorTokens | None = None
    address: str = ""  # of the pages, for browsers
    login_rates: LoginRates = field(default_factory=LoginRates)
    shared: Shared = field(default_factory=Shared)
    shares: StoreShares = field(default_factory=StoreShares)
    streams: Streams = field(default_factory=Streams)
    snapshots: LiveSnapshots = field(init=False)
    _people: dict[str, Person] = field(default_factory=dict)
    _seen: tuple[int, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.snapshots = LiveSnapshots(self.store)

    def people_by_login(self) -> dict[str, Person]:
        """As the file is now. One that is wrong changes nothing; one that is gone, nobody."""
        with self._lock:
            try:
                status = os.stat(self.people_file)
                seen: tuple[int, ...] = (status.st_ino, status.st_mtime_ns, status.st_size)
                seen += (quarter_of(time.time()).begin, self.folder is not None and (self.folder / FILE).exists())
            except OSError:
                return {}
            if seen != self._seen:
                self._seen = seen
                try:
                    with open(self.people_file, encoding="utf-8", errors="replace") as file:
                        people = self._with_former(read_people(file.read()))
                    self._people = {login: person for person in people for login in person.logins}
                except (JobLensError, OSError) as error:
                    print(f"joblens-hub: {error}: people stay as they were", file=sys.stderr, flush=True)
            return self._people

    def _with_former(self, people: list[Person]) -> list[Person]:
        """With the pseudonyms that they had until now. Raises JobLensError."""
        pseudonyms = None if self.folder is None else of_folder(self.folder)
        if pseudonyms is None:
            return people
        return [
            replace(
                person,
                former=tuple(
                    (pseudonym, person.jobs.index(job))
                    for pseudonym, job in pseudonyms.known(person.jobs, time.time()).items()
                ),
            )
            for person in people
        ]

    def person(self, name: str) -> Person | None:
        """Who is called so in the file, as it is now; None: nobody who can log in."""
        return next((one for one in self.people_by_login().values() if one.name == name), None)

    def redeem(self, code: str) -> str:
        """Whose the code was; empty: nobody's, or it is over. It is over now, if it is none of the demo's.

        Raises JobLensError.
        """
        if code in self.standing:
            return self.standing[code]
        return self.access.redeem(code) if self.access else ""


def read_logins(path: str) -> dict[str, str]:
    """A code and a login a line. Raises OSError."""
    if not path:
        return {}
    with open(path, encoding="ascii") as file:
        return dict(line.split() for line in file)


_desk: list[Desk] = []


def open_desk(desk: Desk) -> None:
    """Once, before the first request."""
    _desk[:] = [desk]


def desk() -> Desk:
    """The one of this process."""
    return _desk[0]
