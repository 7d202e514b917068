"""Whether what one word of +JobLensTrace or of a policy asks for is traced for a run's life, at level trace.

`bash`: the commands of its scripts. `throws`: what its C++ programs throw.
"""

from __future__ import annotations

from dataclasses import dataclass

from condor_joblens.agent.levels.level_state import Levels
from condor_joblens.common.errors import printable
from condor_joblens.model.levels import Level
from condor_joblens.model.trace_spec import SHELL, THROWS
from condor_joblens.policy.trace_request import ATTRIBUTE

MOST_NOTE = 160


@dataclass(frozen=True)
class WordTracing:
    """Of one such word."""

    word: str
    request: str  # whether it is asked for: the field of TraceRequest
    subject: str  # what is not traced, in a sentence
    name: str  # of the run's note

    def asked(self, levels: Levels, run: int) -> tuple[str, ...]:
        """The word, if its policies or the job ask for it; else nothing."""
        sent = levels.inputs.get(run)
        is_asked = sent is not None and any(getattr(each, self.request) for each in (sent.policy_trace, sent.trace))
        return (self.word,) if is_asked else ()

    def wanted(self, levels: Levels, run: int) -> tuple[str, ...]:
        """The same if it is to be traced now: nothing unless the run has level trace, by whomever it was given."""
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
        return printable(sent.word_troubles.get(self.word, ""), MOST_NOTE)

    def say(self, levels: Levels, run: int, trouble: str) -> None:
        """The run's note says what is to be known of it."""
        levels.inputs[run].word_troubles[self.word] = trouble
        notes = levels.node.handles[run].notes
        before, notes[self.name] = notes.get(self.name, ""), self.note(levels, run)
        if notes[self.name] != before:
            levels.node.update_note(run)


SHELLS = WordTracing(SHELL, "shell", "script", "shells")
THROWN = WordTracing(THROWS, "throws", "exception of C++", "throws")
ALL = SHELLS, THROWN
