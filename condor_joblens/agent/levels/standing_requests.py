"""Which traces of a run stand for its life: by its +JobLensTrace and its policies, if it is at level trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level
from condor_joblens.model.trace_spec import SHELL, THROWS
from condor_joblens.policy.trace_request import ATTRIBUTE, MOST_SPECS, TraceRequest

MOST_NOTE = 160


@dataclass(frozen=True)
class StandingRequest:
    """One kind of them."""

    subject: str  # what is not traced, in a sentence
    name: str  # of the run's note
    specs: Callable[[TraceRequest], tuple[str, ...]]  # what it asks for of this kind

    def asked(self, levels: Levels, run: int) -> tuple[str, ...]:
        """The SPECs that its policies and the job ask for, those of the policies first."""
        sent = levels.inputs.get(run)
        if sent is None:
            return ()
        return tuple(dict.fromkeys((*self.specs(sent.policy_trace), *self.specs(sent.trace))))[:MOST_SPECS]

    def wanted(self, levels: Levels, run: int) -> tuple[str, ...]:
        """Those of them that are to be traced now; none unless the run has level trace, by whomever it was given."""
        node = levels.node
        sent = levels.inputs.get(run)
        if sent is None or not sent.is_decided or not node.runs.state["named"][run] or node.runs.rows["final"][run]:
            return ()
        return self.asked(levels, run) if node.runs.rows["level_number"][run] >= Level.TRACE else ()

    def note(self, levels: Levels, run: int) -> str:
        """One line for the run's ad if it asks for what its level does not give; empty if nobody has decided so far."""
        sent = levels.inputs.get(run)
        if sent is None or not sent.is_decided or not self.asked(levels, run):
            return ""
        if levels.node.runs.state["target_level"][run] < Level.TRACE:
            return f"{ATTRIBUTE} needs level trace: no {self.subject} is traced"
        return printable(sent.trace_troubles.get(self.name, ""), MOST_NOTE)

    def say(self, levels: Levels, run: int, trouble: str) -> None:
        """The run's note says what is to be known of it."""
        levels.inputs[run].trace_troubles[self.name] = trouble
        levels.node.put_note(run, self.name, self.note(levels, run))


FUNCTIONS = StandingRequest("function", "functions", lambda request: request.functions)
SHELLS = StandingRequest("script", "shells", lambda request: (SHELL,) if request.shell else ())
THROWN = StandingRequest("exception of C++", "throws", lambda request: (THROWS,) if request.throws else ())
ALL = FUNCTIONS, SHELLS, THROWN
