"""What can be asked of `/api/v1`: one table. Routes are made from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from condor_joblens.hub.web import filters, queue
from condor_joblens.hub.web.access import ALARM, JOBS, SUMMARY
from condor_joblens.hub.web.api import alarms, questions, queue_questions
from condor_joblens.hub.web.api.columns import ALWAYS, BOOLEAN, COLUMNS, USUAL
from condor_joblens.hub.web.api.conditions import MOST_LENGTH, pattern
from condor_joblens.hub.web.api.parameters import Parameter
from condor_joblens.hub.web.parquet import types_of
from condor_joblens.hub.web.reads import STATES, Reader
from condor_joblens.hub.web.servers import LOAD

ROOT = "/api/v1/"

MOST_ROWS = 1000
"""Of an answer."""

MOST_POINTS = 1000
MOST_METRICS = 8
"""Of a series."""

MOST_COLUMNS = 40
_LATEST_TIME = 1e11  # epoch seconds, of the year 5138
_TEXT: dict[str, Any] = {"type": "string", "maxLength": 300}
_TIME: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": _LATEST_TIME}


@dataclass(frozen=True)
class Posting:
    """What can be posted at an address of something that can be asked."""

    help: str
    body: Mapping[str, Any]  # its JSON Schema
    read: Callable[[bytes], dict[str, Any]]
    take: Callable[[str, dict[str, Any]], dict[str, Any]]
    """Of the person whose token is shown: keeps what was read, and gives the answer. Both raise JobLensError."""

    answer: Mapping[str, Any]
    scope: str  # that a token has to have; who shows none may not post
    most_bytes: int


@dataclass(frozen=True)
class Endpoint:
    """Something that can be asked."""

    path: str  # below ROOT; `{run}` stands for a run's name
    help: str
    find: Callable[[Reader, questions.Asked], dict[str, Any] | None]
    answer: Mapping[str, Any]  # its JSON Schema
    parameters: Sequence[Parameter] = ()
    rows: str = ""
    """What of the answer is a table: of it there are CSV and Parquet, to who accepts these. Empty: there is none."""

    scopes: frozenset[str] = frozenset((JOBS,))
    """One of them a token has to have; none: any token will do."""

    post: Posting | None = None

    table: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None
    """Of an answer that has its numbers otherwise: its rows."""

    @property
    def name(self) -> str:
        """In a word."""
        return self.path.replace("{run}", "").strip("/").rpartition("/")[2]

    @property
    def has_table(self) -> bool:
        """Whether there are CSV and Parquet of it."""
        return bool(self.rows) or self.table is not None

    def rows_of(self, found: dict[str, Any]) -> list[dict[str, Any]]:
        """The table of an answer, if it has one."""
        rows: list[dict[str, Any]] = found[self.rows] if self.table is None else self.table(found)
        return rows

    @property
    def types(self) -> dict[str, str]:
        """Of the table's columns, as JSON Schema has them; those that are known."""
        if not self.rows:
            return {}
        row = self.answer["properties"][self.rows]["items"]
        if row is not RUN:
            return types_of(row)
        return types_of(RUN_SCHEMA) | {name: "integer" for name, column in COLUMNS.items() if column.is_whole}


def _names(only_metrics: bool = False) -> list[str]:
    return [name for name, column in COLUMNS.items() if column.is_metric or not only_metrics]


def _columns(help: str) -> Parameter:
    return Parameter(
        "columns", help, {"type": "array", "maxItems": MOST_COLUMNS, "items": {"type": "string", "enum": _names()}}
    )


