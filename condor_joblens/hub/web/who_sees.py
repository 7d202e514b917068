"""Who sees what of others' jobs: one table. Of his own jobs everybody sees all."""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """What a person is for the site."""

    USER = "user"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


class Seen(enum.Enum):
    """What can be seen of a job."""

    EXISTS = "that it is there: its id, node, times and level"
    NUMBERS = "its metrics, and its health in a word"
    OWNER = "its owner, accounting group and VO"
    WORDS = "what names programs, paths and servers: executable, errors, death, file servers, notes"


OTHERS: dict[Role, frozenset[Seen]] = {
    Role.USER: frozenset(),
    Role.OPERATOR: frozenset({Seen.EXISTS, Seen.NUMBERS, Seen.OWNER}),
    Role.ADMINISTRATOR: frozenset(Seen),
}
"""Of others' jobs."""

FEWEST = 5
"""People whose jobs are in a sum, at least, where it is shown to one who may not see the jobs themselves."""

OWNER_COLUMNS = ("Owner", "AccountingGroup", "Vo")
WORD_COLUMNS = ("Executable", "Note", "UserNote", "Death", "FirstFailure", "Servers", "Endpoints", "Uncounted", "Exits")
