"""Entries: for a time, a site's staff says how closely certain jobs are watched. A relay server signs them as a list.

The list is whole each time: what is not in it any more has ended. It is bytes, and whoever carries it has no say:

    joblens-entries/1 NUL, signature (64 bytes, Ed25519), body

The signature is over the first field and the body. The body is the word `entries` with named fields, as a request of
joblens/2 has them (frames.py). These are Serial, Issued, and one for each entry, named 0, 1, 2 ... An entry is
the word of its author's role with the fields of _FIELDS, in this order. No other encoding of it is taken. Nothing of
the body is looked at before the signature is found to be good.

A question how many jobs an entry would be for (a preview) is such a list of one, and begins with joblens-preview/1.
Neither can be taken for the other.

An entry says a level, a bound of it, or a period. There is no field for anything else.
"""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from condor_joblens.control import frames
from condor_joblens.control.frames import FrameError
from condor_joblens.control.keys import KEY_BYTES
from condor_joblens.model.levels import Level

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SOCKET = "/run/joblens-relay-server/control.sock"
"""Where people of the relay server's machine say them."""

MAX_SECONDS = 86400
"""The longest time for which an entry holds."""

LATEST = 1 << 42
"""When an entry can begin at the latest, in milliseconds since 1970: in 2109. Of later numbers not all are times."""

MOST_ENTRIES = 50
"""That hold at a time."""

MAX_BYTES = 61440
"""Of a list, signature included: a request of joblens/2 has room for it."""

MIN_PERIOD, MAX_PERIOD = 0.1, 3600.0
"""Seconds, as policies may say (policy_answers.PERIODS)."""

MAX_TEXT, MAX_REASON = 256, 200
"""Characters of each text of an entry, and of its reason."""

SIGNATURE_BYTES = 64

LIST, QUESTION = b"joblens-entries/1\0", b"joblens-preview/1\0"
"""How they begin: what holds, and the question about an entry that does not hold yet."""

_NUMBER = struct.Struct("<Q")
_NAME = re.compile(r"e[0-9a-f]{8}")
_ANY = -1  # of a cluster


class BadEntries(Exception):
    """Why a list, or an entry, is not taken, in words for who has said it."""


class Role(enum.Enum):
    """What the author of an entry is to the site."""

    ADMINISTRATOR = "administrator"
    OPERATOR = "operator"
    MANAGER = "manager"
    """Of an accounting group: only for its jobs, and only up."""
    OWNER = "owner"
    """A user, for jobs of his own, and only up."""


@dataclass(frozen=True)
class Entry:
    """For which jobs which levels. All selectors must fit a job; an empty one fits all. Times: milliseconds of 1970."""

    name: str  # e and eight hexadecimal digits
    role: Role
    author: str
    reason: str
    begins: int
    ends: int
    least: Level | None = None
    most: Level | None = None
    period: float = 0.0  # seconds; 0: it says none
    user: str = ""  # Owner, or User if it has an @
    group: str = ""  # AcctGroup, or one below it
    vo: str = ""  # x509UserProxyVOName
    executable: str = ""  # without its folder
    node: str = ""  # the host in the names of its slots
    cluster: int = _ANY
    expression: str = ""  # ClassAd, in the job's ad: only the policy child evaluates it

    def says(self) -> str:
        """What it says, in words: at least io."""
        if self.least is not None and self.least == self.most:
            parts = [f"exactly {self.least.word}"]
        else:
            parts = [f"at least {self.least.word}"] if self.least is not None else []
            parts += [f"at most {self.most.word}"] if self.most is not None else []
        return ", ".join([*parts, *([f"a period of {self.period:g} s"] if self.period else [])])

    def whom(self) -> str:
        """For which jobs it is, in words: user alice, node wn12."""
        named = {"user": self.user, "group": self.group, "VO": self.vo, "executable": self.executable}
        named.update({"node": self.node, "cluster": str(self.cluster) if self.cluster != _ANY else ""})
        parts = [f"{what} {which}" for what, which in named.items() if which]
        return ", ".join([*parts, *([f"jobs with {self.expression}"] if self.expression else [])]) or "all jobs"

    def contradicts(self, other: Entry) -> bool:
        """Whether no job can have what both say."""
        pairs = ((self.least, other.most), (other.least, self.most))
        return any(least is not None and most is not None and least > most for least, most in pairs)

    def may_share_jobs(self, other: Entry) -> bool:
        """Whether one job can be of both; by their expressions nothing is left out."""
        hosts = self.node.partition(".")[0], other.node.partition(".")[0]
        groups = self.group, other.group
        return (
            all(_may_be_one(*pair) for pair in ((self.vo, other.vo), (self.executable, other.executable), hosts))
            and (self.cluster == other.cluster or _ANY in (self.cluster, other.cluster))
            and all(map(_may_be_one, self.user.partition("@"), other.user.partition("@")))
            and (not all(groups) or is_of_group(*groups) or is_of_group(*reversed(groups)))
        )


def is_of_group(group: str, above: str) -> bool:
    """Whether an accounting group is `above`, or one below it. HTCondor compares their names without case."""
    return f"{group}.".lower().startswith(f"{above}.".lower())


def _may_be_one(one: str, other: str) -> bool:
    return one == other or not one or not other


@dataclass(frozen=True)
class EntryList:
    """What holds from now on, and nothing else does. Of two lists of one server the one with the higher serial."""

    serial: int
    issued: int  # milliseconds since 1970, by the server's clock
    entries: tuple[Entry, ...]


