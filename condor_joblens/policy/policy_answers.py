"""What joblensd believes of the child: right types, within bounds, and never above the site's cap."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level, parse_level
from condor_joblens.policy.child_frames import BadFrame, Message
from condor_joblens.policy.job_identity import Identity, identity, literals
from condor_joblens.policy.level_request import SHOWN, LevelRequest, note

MAX_NAME = 60  # characters of a policy's name
MAX_NOTE = 200
MAX_REASON = 120
MAX_WHY = 160
MAX_ERROR = 300
MAX_FILE = 60  # characters of a policy file's name
MAX_SINKS = 16
MAX_STATE = 4096  # bytes of JSON that the policies may remember of one run
MAX_STATE_DEPTH = 16  # lists and objects in one another: what is deeper could be read and then not sent again
PERIODS = 0.1, 3600.0  # seconds
PRIORITIES = -1000.0, 1000.0
MAX_EXPRESSIONS = 50
MAX_TRACE = 1000  # characters of SPECs
MAX_QUOTA = 16384.0  # jobs
MAX_WHOSE = 400  # characters of an owner or a group, escaped

Expressions = Sequence[tuple[str, str]]
"""Names of entries, and the ClassAd expressions by which they are for a job."""

State = Mapping[str, Any]
"""What policies remember of a run: made by the child, kept for it, never looked into."""


@dataclass(frozen=True)
class ActivationRequest:
    """What joblensd asks about a job when it starts."""

    ad: bytes  # .job.ad, in the old ClassAd format
    slot: Mapping[str, str | int | float]  # facts of the slot: {"Name": "slot1_1@node"}
    default: Level
    cap: Level  # no policy and no job gets above it
    node: Mapping[str, str | int | float] = field(default_factory=dict)
    """Facts of the node: {"Name": "wn12", "Cpus": 64}."""
    usage: Mapping[str, float] | None = None
    """The run's numbers by path (Cpu.RecentCores), while it runs; None at its start."""
    now: float | None = None  # epoch seconds; None: the child's clock
    started: float | None = None  # epoch seconds of the run's start: temporary entries begin there; None: now
    state: State = field(default_factory=dict)  # of the run's last Decision; empty at its start
    keep: bool = False  # whether a round will ask about it again, without the ad
    expressions: Expressions = ()  # of entries, asked besides the policies
    owner: str = ""  # whose share of the child's time it takes: the kernel's word, not the ad's
    is_user_known: bool = False  # `owner` is the job's user; else his slot, and all those jobs can be one person's

    @property
    def person(self) -> str:
        """Who may have made a policy fail. Nobody seems to be two by what his ads say, or by having two slots."""
        return self.owner if self.is_user_known else ""


@dataclass(frozen=True)
class RuleFailure:
    """What a policy did wrong, at load or on one job."""

    file: str
    line: int
    rule: str  # its name; empty: the file itself
    what: str

    def __str__(self) -> str:
        rule = f'rule "{self.rule}": ' if self.rule else ""
        return f"{self.file}:{self.line}: {rule}{self.what}"


@dataclass(frozen=True)
class Quota:
    """How many jobs of a node may be watched closer than basic together."""

    rule: str  # that says so
    whose: str  # the owner or the group for which it is; empty: all jobs that match, or those without one
    per: str  # "owner", "group", or empty
    jobs: float | None  # at most so many
    share: float | None  # at most this share of the node's jobs, and one

    @property
    def key(self) -> int:
        """Equal for the jobs that share it; never 0."""
        text = f"{self.rule}\0{self.per}\0{self.whose}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") or 1


@dataclass(frozen=True)
class Decision:
    """What the policies decided for one job."""

    level: Level
    requested: Level | None  # None: the job asked for nothing, or for nothing that is a level
    written: str  # what the job asked for, as it stands in its ad; empty: nothing
    policy: str  # the rule that had the last word; empty: none had an opinion
    reason: str  # its own words
    note: str  # for the job's ad: what the owner must know; empty where all is well
    identity: Identity = field(default_factory=dict)  # empty in a round's answer
    errors: tuple[RuleFailure, ...] = ()  # rules that failed on this job
    cap: Level = Level.TRACE  # the closest that this job may be watched: the policies' cap, or the site's
    period: float | None = None  # seconds; None: no rule said
    priority: float = 0.0  # over the node's budgets, what has least steps down first
    sinks: tuple[str, ...] | None = None  # names; None: all
    report: bool | None = None  # whether reports may come back with its output; None: no rule said
    traced: str = ""  # SPECs of functions to trace, as +JobLensTrace has them; empty: no rule said
    quota: Quota | None = None
    until: float | None = None  # epoch seconds at which a temporary entry ends: ask again then
    state: State = field(default_factory=dict)
    entries: tuple[str, ...] = ()  # names of those whose expression is true of the job


@dataclass(frozen=True)
class PolicyFailure:
    """No decision came: the job stays at the default level."""

    level: Level
    note: str  # for the job's ad and for the log: why
    identity: Identity = field(default_factory=dict)  # what the plain literals of its ad told, if that much


PolicyAnswer = Union[Decision, PolicyFailure]


def capped(level: Level, request: ActivationRequest) -> Level:
    """`level`, or the site's cap where that is lower."""
    return min(level, request.cap)


