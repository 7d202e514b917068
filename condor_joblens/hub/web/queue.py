"""What access points tell of their queues: how many jobs wait and are held, which, why, and what became of one.

Columns have the names of those of runs, so a viewer's scope holds here as it does there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from condor_joblens.hub.web import states
from condor_joblens.hub.web.api.parameters import WrongRequest
from condor_joblens.hub.web.reads import Reader
from condor_joblens.hub.web.who_sees import FEWEST, Seen

UNWATCHED = "unwatched"
QUEUE_STATES = ("idle", "held", "transferring", "suspended", UNWATCHED)
"""What jobs of the queue can be asked for by: their state, or that they run and no numbers of them come."""

WAITS = QUEUE_STATES[:-1]

MOST_CAUSES = 10
MOST_STEPS = 200
"""Of a job's life; the newest."""

HOLD_CODES: Mapping[int, str] = {
    1: "UserRequest", 3: "JobPolicy", 4: "CorruptedCredential", 5: "JobPolicyUndefined", 6: "FailedToCreateProcess",
    7: "UnableToOpenOutput", 8: "UnableToOpenInput", 9: "UnableToOpenOutputStream", 10: "UnableToOpenInputStream",
    11: "InvalidTransferAck", 12: "TransferOutputError", 13: "TransferInputError", 14: "IwdError",
    15: "SubmittedOnHold", 16: "SpoolingInput", 17: "JobShadowMismatch", 18: "InvalidTransferGoAhead",
    19: "HookPrepareJobFailure", 20: "MissedDeferredExecutionTime", 21: "StartdHeldJob", 22: "UnableToInitUserLog",
    23: "FailedToAccessUserAccount", 24: "NoCompatibleShadow", 25: "InvalidCronSettings", 26: "SystemPolicy",
    27: "SystemPolicyUndefined", 32: "MaxTransferInputSizeExceeded", 33: "MaxTransferOutputSizeExceeded",
    34: "JobOutOfResources", 35: "InvalidDockerImage", 36: "FailedToCheckpoint", 43: "PreScriptFailed",
    44: "PostScriptFailed", 45: "SingularityTestFailed", 46: "JobDurationExceeded", 47: "JobExecuteExceeded",
    48: "HookShadowPrepareJobFailure",
}  # fmt: skip
"""HTCondor's own names of HoldReasonCode."""

SORTS = {"job": "GlobalJobId", "owner": "Owner", "started": "Time", "updated": "Time"}
"""A word in an address -> by what rows are sorted."""

_EQUAL = {"owner": ("Owner", Seen.OWNER), "group": ("AccountingGroup", Seen.OWNER),
          "executable": ("Executable", Seen.WORDS), "cause": ("Cause", Seen.WORDS)}  # fmt: skip
_COLUMNS = (
    "GlobalJobId, JobId, Owner, AccountingGroup, Executable, Time, State, Kind, Slot, Reason, Code, SubCode, ExitCode, "
    "Signal"
)
_SEEN = {
    **{"Owner": Seen.OWNER, "AccountingGroup": Seen.OWNER, "Executable": Seen.WORDS, "Reason": Seen.WORDS},
    "SubCode": Seen.WORDS,
}
"""Who sees a column; that a job is there tells all others."""


def sums(reader: Reader) -> dict[str, Any] | None:
    """How many are in each state, and why those that he sees are held; None if no access point tells of a queue."""
    (ever,) = reader.ask("SELECT max(Time) AS newest FROM job_states")
    if not ever["newest"]:
        return None
    counts = {state: f"State = '{state}'" for state in (*WAITS, "running")} | {UNWATCHED: "IsUnwatched"}
    parts = [
        f"countIf({condition} AND {whose}) AS {prefix}{state}"
        for prefix, whose in (("", "1"), (_MINE, "IsOwn"))
        for state, condition in counts.items()
    ]
    (found,) = reader.ask(
        f"SELECT {', '.join(parts)}, countDistinct(Owner) AS owners, max(Time) AS newest FROM "
        f"(SELECT State, Owner, Time, {reader.near} AS IsOwn, {_state(reader, UNWATCHED)} AS IsUnwatched "
        "FROM job_states FINAL WHERE State NOT IN ('ended', 'removed'))"
    )
    newest = found["newest"] or ever["newest"]
    whole, mine = ({state: found[f"{prefix}{state}"] for state in counts} for prefix in ("", _MINE))
    is_hidden = not reader.sees_others and found["owners"] < FEWEST
    return {"site": None if is_hidden else whole, "mine": mine, "held": _held(reader), "newest": newest}


_MINE = "mine_"
"""Before a state: of the viewer's own jobs, and his groups'."""


def _held(reader: Reader) -> list[dict[str, Any]]:
    """Causes of holds within his scope, those of most jobs first."""
    words = f"if({reader.sees(Seen.WORDS)}, Cause, '')"
    return [
        {"cause": row["words"], "code": row["code"], "name": HOLD_CODES.get(row["code"] or 0, ""), "jobs": row["jobs"]}
        for row in reader.ask(
            f"WITH {reader.own} AS IsMine SELECT {words} AS words, Code AS code, count() AS jobs FROM job_states FINAL "
            f"WHERE State = 'held' AND {reader.scope} GROUP BY words, code ORDER BY jobs DESC, words "
            f"LIMIT {MOST_CAUSES}"
        )
    ]


