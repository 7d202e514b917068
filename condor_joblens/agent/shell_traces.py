"""Traces of bash scripts that stand for the life of runs at level trace: as those of functions (function_traces.py)."""

from __future__ import annotations

from collections.abc import Mapping

from condor_joblens.agent import script_shares
from condor_joblens.agent.function_traces import FunctionTraces, Standing
from condor_joblens.agent.levels import standing_requests
from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.agent.output.run_artifacts import RunArtifacts
from condor_joblens.agent.script_shares import ScriptShares
from condor_joblens.agent.trace_places import Place
from condor_joblens.model.events import EventKind
from condor_joblens.profiles import traced_commands
from condor_joblens.tracing import standing_messages as messages

_COLUMNS = "trace_commands", "trace_failed_commands", "trace_commands_counted_alone"


class ShellTraces(FunctionTraces):
    """All of the node."""

    what, kind, content_type = standing_requests.SHELLS, traced_commands.KIND, traced_commands.CONTENT_TYPE
    tells, one_by_one = EventKind.COMMAND, "commands"

    def __init__(self, levels: Levels, artifacts: RunArtifacts) -> None:
        """There are none until `open`."""
        super().__init__(levels, artifacts)
        self._shares = ScriptShares()

    def shares(self, having: Mapping[int, Place]) -> dict[int, dict[str, float]]:
        """To read commands as well."""
        return script_shares.shares(having, self._levels.node.config.max_cpu)

    def request(self, place: Place) -> dict[str, float]:
        """What it may take of JOBLENS_MAX_CPU."""
        share = super().request(place)
        having = {**self.having(), place.number: place}
        count = sum(each.whose == place.whose for each in having.values())
        return {**share, "saved": self._shares.saved(place.whose, count)}

    def base(self, run: int) -> tuple[int, int, float]:
        """What its row has of traces before this one."""
        rows = self._levels.node.runs.rows
        counts = (max(0, int(rows[column][run])) for column in _COLUMNS)
        return next(counts), next(counts), float(next(counts))

    def put(self, standing: Standing, said: bytes) -> None:
        """Into the run's row, if there is still one. Raises ValueError for what can't be."""
        sums, run = messages.understood_shell(said), self.living(standing)
        if run is None or not sums.begun:
            return
        rows = self._levels.node.runs.rows
        for column, base, since in zip(_COLUMNS, standing.base, (sums.commands, sums.failed, sums.alone)):
            rows[column][run] = int(base) + since
