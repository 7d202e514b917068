"""Who sees what of others' jobs: one table. Of his own jobs everybody sees all."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from condor_joblens.model.metrics import METRICS


class Role(enum.Enum):
    """What a person is for the site."""

    USER = "user"
    MANAGER = "manager"  # of accounting groups
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


class Seen(enum.Enum):
    """What can be seen of a job."""

    EXISTS = "that it is there: its id, node, times, level, what it asked for, and its exit code"
    NUMBERS = "its metrics, and its health in a word"
    OWNER = "its owner, accounting group and VO"
    WORDS = "what names programs, paths and servers: executable, errors, death, file servers, notes"
    EVIDENCE = "profiles, hang reports and traces: functions, files and arguments"


OTHERS: dict[Role, frozenset[Seen]] = {
    Role.USER: frozenset(),
    Role.MANAGER: frozenset(),
    Role.OPERATOR: frozenset({Seen.EXISTS, Seen.NUMBERS, Seen.OWNER}),
    Role.ADMINISTRATOR: frozenset(Seen),
}
"""Of others' jobs."""

OF_GROUP = frozenset({Seen.EXISTS, Seen.NUMBERS, Seen.OWNER})
"""Of others' jobs in a manager's groups."""

FEWEST = 5
"""People whose jobs are in a sum, at least, where it is shown to one who may not see the jobs themselves."""

OWNER_COLUMNS = ("Owner", "AccountingGroup", "Vo")
WORD_COLUMNS = (
    "Executable",
    "Note",
    "UserNote",
    "Death",
    "FirstFailure",
    "Cause",
    "Servers",
    "Endpoints",
    "Uncounted",
    "Exits",
)

_EXISTS_COLUMNS = frozenset(
    ("Id", "Type", "Schema", "Time", "Run", "RunNumber", "GlobalJobId", "JobId", "Node", "Slot", "Level", "LevelNumber",
     "StartTime", "UpdateTime", "PeriodSeconds", "SinkPeriodSeconds", "Sequence", "Complete", "Corrects", "Final",
     "RequestCpus", "RequestMemoryBytes", "ExitCode", "IsMine", "Schedd")
)  # fmt: skip
_NUMBER_COLUMNS = frozenset(("HangCause", "Lost", "Source", *(metric.path for metric in METRICS)))


def seen_of(column: str) -> Seen:
    """What of a job a record's column tells. One that nobody has thought of here is for those who may see all."""
    if column in OWNER_COLUMNS:
        return Seen.OWNER
    if column in _EXISTS_COLUMNS:
        return Seen.EXISTS
    return Seen.NUMBERS if column in _NUMBER_COLUMNS else Seen.WORDS


def visible(row: Mapping[str, Any], seen: frozenset[Seen], renamed: Mapping[str, str]) -> dict[str, Any]:
    """A row without what its viewer may not see. renamed: what pages call a column -> its name in records."""
    return {name: value for name, value in row.items() if seen_of(renamed.get(name, name)) in seen}
