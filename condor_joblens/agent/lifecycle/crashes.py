"""Where processes of runs were when a signal killed them: told some milliseconds later than their ends.

The reader of samples makes names of addresses meanwhile, for which no end of a run waits. A death that was reported
before gets its functions then. They go into the row and the ad of a run that is still there, or into its last row.
"""

from __future__ import annotations

import numpy as np

from condor_joblens.agent.agent import Agent
from condor_joblens.common.errors import printable
from condor_joblens.jobs.death_sentence import Crashed
from condor_joblens.model.metrics import cut_words, text

MOST_WORDS = 150
"""Characters of what is said of where it was."""


def told(agent: Agent, number: int, tgid: int, signal: int, words: str) -> None:
    """The reader of samples has told of a crash. `words` are what it likes: they are cut and made fit to print."""
    if not words:
        return
    agent.crashes.add(number, tgid, Crashed(signal, printable(words, MOST_WORDS)))
    sentence = agent.crashes.sentence(number)
    if not sentence:
        return
    rows = agent.node.runs.rows
    living = agent.node.runs.living()
    found = living[rows["run_number"][living] == number]
    for run in found.tolist():
        if rows["final"][run] and text(rows["death"][run]) != sentence:
            rows["death"][run] = cut_words(sentence, "death")
            agent.output.job_ads.publish_together([run])
            agent.output.rows.publish()
    if not len(found):
        _correct_ended(agent, number, sentence)


def _correct_ended(agent: Agent, number: int, sentence: str) -> None:
    agent.settling.say_death(number, sentence)
    ended = agent.node.ended.rows
    for place in np.flatnonzero(ended["run_number"] == number)[-1:]:
        row = ended[place : place + 1].copy()
        if text(row["death"][0]) == sentence:
            return
        row["death"] = cut_words(sentence, "death")
        row["sequence"] += 1
        row["corrects"] = True
        agent.node.ended.correct(np.void(row[0]))
        agent.output.rows.publish()
