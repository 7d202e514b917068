"""One look at the site after the other: firings are kept, and who is to be told is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.rules.alarms import WATCHER, alarms, fires
from condor_joblens.hub.rules.entering import Entering
from condor_joblens.hub.rules.firings import TOLD_SECONDS, Firing, Firings
from condor_joblens.hub.rules.mail import message, send
from condor_joblens.hub.rules.posted import LASTS_SECONDS as POSTED_SECONDS
from condor_joblens.hub.rules.posted import Posted
from condor_joblens.hub.rules.settings import ADMINISTRATORS, OWNERS, read_file
from condor_joblens.hub.rules.webhook import post
from condor_joblens.hub.store.client import Store
from condor_joblens.hub.web.people import Person, read_people
from condor_joblens.hub.web.reads import Reader

PERIOD = 60.0
"""Seconds between two looks."""

MAIL, WEBHOOK = "mail", "webhook"


class Watch:
    """For one process."""

    def __init__(
        self, file: Path, people: Path | None, store: Store, firings: Firings, posted: Posted,
        say: Callable[[str], None], clock: Callable[[], float] = time.time, entering: Entering | None = None,
    ) -> None:  # fmt: skip
        """Raises JobLensError, OSError: the file is wrong."""
        self._file, self._people, self._store = file, people, store
        self._firings, self._posted, self._entering = firings, posted, entering
        self._say, self._clock = say, clock
        self._settings = read_file(file)
        self._said = set[str]()

    def run(self) -> None:
        """For ever."""
        while True:
            self.step()
            time.sleep(PERIOD)

    def step(self) -> None:
        """One look. What fails is said, once, and tried again at the next."""
        said: set[str] = set()
        has_looked = False
        for what in (self._read, self._look, self._tell):
            try:
                said |= set(what() or ())
                has_looked |= what == self._look
            except (JobLensError, OSError) as error:
                said.add(str(error))
        lines = sorted(printable(line, 300) for line in said)
        for line in lines:
            if line not in self._said:
                self._say(f"rules: {line}")
        self._said = set(lines)
        if has_looked:
            self._firings.looked(self._clock(), lines)

    def _read(self) -> None:
        """A file that is wrong now changes nothing."""
        try:
            self._settings = read_file(self._file)
        except JobLensError as error:
            raise JobLensError(f"{error}: the rules stay as they were") from None

    def _look(self) -> None:
        rules, now = self._settings.rules, self._clock()
        last, _ = self._firings.last_look()
        # what was posted while nobody looked is not lost
        found = self._posted.alarms(min(last or now, now - POSTED_SECONDS))
        found += alarms(Reader(self._store, WATCHER), {rule.when for rule in rules})
        for rule in rules:
            self._firings.see(rule.name, rule.red, [one for one in found if fires(rule, one)], now)

    def _tell(self) -> list[str]:
        """What went wrong."""
        return [*self._post(), *self._mail(), *self._enter()]

    def _post(self) -> list[str]:
        wrong = []
        for rule in self._settings.rules:
            firings = self._firings.untold(WEBHOOK, rule.name, rule.webhook, self._clock()) if rule.webhook else []
            if firings:
                try:
                    post(self._settings, rule.webhook, firings, self._clock())
                    self._firings.tell(WEBHOOK, rule.webhook, firings, self._clock())
                except JobLensError as error:
                    wrong.append(str(error))
        return wrong

    def _enter(self) -> list[str]:
        """Entries of the controller."""
        wrong = []
        for rule in self._settings.rules:
            if rule.entry is not None and self._entering is not None:
                try:
                    self._entering.enter(rule, self._firings, self._known_people(), self._clock())
                except (JobLensError, OSError) as error:
                    wrong.append(str(error))
        return wrong

    def _mail(self) -> list[str]:
        """One message an address, of all rules, at most once in the time of a digest; none in quiet hours."""
        mail, now, wrong = self._settings.mail, self._clock(), []
        if mail is None or self._settings.is_quiet(now):
            return []
        for address, firings in self.to_mail(now).items():
            if now - self._firings.last_told(MAIL, address) < self._settings.digest_seconds:
                continue
            try:
                send(mail, message(mail, address, firings, self._settings.pages, now))
                self._firings.tell(MAIL, address, firings, now)
            except JobLensError as error:
                wrong.append(str(error))
        return wrong

    def to_mail(self, now: float) -> dict[str, list[Firing]]:
        """What each address has to be told: administrators of all, owners of what is theirs, in words for them."""
        found: dict[str, dict[tuple[str, str], Firing]] = {}
        recent = self._firings.since(now - TOLD_SECONDS)
        mail = self._settings.mail
        whose = {(firing.owner, firing.schedd) for firing in recent if firing.owner}
        people = [one for one in self._known_people() if one.mail and whose.intersection(one.jobs)] if whose else []
        for rule in self._settings.rules if mail is not None and recent else ():
            for address in mail.administrators if mail is not None and ADMINISTRATORS in rule.mail else ():
                for firing in self._firings.untold(MAIL, rule.name, address, now):
                    found.setdefault(address, {}).setdefault((firing.kind, firing.cause), firing)
            for person in people if OWNERS in rule.mail else ():
                for firing in self._firings.untold(MAIL, rule.name, person.mail, now):
                    if (firing.owner, firing.schedd) in person.jobs:
                        his = replace(firing, sentence=firing.own)
                        found.setdefault(person.mail, {}).setdefault((firing.kind, firing.cause), his)
        return {address: list(firings.values()) for address, firings in found.items()}

    def _known_people(self) -> list[Person]:
        """Raises JobLensError, OSError."""
        if self._people is None:
            return []
        return read_people(self._people.read_text(encoding="utf-8", errors="replace"))