def jobs(
    reader: Reader, words: str, sort: str, state: str, page: int, most: int, exact: Mapping[str, Any]
) -> dict[str, Any]:
    """As `Reader.jobs`, of a word of QUEUE_STATES. Raises WrongRequest, JobLensError."""
    parts, values = _conditions(reader, exact)
    parts += [_state(reader, state), reader.own if exact.get("mine") else reader.scope]
    hidden = [
        name if reader.sees(what) == "1" else f"if({reader.sees(what)}, {name}, '')"
        for name, what in (("Owner", Seen.OWNER), ("Executable", Seen.WORDS), ("Reason", Seen.WORDS))
    ]
    text = ", ' ', ".join(["JobId", "GlobalJobId", *hidden])
    for number, word in enumerate(words.split()[:8]):
        values[f"word{number}"] = word[:100]
        parts.append(f"positionCaseInsensitiveUTF8(concat({text}), {{word{number}:String}}) > 0")
    where = " AND ".join(parts)
    way = "DESC" if sort.startswith("-") else "ASC"
    rows = reader.ask(
        f"SELECT {_COLUMNS}, {reader.own} AS IsMine FROM job_states FINAL WHERE {where} "
        f"ORDER BY {SORTS.get(sort.lstrip('-'), 'Time')} {way}, GlobalJobId LIMIT {most} OFFSET {most * page}",
        **values,
    )
    (count,) = reader.ask(
        f"WITH {reader.own} AS IsMine SELECT count() AS n FROM job_states FINAL WHERE {where}", **values
    )
    return {"jobs": [_shown(reader, row) for row in rows], "count": count["n"], "page": page, "time": reader.now}


def job(reader: Reader, name: str) -> dict[str, Any] | None:
    """One job by its GlobalJobId, with its life; None if there is none, or he may not see it: nobody learns which."""
    rows = reader.ask(
        f"SELECT {_COLUMNS}, {reader.own} AS IsMine FROM job_states FINAL WHERE GlobalJobId = {{job:String}} "
        f"AND {reader.scope}",
        job=name,
    )
    if not rows:
        return None
    runs = reader.ask(
        f"SELECT DISTINCT Run FROM latest FINAL WHERE GlobalJobId = {{job:String}} AND {reader.scope} ORDER BY Run "
        f"LIMIT {MOST_STEPS}",
        job=name,
    )
    shown = _shown(reader, rows[0])
    return {"job": shown, "life": life(reader, name), "runs": [row["Run"] for row in runs], "time": reader.now}


def life(reader: Reader, name: str) -> list[dict[str, Any]]:
    """The steps of a job in the order of its access point's log, each with its time, kind and words."""
    rows = reader.ask(
        f"SELECT {_COLUMNS}, {reader.own} AS IsMine FROM (SELECT * FROM job_events FINAL WHERE "
        f"GlobalJobId = {{job:String}} AND {reader.scope} ORDER BY Sequence DESC LIMIT {MOST_STEPS}) ORDER BY Sequence",
        job=name,
    )
    return [
        {"time": row["Time"], "kind": row["Kind"], "words": words_of(_shown(reader, row)), "state": row["State"]}
        for row in rows
    ]


def words_of(row: Mapping[str, Any]) -> str:
    """What a step says beside its kind, as far as its viewer may see it."""
    found = []
    if row["Kind"] == "hold" and row["Code"] is not None:
        found.append(f"code {row['Code']}" + (f" ({HOLD_CODES[row['Code']]})" if row["Code"] in HOLD_CODES else ""))
    if row["Slot"]:
        found.append(f"on {row['Slot']}")
    if row["ExitCode"] is not None:
        found.append(f"exit code {row['ExitCode']}")
    if row["Signal"] is not None:
        found.append(f"signal {row['Signal']}")
    if row.get("Reason"):
        found.append(row["Reason"])
    return ": ".join(found) if row["Kind"] == "hold" else ", ".join(found)


def _shown(reader: Reader, row: dict[str, Any]) -> dict[str, Any]:
    row = {**row, "IsMine": bool(row["IsMine"])}
    seen = reader.seen(row)
    found = {name: value for name, value in row.items() if _SEEN.get(name, Seen.EXISTS) in seen}
    return {**found, "Why": words_of(found)}


def _state(reader: Reader, state: str) -> str:
    if state != UNWATCHED:
        return f"State = '{WAITS[WAITS.index(state)]}'"
    watched = f"SELECT JobHash FROM {reader.numbers} WHERE {states.running(reader.now)} AND Level != 'off'"
    return f"(State = 'running' AND sipHash64(GlobalJobId) NOT IN ({watched}))"


def _conditions(reader: Reader, exact: Mapping[str, Any]) -> tuple[list[str], dict[str, str | float]]:
    """Of exact parameters. Raises WrongRequest for those that say something of runs."""
    parts: list[str] = []
    values: dict[str, str | float] = {}
    for name, value in exact.items():
        if value in (None, "") or name == "mine":
            continue
        if name in _EQUAL:
            column, what = _EQUAL[name]
            parts.append(f"({reader.sees(what)} AND {column} = {{{name}:String}})")
        elif name in ("cluster", "schedd"):
            parts.append(f"startsWith(GlobalJobId, {{{name}:String}})")
            value = f"{value}{'.' if name == 'cluster' else '#'}"
        elif name in ("since", "until"):
            parts.append(f"Time {'>=' if name == 'since' else '<='} {{{name}:Float64}}")
        else:
            raise WrongRequest(f"of jobs that wait there is no {name}")
        values[name] = value
    return parts, values
