"""Traces of bash scripts that stand for the life of runs at level trace: as those of functions (function_traces.py)."""

from __future__ import annotations

from condor_joblens.agent.function_traces import FunctionTraces, Standing
from condor_joblens.agent.levels import shell_tracing
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.profiles import traced_commands
from condor_joblens.tracing import standing_messages as messages


class ShellTraces(FunctionTraces):
    """All of the node."""

    kind, content_type, subject = traced_commands.KIND, traced_commands.CONTENT_TYPE, "script"

    def asked(self, run: int) -> bool:
        """Whether its scripts are traced for the run's life, or may come to be."""
        return bool(shell_tracing.asked(self._levels, run))

    def wanted(self, levels: Levels, run: int) -> tuple[str, ...]:
        """What is to be traced of the run now."""
        return shell_tracing.wanted(levels, run)

    def base(self, run: int) -> tuple[int, int, float]:
        """What its row has of traces before this one."""
        rows = self._levels.node.runs.rows
        return max(0, int(rows["trace_commands"][run])), max(0, int(rows["trace_failed_commands"][run])), 0.0

    def put(self, standing: Standing, said: bytes) -> None:
        """Into the run's row, if there is still one. Raises ValueError for what can't be."""
        sums, run = messages.understood_shell(said), self.living(standing)
        if run is None or not sums.begun:
            return
        rows = self._levels.node.runs.rows
        rows["trace_commands"][run] = standing.base[0] + sums.commands
        rows["trace_failed_commands"][run] = standing.base[1] + sums.failed

    def note(self, run: int, text: str) -> None:
        """What the run's note says of it."""
        self._levels.inputs[run].shell_trouble = text
        shell_tracing.update(self._levels, run)