def check(entry: Entry) -> None:
    """Returns if its author may say this. Raises BadEntries with what is wrong."""
    for name in _TEXTS:
        text, most = getattr(entry, name), MAX_REASON if name == "reason" else MAX_TEXT
        if len(text) > most or not (text.isprintable() and text.isascii()):
            raise BadEntries(f"{name}: write at most {most} printable ASCII characters")
    if not entry.author or not entry.reason:
        raise BadEntries("an entry has an author and a reason")
    if not _NAME.fullmatch(entry.name):
        raise BadEntries("an entry's name is e and eight hexadecimal digits")
    if not 0 < entry.ends - entry.begins <= MAX_SECONDS * 1000:
        raise BadEntries(f"an entry holds for {MAX_SECONDS // 3600} h at most, and ends after it begins")
    if not 0 <= entry.begins <= LATEST:
        raise BadEntries("an entry begins between 1970 and 2109")
    if entry.least is None and entry.most is None and not entry.period:
        raise BadEntries("an entry says a level, at least or at most, or a period")
    if entry.least is not None and entry.most is not None and entry.least > entry.most:
        raise BadEntries(f"at least {entry.least.word} and at most {entry.most.word} contradict each other")
    if not (entry.period == 0 or MIN_PERIOD <= entry.period <= MAX_PERIOD):
        raise BadEntries(f"a period is from {MIN_PERIOD:g} to {MAX_PERIOD:g} s")
    if not _ANY <= entry.cluster < 1 << 31:
        raise BadEntries(f"a cluster is from 0 to {(1 << 31) - 1}")
    if entry.role in (Role.MANAGER, Role.OWNER) and (entry.most is not None or entry.period):
        whose = "group's manager" if entry.role is Role.MANAGER else "job's owner"
        raise BadEntries(f"an entry of a {whose} watches closer, and no less: it says --at-least, and no period")
    if entry.role is Role.MANAGER and not entry.group:
        raise BadEntries("an entry of a group's manager is for that group")
    if entry.role is Role.OWNER and (entry.user != entry.author or "@" not in entry.user):
        raise BadEntries("an entry of a job's owner is for his own jobs")


def sign(entries: EntryList, key: Ed25519PrivateKey, start: bytes = LIST) -> bytes:
    """The list as it is sent, or as a QUESTION. Raises BadEntries if nobody would take it."""
    _check_list(entries)
    body = _encoded(entries)
    if len(start) + SIGNATURE_BYTES + len(body) > MAX_BYTES:
        raise BadEntries("these are too many entries: end one")
    return start + key.sign(start + body) + body


def verify(packet: bytes, public_key: bytes, start: bytes = LIST) -> EntryList:
    """The list in `packet`, if the server with this key has signed it. Raises BadEntries."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    at = len(start) + SIGNATURE_BYTES
    if len(packet) > MAX_BYTES or len(packet) <= at or not packet.startswith(start):
        raise BadEntries("this is no list of entries of a version that is known here")
    if len(public_key) != KEY_BYTES:
        raise BadEntries("this node knows no key of a relay server: JOBLENS_HUB_KEY is not set")
    signature, body = packet[len(start) : at], packet[at:]
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, start + body)
    except (InvalidSignature, ValueError):
        raise BadEntries("the server of JOBLENS_HUB_KEY has not signed this") from None
    entries = _decoded(body)
    _check_list(entries)
    return entries


def _check_list(entries: EntryList) -> None:
    if len(entries.entries) > MOST_ENTRIES:
        raise BadEntries(f"at most {MOST_ENTRIES} entries hold at a time: end one")
    if len({entry.name for entry in entries.entries}) < len(entries.entries):
        raise BadEntries("two entries have one name")
    for entry in entries.entries:
        check(entry)


def _encoded(entries: EntryList) -> bytes:
    inner = {str(number): _encoded_entry(entry) for number, entry in enumerate(entries.entries)}
    head = {"Serial": _NUMBER.pack(entries.serial), "Issued": _NUMBER.pack(entries.issued)}
    return frames.encode_words("entries", {**head, **inner})


_FIELDS = tuple(field.name for field in fields(Entry) if field.name != "role")
_TEXTS = tuple(field.name for field in fields(Entry) if field.type == "str")


def _encoded_entry(entry: Entry) -> bytes:
    values = {name: _text_of(getattr(entry, name)).encode() for name in _FIELDS}
    return frames.encode_words(entry.role.value, values)


def _text_of(value: object) -> str:
    if value is None:
        return ""
    return value.word if isinstance(value, Level) else str(value)


def _decoded(body: bytes) -> EntryList:
    try:
        words = frames.decode_words(body)
        serial, issued = (_NUMBER.unpack(words.fields.pop(name))[0] for name in ("Serial", "Issued"))
        entries = EntryList(serial, issued, tuple(_decoded_entry(each) for each in words.fields.values()))
        is_canonical = _encoded(entries) == body
    except (FrameError, KeyError, ValueError, struct.error) as error:
        raise BadEntries(f"its body makes no sense ({type(error).__name__})") from None
    if not is_canonical:
        raise BadEntries("its body is not encoded as a list of entries is")
    return entries


def _decoded_entry(body: bytes) -> Entry:
    """Raises FrameError, KeyError, ValueError."""
    words = frames.decode_words(body)
    given = {name: value.decode() for name, value in words.fields.items()}
    least, most = (Level[given[name].upper()] if given[name] else None for name in ("least", "most"))
    texts: dict[str, Any] = {name: given[name] for name in _TEXTS}
    numbers: dict[str, Any] = {name: int(given[name]) for name in ("begins", "ends", "cluster")}
    return Entry(role=Role(words.word), least=least, most=most, period=float(given["period"]), **texts, **numbers)
