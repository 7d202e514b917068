"""The file of rules, in TOML. docs/hub.md describes it; whatever it does not know is an error."""

from __future__ import annotations

import datetime
import importlib
import re
import urllib.parse
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_joblens.common.errors import JobLensError, printable
from condor_joblens.hub.web.people import is_address
from condor_joblens.model.levels import Level

WAVE, NODE, SILENT, LOST, TRIGGER, OUTSIDE = "wave", "node", "silent", "lost", "trigger", "outside"
WHENS = {
    WAVE: "failures of one cause that are twice the usual",
    NODE: "a node that fails what does well elsewhere",
    SILENT: "a node without data for five minutes",
    LOST: "records that nodes declare as lost, in an hour",
    TRIGGER: "events that a trigger of a node asks to be mailed",
    OUTSIDE: "alarms that programs post",
}
"""What a rule can be about."""

LEVELS = tuple(level.word for level in Level)
VERDICTS = ("site", "task", "unclear")
ADMINISTRATORS, OWNERS = "administrators", "owners"
ENCRYPTIONS = ("tls", "starttls", "none")
MOST_RULES = 100
MOST_ENTRIES = 20
"""Of one rule, in an hour."""

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_QUIET = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True)
class RuleEntry:
    """The entry of the controller that a rule makes."""

    by: str  # a person of the hub, as whom it is said
    least: str = ""  # levels
    most: str = ""
    hours: float = 1.0
    an_hour: int = 1  # entries of the rule, at most


@dataclass(frozen=True)
class Rule:
    """One of them."""

    name: str
    when: str
    verdict: str = ""  # of waves; empty: any
    source: str = ""  # the file of a trigger, or the person who posts; empty: any
    least: int = 1  # failures, records, jobs, or what was posted
    red: bool = False
    mail: tuple[str, ...] = ()
    webhook: str = ""
    entry: RuleEntry | None = None


@dataclass(frozen=True)
class Mail:
    """How mail leaves."""

    host: str
    port: int
    sender: str
    encryption: str
    administrators: tuple[str, ...] = ()
    user: str = ""
    password_file: str = ""


@dataclass(frozen=True)
class Settings:
    """All of the file."""

    rules: tuple[Rule, ...]
    mail: Mail | None = None
    hosts: frozenset[str] = frozenset()  # HOST:PORT, to which a webhook may go
    secret_file: str = ""
    digest_seconds: float = 1800.0  # between two mails to one address
    quiet: tuple[int, int] | None = None  # minutes of the day in UTC, from and until
    pages: str = ""  # the hub's address in browsers

    def is_quiet(self, moment: float) -> bool:
        """Whether mail waits at this time (epoch seconds)."""
        if self.quiet is None:
            return False
        at = datetime.datetime.fromtimestamp(moment, datetime.timezone.utc)
        begin, end = self.quiet
        minute = 60 * at.hour + at.minute
        return begin <= minute < end if begin <= end else minute >= begin or minute < end


def read_file(path: Path) -> Settings:
    """Raises JobLensError, OSError."""
    return read(path.read_text(encoding="utf-8", errors="replace"))


def read(text: str) -> Settings:
    """Raises JobLensError with what is wrong."""
    try:
        toml: Any = importlib.import_module("tomllib")
    except ImportError:
        raise JobLensError("rules need Python 3.11 or newer for the hub") from None
    try:
        found = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise JobLensError(f"the file of rules can't be read: {printable(str(error), 200)}") from None
    _known("the file", found, ("rule", "mail", "webhook", "digest_minutes", "quiet", "pages"))
    mail = _mail(found["mail"]) if "mail" in found else None
    hosts, secret = _webhook(found.get("webhook", {}))
    rules = found.get("rule", [])
    if not isinstance(rules, list) or not 1 <= len(rules) <= MOST_RULES:
        raise JobLensError(f"write 1 to {MOST_RULES} rules, each as [[rule]]")
    made = tuple(_rule(each, mail, hosts) for each in rules)
    if len({rule.name for rule in made}) < len(made):
        raise JobLensError("two rules have one name")
    minutes = _typed("digest_minutes", found.get("digest_minutes", 30), int)
    if not 1 <= minutes <= 1440:
        raise JobLensError("digest_minutes is 1 to 1440")
    pages = _typed("pages", found.get("pages", ""), str).rstrip("/")
    if pages and not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]-]{1,250}", pages):
        raise JobLensError("pages is the hub's address in browsers: https://joblens.example.org")
    return Settings(made, mail, hosts, secret, 60.0 * minutes, _quiet(found.get("quiet", "")), pages)


def _known(what: str, found: Any, names: Collection[str]) -> None:
    if not isinstance(found, Mapping):
        raise JobLensError(f"{what} has lines NAME = VALUE")
    strange = sorted(set(found) - set(names))
    if strange:
        raise JobLensError(f"{what}: there is no {printable(strange[0])}: write some of {', '.join(names)}")


