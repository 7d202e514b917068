"""What the rules would have done to a job of the past: its levels, and how long it would have had each."""

from __future__ import annotations

from typing import Any

from condor_joblens.model.levels import Level
from condor_joblens.policy.child_frames import Message
from condor_joblens.policy.engine import Engine, job_of
from condor_joblens.policy.jobad import JobAd
from condor_joblens.policy.precedence import verdict

MAX_NAME = 100  # characters of an owner or a node


def replay(engine: Engine, ad: bytes, message: Message) -> Message:
    """{rules: [index, ...], levels: [[level's number, seconds], ...], errors: [failure, ...], owner, node} of an ad of
    the history.

    There are no live numbers, so rules that need them don't match. `failed` says why where the ad is none.
    """
    try:
        parsed = JobAd(ad)
        seconds, start = _seconds(parsed), _number(parsed, "JobCurrentStartDate", "JobStartDate", "QDate")
        job = job_of(parsed, {**message, "slot": {"Name": str(parsed.value("LastRemoteHost"))}}, start)
        matching, errors = engine.matching(job, start)
    except Exception as error:
        return {"rules": [], "levels": [], "errors": [], "failed": f"{type(error).__name__}: {error}"[:120]}
    ends = sorted({rule.for_seconds for rule in matching if rule.for_seconds and rule.for_seconds < seconds})
    levels: list[list[Any]] = []
    for begin, end in zip([0.0, *ends], [*ends, seconds]):
        at_that_time = [rule for rule in matching if rule.for_seconds is None or rule.for_seconds > begin]
        level: Level = verdict(at_that_time, job.request.level, job.default, job.maximum).level
        levels.append([int(level), end - begin])
    owner, host = parsed.value("Owner"), parsed.value("LastRemoteHost")
    return {
        "rules": [rule.index for rule in matching],
        "levels": levels,
        "errors": errors[:1],
        "owner": owner[:MAX_NAME] if isinstance(owner, str) else "",
        "node": host.rpartition("@")[2][:MAX_NAME] if isinstance(host, str) else "",
    }


def _seconds(ad: JobAd) -> float:
    """How long the job ran."""
    begin = _number(ad, "JobCurrentStartDate", "JobStartDate")
    end = _number(ad, "CompletionDate", "EnteredCurrentStatus")
    return _number(ad, "RemoteWallClockTime") or (max(0.0, end - begin) if begin else 0.0)


def _number(ad: JobAd, *names: str) -> float:
    """The first of these attributes that is a number above 0."""
    for name in names:
        value = ad.value(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
    return 0.0
