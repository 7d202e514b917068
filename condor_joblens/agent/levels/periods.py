"""How often a run's numbers are taken: by an entry, else by the policies or the job, and never below JOBLENS_PERIOD."""

from __future__ import annotations

import numpy as np

from condor_joblens.agent.levels.level_state import Levels


def set_periods(levels: Levels, runs: np.ndarray) -> None:
    """Writes the periods of `runs` (n,) into their rows."""
    node, state = levels.node, levels.node.runs.state
    wanted = np.where(state["entry_period"][runs] > 0, state["entry_period"][runs], state["requested_period"][runs])
    node.runs.rows["period_seconds"][runs] = np.maximum(node.config.period, wanted)