def _limit(default: int) -> Parameter:
    return Parameter(
        "limit", "how many, at most", {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": default}
    )


_WHICH = (
    Parameter("state", "which runs", {"type": "string", "enum": list(STATES), "default": "running"}),
    *(Parameter(name, help, _TEXT) for name, help in filters.TEXTS.items()),
    *(Parameter(name, help, _TIME) for name, help in filters.TIMES.items()),
    Parameter(
        "where",
        "comparisons of columns with `and` between, such as Cpu.RecentCores < 0.1 and JobId ~ 123",
        {"type": "string", "maxLength": MOST_LENGTH, "pattern": pattern()},
    ),
)
_SORTS = [name for column in _names() for name in (column, f"-{column}")]


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_STRING, _FLAG, _MOMENT = {"type": "string"}, {"type": "boolean"}, {"type": "number"}
_MAYBE_TEXT, _MAYBE_NUMBER = {"type": ["string", "null"]}, {"type": ["number", "null"]}
_HEALTH = ["well", "suspect", "failing", "ended", "unknown", "not watched"]

RUN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A run's newest record: what was asked for and may be seen.",
    "properties": {
        **{
            name: {"type": [column.type, "null"] if column.type != BOOLEAN else BOOLEAN}
            for name, column in COLUMNS.items()
        },
        "Health": {"type": "string", "enum": _HEALTH},
        "Why": _STRING,
        "IsMine": _FLAG,
        "ExitCode": {"type": ["integer", "null"]},
    },
    "required": list(ALWAYS),
    "additionalProperties": False,
}
RUN = {"$ref": "#/components/schemas/Run"}
_COLUMN = {
    **_object(**{name: _STRING for name in ("name", "type", "seen", "help", "unit", "behaviour", "level")}),
    "required": ["name", "type", "seen", "help"],
}
_SUM = {"type": ["number", "null"]}
ALARM_SCHEMA = _object(
    **{name: {"type": "integer"} for name in ("id", "count")},
    **{name: _STRING for name in ("rule", "kind", "title", "sentence")},
    **{name: _MOMENT for name in ("begun", "seen")},
    **{name: _FLAG for name in ("red", "lasts")},
    **{name: {"type": "object"} for name in ("evidence", "told")},
)
_COUNTS = {**_object(**{name: {"type": "integer"} for name in queue_questions.COUNTED}), "type": ["object", "null"]}
_MAYBE_INTEGER = {"type": ["integer", "null"]}
_QUEUED = {
    "GlobalJobId": _STRING, "JobId": _STRING, "State": _STRING, "Kind": _STRING, "Time": _MOMENT, "Slot": _STRING,
    **{name: _MAYBE_INTEGER for name in ("Code", "SubCode", "ExitCode", "Signal")},
    **{name: _STRING for name in ("Why", "Owner", "AccountingGroup", "Executable", "Reason")},
    "IsMine": _FLAG,
}  # fmt: skip
_METRIC = _object(**{name: _list(_MAYBE_NUMBER) for name in ("min", "max", "mean")})

