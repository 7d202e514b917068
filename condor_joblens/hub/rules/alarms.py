"""What is wrong with the site at a moment, as an administrator's pages find it: each with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from condor_joblens.hub.rules.settings import LOST, NODE, SILENT, TRIGGER, WAVE, Rule
from condor_joblens.hub.web.failures import kind
from condor_joblens.hub.web.health import duration
from condor_joblens.hub.web.nodes import failing_nodes, silent_nodes
from condor_joblens.hub.web.people import Person
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.site_reads import told_waves
from condor_joblens.hub.web.who_sees import Role

WATCHER = Person("rules", Role.ADMINISTRATOR, frozenset(), ())
"""As whom alarms are looked for."""


@dataclass(frozen=True)
class Alarm:
    """`title` says no word of a job's, and `sentence` may. `owner` and `schedd` are whose it is, if it is one's.

    `own` is what the owner is told instead: `sentence` may compare with others' jobs.
    """

    when: str
    key: str  # the same as long as it is the same
    count: int
    title: str
    sentence: str
    verdict: str = ""
    owner: str = ""
    schedd: str = ""
    own: str = ""
    source: str = ""  # the trigger, or who posted it
    evidence: Mapping[str, Any] = field(default_factory=dict)


def alarms(reader: Reader, whens: Iterable[str]) -> list[Alarm]:
    """Of these kinds. Raises JobLensError."""
    finders = {WAVE: _waves, NODE: _nodes, SILENT: _silent, LOST: _lost, TRIGGER: _triggers}
    return [alarm for when in sorted(set(whens) & set(finders)) for alarm in finders[when](reader)]


def fires(rule: Rule, alarm: Alarm) -> bool:
    """Whether the rule is about this alarm."""
    is_of = rule.verdict in ("", alarm.verdict) and rule.source in ("", alarm.source)
    return rule.when == alarm.when and alarm.count >= rule.least and is_of


def _waves(reader: Reader) -> list[Alarm]:
    found = []
    for wave in told_waves(reader):
        if not wave["is_wave"]:
            continue
        owner, schedd = wave["owner"], wave["schedd"]
        evidence = {name: wave[name] for name in ("cause", "count", "usual", "clusters", "nodes", "owners", "verdict")}
        evidence |= {"since": reader.hour, "blamed": wave["blamed"] if owner or "cluster" not in wave["blamed"] else {}}
        whose = "jobs of one person" if owner else f"jobs of {max(2, wave['owners'])} people"
        where = f"of {_counted(wave['clusters'], 'cluster')} on {_counted(wave['nodes'], 'node')}"
        found.append(
            Alarm(
                WAVE,
                f"{wave['cause']}@{schedd}" if owner else wave["cause"],
                wave["count"],
                f"{wave['count']} {whose} failed in an hour: {kind(wave['cause'])} ({wave['verdict']})",
                f"{wave['cause']}: {wave['sentence']}",
                wave["verdict"],
                owner,
                schedd,
                f"{wave['cause']}: {wave['count']} of your jobs failed in an hour, {where}.",
                evidence=evidence,
            )
        )
    return found


def _nodes(reader: Reader) -> list[Alarm]:
    return [
        Alarm(
            NODE,
            one["node"],
            one["failed"],
            f"the node {one['node']} fails jobs",
            f"{one['node']}: {one['why']}.",
            evidence={**one, "since": reader.hour},
        )
        for one in failing_nodes(reader)
    ]


def _silent(reader: Reader) -> list[Alarm]:
    return [
        Alarm(
            SILENT,
            one["node"],
            1,
            f"the node {one['node']} says nothing",
            f"{one['node']}: no word of it for {duration(reader.now - one['time'])}.",
            evidence=dict(one),
        )
        for one in silent_nodes(reader)
    ]


def _lost(reader: Reader) -> list[Alarm]:
    (row,) = reader.ask(
        f"SELECT sum(Count) AS n FROM events FINAL WHERE Kind = 'Loss' AND Time > {reader.hour} AND {reader.is_past}"
    )
    count = row["n"] or 0
    said = f"{count} records were lost in an hour, as nodes declare"
    return [Alarm(LOST, "all", count, said, f"{said}.", evidence={"count": count})] if count else []


MOST_EVENTS = 20_000
"""Of triggers, that are looked at; the newest."""

MOST_JOBS = 10
"""That are named of a trigger."""


def _triggers(reader: Reader) -> list[Alarm]:
    """Events of triggers with `Mail`, those of a trigger and an owner together.

    Of a run, that node alone is believed which tells of it.
    """
    events = (
        "SELECT Node, Run, Time, JSONExtractString(Whole, 'Trigger') AS Trigger, "
        "JSONExtractString(Whole, 'Message') AS Message FROM events FINAL WHERE Kind = 'Trigger' "
        f"AND Time > {reader.hour} AND {reader.is_past} AND JSONExtractBool(Whole, 'Mail') "
        f"ORDER BY Time DESC LIMIT {MOST_EVENTS}"
    )
    runs = (
        "SELECT Node, Run, any(GlobalJobId) AS GlobalJobId, any(JobId) AS JobId, any(Owner) AS Owner FROM latest FINAL "
        f"WHERE Run IN (SELECT Run FROM ({events})) GROUP BY Node, Run"
    )
    rows = reader.ask(
        "SELECT Node AS node, Run AS run, JobId AS job, Trigger AS trigger, Message AS message, Owner AS owner, "
        f"splitByChar('#', GlobalJobId)[1] AS schedd FROM ({events}) AS e INNER JOIN ({runs}) AS l USING (Node, Run) "
        "ORDER BY Time DESC"
    )
    together: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        together.setdefault((row["trigger"], row["owner"], row["schedd"]), []).append(row)
    return [_of_trigger(reader, *key, members) for key, members in together.items()]


def _of_trigger(reader: Reader, trigger: str, owner: str, schedd: str, rows: Sequence[Mapping[str, Any]]) -> Alarm:
    """rows: the newest first."""
    runs = {row["run"]: {name: row[name] for name in ("run", "job", "node")} for row in rows}
    first, about = rows[0], f"the trigger {trigger} asks for a look at {_counted(len(runs), 'job')}"
    said = f"{first['message']} ({_counted(len(runs), 'job')}, last {first['job']} on {first['node']}; {trigger})."
    evidence = {"trigger": trigger, "count": len(runs), "since": reader.hour, "message": first["message"]}
    return Alarm(
        TRIGGER,
        f"{trigger}@{owner}@{schedd}",
        len(runs),
        about,
        said,
        owner=owner,
        schedd=schedd,
        own=said,
        source=trigger,
        evidence={**evidence, "jobs": list(runs.values())[:MOST_JOBS]},
    )


def _counted(number: int, word: str) -> str:
    return f"{number} {word if number == 1 else word + 's'}"
