"""Runs of jobs as an access point knows them: from the ads that condor_q and condor_history print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.cli.runs import Run
from condor_joblens.common.condor_commands import EXPRESSION, ask
from condor_joblens.common.errors import JobLensError, UsageError, printable

ATTRIBUTES = (
    "ClusterId", "ProcId", "GlobalJobId", "Owner", "RequestCpus", "RequestMemory", "RemoteHost",
    "LastRemoteHost", "JobStatus", "JobCurrentStartDate", "ExitBySignal", "ExitCode", "ExitSignal", "HoldReason",
    "NumJobStarts", "RemoveReason", "JobLensUsage",
)  # fmt: skip

TIMEOUT = 30
"""Seconds for one answer: a busy schedd takes a while, and a long history too."""

MOST_ENDED = 100
"""Jobs of a cluster that have left the queue, the latest: `joblens jobs` is for more."""

MOST_REASON = 400
"""Characters of why a job is held: the file and the error stand behind the names of both machines."""

_TOO_MUCH = 1 << 63
"""No number of a run is so large."""

_STATUS = {1: "idle", 2: "running", 3: "removed", 4: "completed", 5: "held", 6: "running", 7: "suspended"}
_NOT_RUNNING = 3, 4, 5


class NoNumbers(JobLensError):
    """HTCondor knows the job, and there are no numbers of it: what is said of it is all that there is."""


@dataclass(frozen=True)
class NamedRuns:
    """What a name means to an access point: its runs, the one to show last, and in words what is missing there."""

    runs: list[Run]
    note: str = ""
    jobs: frozenset[str] = frozenset()  # the ids of all jobs that it names, also of those without numbers


def find(identity: str) -> NamedRuns:
    """The jobs that `identity` (12.0, 12 or a GlobalJobId) names: those that run behind those that have ended.

    Raises JobLensError where HTCondor can't be asked, and NoNumbers.
    """
    selected = selection(identity)
    if selected is None:
        raise UsageError(f"{printable(identity)} is no name by which an access point knows a job")
    ads, note = read_ads("condor_q", "-allusers", *selected), ""
    if not ads or is_cluster(identity):
        try:
            ended = read_ads("condor_history", *selected, "-limit", str(MOST_ENDED))
        except JobLensError as error:
            if not ads:
                raise
            ended, note = [], f"{error}: of those that have ended none is here"
        if len(ended) >= MOST_ENDED:
            note = f"of those that have ended at most {MOST_ENDED} are here; joblens jobs {identity} tells of all"
        # one that has left the queue between the two answers is as the history knows it
        ads = list({(str(ad.get("ClusterId")), str(ad.get("ProcId"))): ad for ad in [*ads, *ended]}.values())
    runs = [from_ad(ad) for ad in ads if isinstance(ad.get("JobLensUsage"), dict)]
    if ads and not runs:
        raise NoNumbers(_without_numbers(identity, ads))
    jobs = frozenset(f"{ad.get('ClusterId')}.{ad.get('ProcId')}" for ad in ads)
    return NamedRuns(sorted(runs, key=lambda run: (not run.over, run.facts.get("start_time", 0))), note, jobs)


def is_slot(identity: str) -> bool:
    """Whether it is named as slots are, unless a site does it otherwise."""
    return re.fullmatch(r"slot[\w.@-]+", identity, re.ASCII) is not None


def is_cluster(identity: str) -> bool:
    """Whether it names all jobs of a cluster (12), and not one of them (12.0)."""
    return identity.isascii() and identity.isdigit()


def _without_numbers(identity: str, ads: Sequence[Mapping[str, Any]]) -> str:
    """The first of these jobs in a sentence, and how many others there are."""
    first, more = ads[0], len(ads) - 1
    job = identity if not more else f"{first.get('ClusterId')}.{first.get('ProcId')}"
    others = f". Of {more} more of that name there are none either" if more else ""
    return f"job {printable(job)} {_state(first)}; {_why_no_numbers(first)}{others}"


def _state(ad: Mapping[str, Any]) -> str:
    status = ad.get("JobStatus")
    if status in _NOT_RUNNING:
        return _ending(ad)
    return f"is {_STATUS.get(status, 'there') if isinstance(status, int) else 'there'}"


def _why_no_numbers(ad: Mapping[str, Any]) -> str:
    status = ad.get("JobStatus")
    runs = status in (2, 6, 7)  # how often it has started, the queue says later than that
    if not runs and (ad.get("NumJobStarts") == 0 or (status == 1 and "NumJobStarts" not in ad)):
        return "it has not run yet, and has no numbers before"
    return (
        "it has no JobLensUsage: it asked for level off, ran where JobLens is not, or its first numbers are on their "
        "way"
    )


def selection(identity: str) -> list[str] | None:
    """What names this job to condor_q and condor_history; None where it is no job's name."""
    if re.fullmatch(r"\d+(\.\d+)?", identity):
        return [identity]
    if re.fullmatch(r"[\w.@:-]+#\d+\.\d+#\d+", identity):  # nothing in it can end the string below
        return ["-constraint", f'GlobalJobId == "{identity}"']
    return None


