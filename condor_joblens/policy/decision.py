"""What joblensd believes of the child: right types, within bounds, and never above the site's cap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from condor_joblens.errors import printable
from condor_joblens.levels import SHOWN, Level, Request, note, parse_level
from condor_joblens.policy.frames import BadFrame, Message
from condor_joblens.policy.identity import Identity, identity

MAX_NAME = 60  # characters of a policy's name
MAX_NOTE = 200
MAX_REASON = 120
MAX_WHY = 160
MAX_ERROR = 300


@dataclass(frozen=True)
class ActivationRequest:
    """What is asked when a job starts."""

    ad: bytes  # .job.ad, in the old ClassAd format
    slot: Mapping[str, str | int | float]  # facts of the slot: {"Name": "slot1_1@node"}
    default: Level
    cap: Level  # no policy and no job gets above it


@dataclass(frozen=True)
class Decision:
    """What the policies decided for one job."""

    level: Level
    requested: Level | None  # None: the job asked for nothing, or for nothing that is a level
    written: str  # what the job asked for, as it stands in its ad; empty: nothing
    policy: str  # the file that had the last word; empty: none had an opinion
    reason: str  # its own words
    note: str  # for the job's ad: what the owner must know; empty where all is well
    identity: Identity = field(default_factory=dict)
    errors: tuple[str, ...] = ()  # a line for each policy that failed on this job, file and line first


@dataclass(frozen=True)
class PolicyFailure:
    """No decision came: the job stays at the default level."""

    level: Level
    note: str  # for the job's ad and for the log: why
    identity: Identity = field(default_factory=dict)  # what the plain literals of its ad told, if that much


Outcome = Union[Decision, PolicyFailure]


def capped(level: Level, request: ActivationRequest) -> Level:
    """`level`, or the site's cap where that is lower."""
    return min(level, request.cap)


def decided(message: Message, request: ActivationRequest) -> Decision:
    """The Decision that a `decided` message makes. Raises BadFrame where it is none."""
    asked = Request(_level_or_none(message.get("requested")), _text(message, "written", SHOWN))
    level = _level_or_none(message.get("level"))
    if level is None:
        raise BadFrame("a decision without a level")
    final = capped(level, request)
    policy = _text(message, "policy", MAX_NAME)
    return Decision(
        level=final,
        requested=asked.level,
        written=asked.written,
        policy=policy,
        reason=_text(message, "reason", MAX_REASON),
        note=note(asked, final, request.cap, policy)[:MAX_NOTE],
        identity=names(message),
        errors=tuple(lines(message)),
    )


def failed(message: Message, request: ActivationRequest) -> PolicyFailure:
    """The PolicyFailure that a `failed` message makes. Raises BadFrame where it is none."""
    return failure(_text(message, "reason", MAX_WHY), request, names(message))


def failure(why: str, request: ActivationRequest, known: Identity) -> PolicyFailure:
    """The answer for a job on which nothing could be decided."""
    level = capped(request.default, request)
    return PolicyFailure(level, f"{_one_line(why, MAX_WHY)}: watched at the default, {level.word}", known)


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


def lines(message: Message) -> list[str]:
    """The `errors` of a message. Raises BadFrame."""
    errors = message.get("errors")
    if not isinstance(errors, list) or not all(isinstance(line, str) for line in errors):
        raise BadFrame("errors that are no lines")
    return [_one_line(line, MAX_ERROR) for line in errors]


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