def decided(message: Message, request: ActivationRequest) -> Decision:
    """The Decision that a `decided` message makes, or an answer of a round. Raises BadFrame where it is none."""
    wanted = LevelRequest(_level_or_none(message.get("requested")), _text(message, "written", SHOWN))
    level = _level_or_none(message.get("level"))
    if level is None:
        raise BadFrame("a decision without a level")
    final = capped(level, request)
    policy = _text(message, "policy", MAX_NAME)
    return Decision(
        level=final,
        requested=wanted.level,
        written=wanted.written,
        policy=policy,
        reason=_text(message, "reason", MAX_REASON),
        note=note(wanted, final, request.cap, policy)[:MAX_NOTE],
        identity=names(message),
        errors=tuple(failures(message)),
        cap=capped(_level_or_none(message.get("cap", request.cap)) or Level.OFF, request),
        period=_number_or_none(message, "period", *PERIODS),
        priority=_number_or_none(message, "priority", *PRIORITIES) or 0.0,
        sinks=_sinks(message.get("sinks")),
        report=_truth_or_none(message, "report"),
        traced="" if message.get("traced") is None else _text(message, "traced", MAX_TRACE),
        quota=_quota(message.get("quota")),
        until=_number_or_none(message, "until", 0.0, 1e12),
        state=_state(message.get("state", {})),
        entries=_entries(message.get("entries", [])),
    )


def failed(message: Message, request: ActivationRequest) -> PolicyFailure:
    """The PolicyFailure that a `failed` message makes. Raises BadFrame where it is none."""
    return failure(_text(message, "reason", MAX_WHY), request)


def failure(why: str, request: ActivationRequest) -> PolicyFailure:
    """The answer for a job on which nothing could be decided."""
    level = capped(request.default, request)
    told = f"{_one_line(why, MAX_WHY)}: watched at the default, {level.word}"
    return PolicyFailure(level, told, literals(request.ad))


def names(message: Message) -> Identity:
    """The `identity` of a message: known names, right types. Raises BadFrame where it is no object."""
    found = message.get("identity", {})
    if not isinstance(found, dict):
        raise BadFrame("an identity that is no object")
    return identity(found)


def doing(message: Message) -> str:
    """What the child is about to do. Raises BadFrame."""
    return _text(message, "what", MAX_REASON)


def unfit(message: Message) -> str:
    """Why the child can't work. Raises BadFrame."""
    return f"can't work: {_text(message, 'reason', MAX_ERROR)}"


def failures(message: Message) -> list[RuleFailure]:
    """The `errors` of a message. Raises BadFrame."""
    errors = message.get("errors")
    if not isinstance(errors, list) or not all(isinstance(error, dict) for error in errors):
        raise BadFrame("errors that are no failures")
    return [_failure(error) for error in errors]


def _failure(error: Message) -> RuleFailure:
    line = error.get("line")
    if not isinstance(line, int) or isinstance(line, bool):
        raise BadFrame("a line that is no number")
    return RuleFailure(
        _text(error, "file", MAX_FILE), line, _text(error, "rule", MAX_NAME), _text(error, "what", MAX_ERROR)
    )


def _number_or_none(message: Message, key: str, lowest: float, highest: float) -> float | None:
    value = message.get(key)
    if value is None:
        return None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not lowest <= value <= highest:
        raise BadFrame(f"{key} is no number from {lowest:g} to {highest:g}")
    return float(value)


def _truth_or_none(message: Message, key: str) -> bool | None:
    value = message.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadFrame(f"{key} is neither true nor false")
    return value


def _sinks(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MAX_SINKS or not all(isinstance(name, str) for name in value):
        raise BadFrame("sinks that are no names")
    return tuple(_one_line(name, MAX_NAME) for name in value)


def _entries(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_EXPRESSIONS or not all(isinstance(name, str) for name in value):
        raise BadFrame("entries that are no names")
    return tuple(_one_line(name, MAX_NAME) for name in value)


def _quota(value: object) -> Quota | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadFrame("a quota that is no object")
    return Quota(
        rule=_text(value, "rule", MAX_NAME), whose=_text(value, "whose", MAX_WHOSE), per=_text(value, "per", MAX_NAME),
        jobs=_number_or_none(value, "jobs", 0, MAX_QUOTA), share=_number_or_none(value, "share", 0, 1),
    )  # fmt: skip


def _state(value: object) -> State:
    if not isinstance(value, dict) or not _is_shallow(value, MAX_STATE_DEPTH) or len(json.dumps(value)) > MAX_STATE:
        raise BadFrame(f"a state that is no object of at most {MAX_STATE} bytes")
    return value


def _is_shallow(value: object, depth: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(part, depth - 1) for part in inner)


def _level_or_none(value: object) -> Level | None:
    if value is None:
        return None
    try:
        return parse_level(value)
    except ValueError as error:
        raise BadFrame(f"{printable(str(value), 40)} {error}") from None


def _text(message: Message, key: str, limit: int) -> str:
    value = message.get(key)
    if not isinstance(value, str):
        raise BadFrame(f"{key} is no string")
    return _one_line(value, limit)


def _one_line(text: str, limit: int) -> str:
    """The child escapes what it repeats; what it did not escape is not taken over."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text[: limit + 1])
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."