def read_ads(
    command: str, *selection: str, attributes: Sequence[str] = ATTRIBUTES, timeout: float = TIMEOUT
) -> list[dict[str, Any]]:
    """The ads that condor_q or condor_history prints, within `timeout` seconds. Raises JobLensError."""
    told = ask(command, *selection, "-json", "-attributes", ",".join(attributes), timeout=timeout)
    try:
        ads = json.loads(told) if told.strip() else []
    except ValueError:
        raise JobLensError(f"{command} -json prints no JSON: {printable(told, 120)}") from None
    return [ad for ad in ads if isinstance(ad, dict)]


def from_ad(ad: Mapping[str, Any]) -> Run:
    """The run that a job ad with a JobLensUsage tells of.

    The job's owner may have written anything there: only what has the type it should have is taken.
    """
    from condor_joblens.model.metrics import FIELDS, METRICS

    usage = ad["JobLensUsage"]
    facts: dict[str, Any] = {}
    for field in FIELDS:
        value = _at(usage, field.path)
        if _fits(value, field.type):
            facts[field.name] = value
    numbers: dict[str, float] = {}
    for metric in METRICS:
        number = _at(usage, metric.path)
        if is_number(number):
            numbers[metric.path] = number
    if usage.get("Shortened") is True:
        facts["shortened"] = True
    if str(facts.get("death", "")).startswith(EXPRESSION):
        del facts["death"]  # HTCondor ended it, and says why itself: see the ending
    lists = [list(_entries(usage.get(name))) for name in ("Endpoint", "Servers")]
    return Run({**facts, **_identity(ad)}, numbers, _ending(ad), *lists)


def _entries(listed: Any) -> Iterator[dict[str, Any]]:
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict):
            words = {name: printable(str(entry[name]), 64) for name in ("Name", "Address", "Class") if name in entry}
            yield {**words, **{name: value for name, value in entry.items() if is_number(value)}}


def _at(usage: Any, path: str) -> Any:
    """What stands in the ad at `Cpu.UserSeconds`; None if nothing does."""
    for name in path.split("."):
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage


def _fits(value: Any, column_type: str) -> bool:
    kind = column_type[0]
    if kind == "S":
        return isinstance(value, str) and value != "" and not value.startswith(EXPRESSION)
    return isinstance(value, bool) if kind == "?" else is_number(value)


def is_number(value: Any) -> bool:
    """Whether a value of an ad is a number that a run can have."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _TOO_MUCH


def _identity(ad: Mapping[str, Any]) -> dict[str, Any]:
    """What the job ad itself says; requests that are expressions are left out."""
    facts: dict[str, Any] = {"job_id": f"{ad.get('ClusterId')}.{ad.get('ProcId')}"}
    for name, column in (
        ("GlobalJobId", "global_job_id"),
        ("Owner", "owner"),
        ("LastRemoteHost", "slot"),
        ("RemoteHost", "slot"),
    ):
        if isinstance(ad.get(name), str):
            facts[column] = ad[name]
    if is_number(ad.get("RequestCpus")):
        facts["request_cpus"] = float(ad["RequestCpus"])
    if is_number(ad.get("RequestMemory")):
        facts["request_memory_bytes"] = int(ad["RequestMemory"] * 2**20)
    return facts


def _ending(ad: Mapping[str, Any]) -> str:
    status = ad.get("JobStatus")
    if status == 4 and ad.get("ExitBySignal") is True:
        return f"signal {printable(str(ad.get('ExitSignal')))} ended it"
    if status == 4:
        return f"completed with exit code {printable(str(ad.get('ExitCode')))}"
    if status == 3:
        return f"was removed: {printable(str(ad.get('RemoveReason') or 'no reason given'), MOST_REASON)}"
    if status == 5:
        return f"is held: {printable(str(ad.get('HoldReason') or 'no reason given'), MOST_REASON)}"
    return _again(ad)


def _again(ad: Mapping[str, Any]) -> str:
    """What became of a job since its last run ended, if it was put off: the numbers are of that run."""
    last, begun = _at(ad, "JobLensUsage.UpdateTime"), ad.get("JobCurrentStartDate")
    if _at(ad, "JobLensUsage.Final") is not True:
        return ""
    if ad.get("JobStatus") == 1:
        return "is idle again: these numbers are of its last run"
    if ad.get("JobStatus") == 2 and is_number(begun) and is_number(last) and begun > last:
        return "runs again: there are no numbers of that yet, these are of the run before"
    return ""
