"""What `joblens policy check` says of triggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from condor_joblens.cli.policy_findings import DOUBTFUL, FINE, WRONG, PolicyFinding
from condor_joblens.cli.trigger_evaluator import TriggerEvaluator
from condor_joblens.model.levels import Level
from condor_joblens.policy.trace_request import ATTRIBUTE
from condor_joblens.policy.trigger_kinds import ASKED_FOR, need

if TYPE_CHECKING:
    from condor_joblens.common.config import Config


def findings(read: Sequence[tuple[str, str]], config: Config) -> list[PolicyFinding]:
    """Mistakes, and the lowest level that feeds each handler, if not every level does."""
    with TriggerEvaluator(read) as evaluator:
        loaded = evaluator.loaded
    found = [PolicyFinding(WRONG, error) for error in loaded.errors]
    for handler in loaded.handlers:
        needed = need(handler.kind, handler.asks)
        if needed.level is Level.BASIC:
            continue
        where = f'{handler.name}: on("{handler.kind}") asks for {needed.what}, which level {needed.level.word} feeds'
        if handler.kind in ASKED_FOR:
            where += f" if +{ATTRIBUTE} or a policy names {ASKED_FOR[handler.kind]}"
        if needed.level > config.max_level:
            found.append(PolicyFinding(DOUBTFUL, f"{where}: JOBLENS_MAX_LEVEL is {config.max_level.word}"))
        else:
            found.append(PolicyFinding(FINE, f"{where}: jobs below that never call it"))
    if not loaded.errors:
        count = len(loaded.handlers)
        found.append(PolicyFinding(FINE, f"{count} handler{'s' * (count != 1)} of triggers in {len(read)} files"))
    return found