def _typed(name: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        words = {int: "a whole number", str: "a text", bool: "true or false", list: "a list"}
        raise JobLensError(f"{name} is {words[kind]}")
    return value


def _rule(found: Any, mail: Mail | None, hosts: frozenset[str]) -> Rule:
    _known("a rule", found, ("name", "when", "verdict", "source", "least", "red", "mail", "webhook", "entry"))
    name = _typed("name", found.get("name", ""), str)
    if not name or len(name) > 60 or not (name.isascii() and name.isprintable()):
        raise JobLensError("each rule has a name of up to 60 printable letters")
    about = f"the rule {name}"
    when, verdict = found.get("when"), found.get("verdict", "")
    if not isinstance(when, str) or when not in WHENS:
        raise JobLensError(f"{about}: when is one of {', '.join(WHENS)}")
    if verdict and (verdict not in VERDICTS or when != WAVE):
        raise JobLensError(f"{about}: verdict is one of {', '.join(VERDICTS)}, and for waves alone")
    source = _typed(f"{about}: source", found.get("source", ""), str)
    if source and when not in (TRIGGER, OUTSIDE):
        raise JobLensError(f"{about}: source is a trigger's file or a person who posts: for {TRIGGER} and {OUTSIDE}")
    least = _typed(f"{about}: least", found.get("least", 1), int)
    if least < 1:
        raise JobLensError(f"{about}: least is 1 or more")
    told = tuple(_typed(f"{about}: mail", found.get("mail", []), list))
    if any(one not in (ADMINISTRATORS, OWNERS) for one in told):
        raise JobLensError(f"{about}: mail goes to {ADMINISTRATORS} or {OWNERS}")
    if told and mail is None:
        raise JobLensError(f"{about}: say by [mail] how mail leaves")
    if mail is not None and ADMINISTRATORS in told and not mail.administrators:
        raise JobLensError(f"{about}: [mail] names no administrators")
    if OWNERS in told and when not in (WAVE, TRIGGER):
        raise JobLensError(f"{about}: owners are told of waves and triggers alone")
    webhook = _typed(f"{about}: webhook", found.get("webhook", ""), str)
    if webhook:
        _check_webhook(about, webhook, hosts)
    red = _typed(f"{about}: red", found.get("red", False), bool)
    entry = _entry(about, when, found["entry"]) if "entry" in found else None
    return Rule(name, when, verdict, source, least, red, told, webhook, entry)


def _entry(about: str, when: str, found: Any) -> RuleEntry:
    """Raises JobLensError."""
    _known(f"{about}: entry", found, ("by", "least", "most", "hours", "an_hour"))
    if when not in (WAVE, TRIGGER, NODE):
        raise JobLensError(f"{about}: entries are for owners of waves and triggers, and for nodes that fail")
    by = _typed(f"{about}: by", found.get("by", ""), str)
    least, most = (_typed(f"{about}: {name}", found.get(name, ""), str) for name in ("least", "most"))
    if not by or not (least or most) or any(level and level not in LEVELS for level in (least, most)):
        raise JobLensError(f"{about}: an entry has `by`, and `least` or `most`: {', '.join(LEVELS)}")
    hours, an_hour = found.get("hours", 1), _typed(f"{about}: an_hour", found.get("an_hour", 1), int)
    if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not 0.01 <= hours <= 24:
        raise JobLensError(f"{about}: an entry lasts for 0.01 to 24 hours")
    if not 1 <= an_hour <= MOST_ENTRIES:
        raise JobLensError(f"{about}: an_hour is 1 to {MOST_ENTRIES}")
    return RuleEntry(by, least, most, float(hours), an_hour)


def _check_webhook(about: str, url: str, hosts: frozenset[str]) -> None:
    """Raises JobLensError."""
    if not re.fullmatch(r"[!-~]{1,500}", url):
        raise JobLensError(f"{about}: a webhook is an address in printable letters")
    if host_of(url) not in hosts:
        raise JobLensError(f"{about}: {printable(url)} is on no host of [webhook] hosts")


def host_of(url: str) -> str:
    """HOST:PORT of an address that may be posted to; empty: this may not. By https, or on this machine."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.username or parts.password or parts.fragment:
        return ""
    if parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK):
        return ""
    return f"{host}:{port or (443 if parts.scheme == 'https' else 80)}"


def _mail(found: Any) -> Mail:
    _known("[mail]", found, ("server", "from", "encryption", "administrators", "user", "password_file"))
    host, _, port = _typed("server", found.get("server", ""), str).rpartition(":")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise JobLensError("[mail] server is HOST:PORT")
    encryption = found.get("encryption", "starttls")
    if encryption not in ENCRYPTIONS:
        raise JobLensError(f"[mail] encryption is one of {', '.join(ENCRYPTIONS)}")
    user = _typed("user", found.get("user", ""), str)
    if encryption == "none" and (user or host.strip("[]") not in _LOOPBACK):
        raise JobLensError("[mail] without encryption goes to this same machine alone, and with no password")
    addresses = _typed("administrators", found.get("administrators", []), list)
    sender = _typed("from", found.get("from", ""), str)
    for address in (sender, *addresses):
        if not isinstance(address, str) or not is_address(address):
            raise JobLensError(f"[mail] {printable(str(address))} is no address of mail")
    password = _typed("password_file", found.get("password_file", ""), str)
    return Mail(host.strip("[]"), int(port), sender, encryption, tuple(addresses), user, password)


def _webhook(found: Any) -> tuple[frozenset[str], str]:
    _known("[webhook]", found, ("hosts", "secret_file"))
    hosts, secret = _typed("hosts", found.get("hosts", []), list), found.get("secret_file", "")
    for host in hosts:
        if not isinstance(host, str) or not re.fullmatch(r"[A-Za-z0-9.-]{1,253}:[0-9]{1,5}", host):
            raise JobLensError(f"[webhook] {printable(str(host))} is no HOST:PORT")
    if hosts and not _typed("secret_file", secret, str):
        raise JobLensError("[webhook] posts are signed: name a secret_file")
    return frozenset(host.lower() for host in hosts), secret


def _quiet(text: Any) -> tuple[int, int] | None:
    if text == "":
        return None
    found = _QUIET.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise JobLensError('quiet is a time of the day in UTC: "22:00-07:00"')
    hour, minute, until_hour, until_minute = map(int, found.groups())
    return 60 * hour + minute, 60 * until_hour + until_minute
