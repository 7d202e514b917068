"""One thing that `joblens policy check` says."""

from __future__ import annotations

from dataclasses import dataclass

WRONG, DOUBTFUL, FINE = "wrong", "doubtful", "fine"


@dataclass(frozen=True)
class PolicyFinding:
    """One thing about the policies, or about triggers."""

    kind: str  # WRONG, DOUBTFUL or FINE
    text: str