ENDPOINTS = (
    Endpoint(
        "schema",
        "all columns of a record: what they mean, their units, and who sees them",
        questions.told_schema,
        _object(schema={"type": "integer"}, columns=_list(_COLUMN)),
        scopes=frozenset(),
    ),
    Endpoint(
        "jobs",
        "the newest record of each run, in the order of names, or the first by another order",
        questions.jobs,
        _object(jobs=_list(RUN), next=_MAYBE_TEXT, is_cut=_FLAG, time=_MOMENT),
        (
            *_WHICH,
            _columns(f"of each run; left out: {', '.join(USUAL)}"),
            Parameter(
                "sort", "by a column, with - the greatest first: no further page", {"type": "string", "enum": _SORTS}
            ),
            Parameter("after", "`next` of the page before", {"type": "string", "maxLength": 300}),
            _limit(100),
        ),
        "jobs",
    ),
    Endpoint(
        "job/{run}",
        "the newest record of one run",
        questions.job,
        _object(job=RUN, time=_MOMENT),
        (_columns("left out: all"),),
    ),
    Endpoint(
        "job/{run}/series",
        "metrics of one run over time: least, greatest and mean value in equal parts of the time",
        questions.series,
        _object(
            run=_STRING,
            node=_STRING,
            points=_list(_object(**{name: _MOMENT for name in questions.POINT})),
            metrics={"type": "object", "additionalProperties": _METRIC},
            time=_MOMENT,
        ),
        (
            Parameter(
                "metrics",
                "which metrics",
                {
                    "type": "array",
                    "maxItems": MOST_METRICS,
                    "items": {"type": "string", "enum": _names(only_metrics=True)},
                },
                is_required=True,
            ),
            Parameter(
                "points",
                "parts of the time, at most",
                {"type": "integer", "minimum": 1, "maximum": MOST_POINTS, "default": 200},
            ),
            Parameter("since", "from then on, epoch seconds", {**_TIME, "default": 0}),
            Parameter("until", "until then, epoch seconds", {**_TIME, "default": _LATEST_TIME}),
        ),
        table=questions.series_rows,
    ),
    Endpoint(
        "summary",
        "sums over runs that have something in common",
        questions.summary,
        _object(
            by=_STRING,
            groups=_list(_object(name=_MAYBE_TEXT, **{name: _SUM for name in questions.SUMS})),
            is_cut=_FLAG,
            time=_MOMENT,
        ),
        (
            Parameter(
                "by", "what they have in common", {"type": "string", "enum": list(questions.GROUPS), "default": "owner"}
            ),
            *_WHICH,
            _limit(100),
        ),
        "groups",
        frozenset((JOBS, SUMMARY)),
    ),
    Endpoint(
        "nodes",
        "each node of which you may see jobs or that tells of itself, the worst first: what runs, ended and failed",
        questions.all_nodes,
        _object(
            nodes=_list(
                _object(
                    node=_STRING,
                    health={"type": "string", "enum": ["failing", "unknown", "suspect", "well"]},
                    why=_STRING,
                    told=_MAYBE_NUMBER,
                    **{name: _SUM for name in questions.NODE_NUMBERS},
                    **{name: _STRING for name in questions.NODE_TEXTS},
                )
            ),
            versions=_list(_object(version=_STRING, system=_STRING, nodes={"type": "integer"})),
            count={"type": "integer"},
            is_cut=_FLAG,
            since=_MOMENT,
            time=_MOMENT,
        ),
        (
            Parameter("node", "this one alone", _TEXT),
            Parameter("health", "those alone", {"type": "string", "enum": ["failing", "unknown", "suspect", "well"]}),
            _limit(1000),
        ),
        "nodes",
    ),
    Endpoint(
        "servers",
        "file servers that running jobs have asked, as far as you may read it, with their load of the last minutes",
        questions.all_servers,
        _object(
            servers=_list(
                _object(
                    **{"name": _STRING, "class": _STRING},
                    **{name: {"type": "integer"} for name in ("runs", "owners", "unknown")},
                    **{name: _MAYBE_NUMBER for name in LOAD},
                )
            ),
            time=_MOMENT,
        ),
        (Parameter("server", "this one alone", _TEXT), _limit(100)),
        "servers",
    ),
    Endpoint(
        "leaks",
        "running jobs whose memory leaks: growth an hour in bytes and as a share, and hours to the limit (null: none)",
        questions.all_leaks,
        _object(
            jobs=_list(
                _object(
                    **{name: _MAYBE_TEXT for name in questions.OF_LEAK},
                    **{"bytes_per_hour": _MOMENT, "share": _MOMENT, "hours": _MAYBE_NUMBER},
                )
            ),
            count={"type": "integer"},
            is_cut=_FLAG,
            time=_MOMENT,
        ),
        (_limit(100),),
        "jobs",
    ),
    Endpoint(
        "queue",
        "how many jobs of queues are in each state, of all and of yours, and why some are held; null: not for you",
        queue_questions.counts,
        _object(
            site=_COUNTS,
            mine=_COUNTS,
            held=_list(_object(cause=_STRING, code=_MAYBE_INTEGER, name=_STRING, jobs={"type": "integer"})),
            newest=_MAYBE_NUMBER,
            time=_MOMENT,
        ),
        scopes=frozenset((JOBS, SUMMARY)),
    ),
    Endpoint(
        "queued",
        "jobs of queues in a state, as access points tell of them: those first that have been so for longest",
        queue_questions.jobs,
        _object(
            jobs=_list({**_object(**_QUEUED), "required": list(queue_questions.ALWAYS)}),
            count={"type": "integer"},
            page={"type": "integer"},
            time=_MOMENT,
        ),
        (
            Parameter("state", "which jobs", {"type": "string", "enum": list(queue.QUEUE_STATES), "default": "idle"}),
            *(Parameter(name, help, _TEXT) for name, help in queue_questions.TEXTS.items()),
            *(Parameter(name, help, _TIME) for name, help in queue_questions.TIMES.items()),
            Parameter(
                "page",
                "which one, of `limit` jobs each: 0 is the first",
                {"type": "integer", "minimum": 0, "maximum": queue_questions.MOST_PAGES, "default": 0},
            ),
            _limit(100),
        ),
        "jobs",
    ),
    Endpoint(
        "alarms",
        "what rules have found, as far as you may see it, the newest first; an alarm keeps its id while it lasts",
        alarms.found,
        _object(alarms=_list(ALARM_SCHEMA), is_cut=_FLAG, time=_MOMENT),
        (Parameter("since", "that went on then or later, epoch seconds; left out: 30 days ago", _TIME), _limit(100)),
        post=Posting(
            "an alarm of yours, for rules that look for it",
            alarms.BODY,
            alarms.read,
            alarms.take,
            _object(rules=_list(_STRING)),
            ALARM,
            alarms.MOST_BYTES,
        ),
    ),
)
